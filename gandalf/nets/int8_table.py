"""Define a table whose rows take a quarter of the memory: 8-bit integers and one scale for each row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gandalf.nets.growing_rows import Growing, as_growing, with_more_rows
from gandalf.nets.heads import Table

LARGEST = 127


class Int8Table(nn.Module):
    """Rows rounded to 255 steps between minus and plus their largest number; biases are not rounded.

    For prediction only. `block` and `at` return float32 like those of a `Table`.
    """

    codes: Tensor  # shape: (L, dim), int8
    scales: Tensor  # shape: (L,)
    bias: Tensor  # shape: (L,)

    def __init__(self, codes: Tensor, scales: Tensor, bias: Tensor, growing: Growing | None = None) -> None:
        super().__init__()
        self.growing = growing or {}  # memory with spare rows, if labels may be added
        self.num_labels, self.dim = codes.shape
        for name, value in (("codes", codes), ("scales", scales), ("bias", bias)):
            self.register_buffer(name, value)

    @classmethod
    def of(cls, table: Table) -> Int8Table:
        """Return the rows of a table, rounded."""
        return cls(*_rounded(table.rows.detach()), table.bias.detach().float())

    @property
    def rows(self) -> Tensor:
        """Return the raw int8 codes."""
        return self.codes

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return rows and biases of a range of labels."""  # shape: (C, dim), (C,)
        return self.codes[start:stop] * self.scales[start:stop, None], self.bias[start:stop]

    def at(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and biases of the given labels."""  # shape: (..., dim), (...)
        return self.codes[ids] * self.scales[ids].unsqueeze(-1), self.bias[ids]

    def extended(self, rows: Tensor, biases: Tensor) -> Int8Table:
        """Return a table with more labels; this one does not change. With room, the two share their rows."""
        codes, scales = _rounded(rows.to(self.bias))
        new = {"codes": codes, "scales": scales, "bias": biases}
        tensors, growing = with_more_rows(self.state_dict(), new, self.growing)
        return Int8Table(**tensors, growing=growing)

    def with_room(self) -> Int8Table:
        """Return the same table, with room for labels to come."""
        if self.growing:
            return self
        tensors, growing = as_growing(self.state_dict())
        return Int8Table(**tensors, growing=growing)


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = rows.abs().amax(dim=1).float().clamp_min(torch.finfo(torch.float32).tiny) / LARGEST
    return torch.round(rows / scales[:, None]).to(torch.int8), scales
