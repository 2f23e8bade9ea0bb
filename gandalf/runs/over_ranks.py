"""Vectors and best labels where points and labels are cut over ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gandalf.nets.heads import Table
from gandalf.train.memory import available_bytes
from gandalf.train.ranks import Ranks

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def merged(ranks: Ranks, ids: Ints, scores: Floats, own: slice) -> tuple[Ints, Floats]:
    """The best of all ranks' best labels, ties to the smaller label; ids are numbers among `own`."""
    if ranks.world == 1:
        return ids, scores
    k = ids.shape[1]
    ids = np.where(ids >= 0, ids + own.start, -1)
    of_all = ranks.everyone((ids, scores))
    ids = np.concatenate([each for each, _ in of_all], axis=1)
    scores = np.concatenate([each for _, each in of_all], axis=1)
    # Smaller labels are of earlier ranks and stand first, so a stable sort settles ties.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def whole_table(ranks: Ranks, table: Table, num_labels: int) -> Table:
    """The rows of all ranks on the first one's host; the others keep theirs."""
    if ranks.world == 1:
        return table
    parts = {name: ranks.collected(part, num_labels) for name, part in table.state_dict().items()}
    with torch.device("meta"):  # every one of its numbers is about to be replaced
        whole = Table(len(parts["rows"]), table.dim)
    whole.load_state_dict(parts, assign=True)
    return whole


def together(encoder: nn.Module, table: Table, device: str) -> Table:
    """Encoder and rows on the device where both fit there twice, else on the host."""
    size = sum(each.numel() * each.element_size() for each in (table.rows, table.bias))
    free = available_bytes(device)
    place = device if free is None or 2 * size < free else "cpu"
    encoder.to(place)
    return table.to(place)
