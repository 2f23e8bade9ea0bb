"""A table of rows in a quarter of the memory: whole numbers of 8 bits and one scale a row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gandalf.nets.heads import Table
from gandalf.nets.room import Rooms, lengthened, with_rooms

LARGEST = 127


class Int8Table(nn.Module):
    """Rows rounded to 255 steps between minus and plus their largest number; biases as they were.

    For prediction only. Rows and biases are asked for as of a `Table`, and come as float32.
    """

    codes: Tensor  # shape: (L, dim), int8
    scales: Tensor  # shape: (L,)
    bias: Tensor  # shape: (L,)

    def __init__(self, codes: Tensor, scales: Tensor, bias: Tensor, rooms: Rooms | None = None) -> None:
        super().__init__()
        self.rooms = rooms or {}  # where its tensors lie, if more rows are to come
        self.num_labels, self.dim = codes.shape
        for name, value in (("codes", codes), ("scales", scales), ("bias", bias)):
            self.register_buffer(name, value)

    @classmethod
    def of(cls, table: Table) -> Int8Table:
        """The same rows, rounded."""
        return cls(*_rounded(table.rows.detach()), table.bias.detach().float())

    @property
    def rows(self) -> Tensor:
        """What lies where the rows are; not the rows themselves."""
        return self.codes

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows and biases of a range of labels."""  # shape: (C, dim), (C,)
        return self.codes[start:stop] * self.scales[start:stop, None], self.bias[start:stop]

    def at(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and biases of the given labels."""  # shape: (..., dim), (...)
        return self.codes[ids] * self.scales[ids].unsqueeze(-1), self.bias[ids]

    def extended(self, rows: Tensor, biases: Tensor) -> Int8Table:
        """With more labels; this one stays. A table with room shares its rows with the longer one."""
        codes, scales = _rounded(rows.to(self.bias))
        new = {"codes": codes, "scales": scales, "bias": biases}
        tensors, rooms = lengthened(self.state_dict(), new, self.rooms)
        return Int8Table(**tensors, rooms=rooms)

    def with_room(self) -> Int8Table:
        """Return the same table, with room for labels to come."""
        if self.rooms:
            return self
        tensors, rooms = with_rooms(self.state_dict())
        return Int8Table(**tensors, rooms=rooms)


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = rows.abs().amax(dim=1).float().clamp_min(torch.finfo(torch.float32).tiny) / LARGEST
    return torch.round(rows / scales[:, None]).to(torch.int8), scales
