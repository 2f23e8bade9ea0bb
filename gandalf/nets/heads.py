"""Heads: from label ids to weight rows. Score = point . row + bias."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Table(nn.Module):
    """One free row and one bias for each label."""

    def __init__(self, num_labels: int, dim: int) -> None:
        super().__init__()
        self.num_labels, self.dim = num_labels, dim
        self.rows = nn.Parameter(torch.empty(num_labels, dim))
        # A point has a few of L labels: at the start each is as likely as that.
        self.bias = nn.Parameter(torch.full((num_labels,), -math.log(max(num_labels, 2))))
        nn.init.normal_(self.rows, 0.0, dim**-0.5)

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows and biases of a range of labels, as views."""  # shape: (C, dim), (C,)
        return self.rows[start:stop], self.bias[start:stop]

    def at(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and biases of the given labels, as copies."""  # shape: (C, dim), (C,)
        return self.rows[ids], self.bias[ids]
