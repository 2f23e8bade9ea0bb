"""GLaS as a regulariser: products of label rows are to follow how often the labels are seen together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.train.labels import Chunk


@dataclass(frozen=True, eq=False)
class Glas:
    """weight x mean over pairs of labels of (row . row - S)^2, over the labels of a batch alone.

    Over all labels there would be L x L pairs. `similarity` is S, the mean of P(i | j) and P(j | i).
    """

    similarity: csr_array  # L x L
    weight: float

    @torch.no_grad()
    def gradients(self, table: Tensor, chunks: Sequence[Chunk]) -> list[tuple[Tensor, Tensor]]:
        """For each chunk the columns of labels that the batch carries, and what their rows are told."""
        columns = [torch.unique(chunk.column) for chunk in chunks]
        labels = torch.cat([_ids(chunk, each) for chunk, each in zip(chunks, columns, strict=True)])
        rows = table[labels].float()  # shape: (U, dim)
        at = labels.cpu().numpy()
        wanted = torch.from_numpy(self.similarity[at][:, at].toarray()).to(rows)  # shape: (U, U)
        slope = (rows @ rows.T - wanted) @ rows  # shape: (U, dim)
        slope *= 4 * self.weight / max(len(labels), 1) ** 2
        parts = torch.split(slope, [len(each) for each in columns])
        return list(zip(columns, parts, strict=True))


def _ids(chunk: Chunk, columns: Tensor) -> Tensor:
    return columns + chunk.labels.start if isinstance(chunk.labels, slice) else chunk.labels[columns]
