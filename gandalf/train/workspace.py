"""Reuse memory between chunks, and move some rows of a table into it and back."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gandalf.nets.label_text import LabelIds


class Workspace:
    """Memory by name that is used again: on a CPU a large new tensor costs more than computing it."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def buffer(self, name: str, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype) -> Tensor:
        """Return a tensor of this shape, on the device of `like`, with arbitrary content."""
        if like.device.type != "cpu":  # PyTorch's allocator reuses memory of other devices
            return torch.empty(shape, dtype=dtype, device=like.device)
        size = math.prod(shape)
        if name not in self._memory or self._memory[name].numel() < size:
            self._memory.pop(name, None)  # free it before the larger one is allocated
            self._memory[name] = torch.empty(size, dtype=dtype, device=like.device)
        return self._memory[name][:size].view(shape)

    def take_rows(self, name: str, table: Tensor, labels: LabelIds) -> Tensor:
        """Return some rows of a table: a range as a view, other labels as a copy for `put_back`."""
        if isinstance(labels, slice):
            return table[labels]
        rows = self.buffer(name, (len(labels), *table.shape[1:]), table, table.dtype)
        return torch.index_select(table, 0, labels, out=rows)

    def cast(self, name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor at another precision; the tensor itself if it has this precision."""
        if tensor.dtype == dtype:
            return tensor
        return self.buffer(name, tuple(tensor.shape), tensor, dtype).copy_(tensor)

    def product(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """Return the matrix product."""
        return torch.mm(left, right, out=self.buffer(name, (len(left), right.shape[1]), left, left.dtype))


def put_back(table: Tensor, labels: LabelIds, rows: Tensor) -> None:
    """Write rows that `take_rows` copied to their places; a view needs no writing."""
    if isinstance(labels, slice):
        return
    if table.device.type == "cpu" and table.dtype == torch.float32:
        table.numpy()[labels.numpy()] = rows.numpy()  # takes a third of the time of `index_copy_`
    else:
        table.index_copy_(0, labels, rows)
