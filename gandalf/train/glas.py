"""Regularise rows by GLaS: the product of two labels' rows should equal the labels' similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.train.labels import Chunk


@dataclass(frozen=True, eq=False)
class Glas:
    """The penalty weight x (row . row - S)^2, averaged over all pairs of a batch's positive labels.

    All L x L pairs would be too many. `similarity` is S, the mean of P(i | j) and P(j | i).
    """

    similarity: csr_array  # L x L
    weight: float

    @torch.no_grad()
    def gradients(self, table: Tensor, chunks: Sequence[Chunk]) -> list[tuple[Tensor, Tensor]]:
        """Return for each chunk the columns of positive labels, and the gradient of their rows."""
        columns = [torch.unique(chunk.column) for chunk in chunks]
        labels = torch.cat([_label_ids(chunk, each) for chunk, each in zip(chunks, columns, strict=True)])
        rows = table[labels].float()  # shape: (U, dim)
        ids = labels.cpu().numpy()
        similarity = torch.from_numpy(self.similarity[ids][:, ids].toarray()).to(rows)  # shape: (U, U)
        slope = (rows @ rows.T - similarity) @ rows  # shape: (U, dim)
        slope *= 4 * self.weight / max(len(labels), 1) ** 2
        parts = torch.split(slope, [len(each) for each in columns])
        return list(zip(columns, parts, strict=True))


def _label_ids(chunk: Chunk, columns: Tensor) -> Tensor:
    return columns + chunk.labels.start if isinstance(chunk.labels, slice) else chunk.labels[columns]
