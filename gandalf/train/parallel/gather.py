"""Merge the best labels and the rows of all ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import nn

from gandalf.nets.heads import Table
from gandalf.train.machine_memory import available_bytes
from gandalf.train.parallel.ranks import Ranks

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def merge_best_labels(ranks: Ranks, ids: Ints, scores: Floats, shard: slice) -> tuple[Ints, Floats]:
    """Return the best of all ranks' best labels; ties go to the smaller label.

    `ids` count from the first label of this rank, `shard.start`.
    """
    if ranks.world == 1:
        return ids, scores
    k = ids.shape[1]
    ids = np.where(ids >= 0, ids + shard.start, -1)
    of_all = ranks.values_of_all((ids, scores))
    ids = np.concatenate([each for each, _ in of_all], axis=1)
    scores = np.concatenate([each for _, each in of_all], axis=1)
    # Earlier ranks have the smaller labels, so a stable sort settles ties.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def gather_model(ranks: Ranks, encoder: nn.Module, table: Table, num_labels: int, device: str) -> Table:
    """Return the rows of all ranks on rank 0, next to the encoder; other ranks keep theirs."""
    if ranks.world == 1:
        return table
    parts = {name: ranks.gather_on_first(part, num_labels) for name, part in table.state_dict().items()}
    return _on_one_device(encoder, Table.of(parts), device)


def _on_one_device(encoder: nn.Module, table: Table, device: str) -> Table:
    """Move encoder and rows to the device if the rows fit there twice, else to the host."""
    size = sum(each.numel() * each.element_size() for each in (table.rows, table.bias))
    free = available_bytes(device)
    place = device if free is None or 2 * size < free else "cpu"
    encoder.to(place)
    return table.to(place)
