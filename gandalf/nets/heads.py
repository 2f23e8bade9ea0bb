"""Define heads, which turn label ids into rows: score = point . row + bias; a Table predicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gandalf.nets.growing_rows import Growing, as_growing, with_more_rows
from gandalf.nets.label_text import BLOCK, Frozen, LabelIds, LabelText, as_computed


class Table(nn.Module):
    """One free row and one bias for each label."""

    def __init__(self, num_labels: int, dim: int) -> None:
        super().__init__()
        self.num_labels, self.dim = num_labels, dim
        self.growing: Growing = {}  # memory with spare rows, if labels may be added
        self.rows = nn.Parameter(torch.empty(num_labels, dim))
        # Start with a probability of about 1 / L for each label.
        self.bias = nn.Parameter(torch.full((num_labels,), -math.log(max(num_labels, 2))))
        if not self.rows.is_meta:  # on the meta device, this call would only import PyTorch's compiler
            nn.init.normal_(self.rows, 0.0, dim**-0.5)

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> Table:
        """Return a table with the given `rows` and `bias`, not copies."""
        with torch.device("meta"):  # draws no random numbers
            table = Table(*tensors["rows"].shape)
        table.load_state_dict(tensors, assign=True)
        return table

    @staticmethod
    def part(num_labels: int, dim: int, shard: slice) -> Table:
        """Return a shard of a table with the start values of the whole table, without making the whole."""
        if shard == slice(0, num_labels):
            return Table(num_labels, dim)
        size = shard.stop - shard.start
        rows, bias = torch.empty(size, dim), torch.full((size,), -math.log(max(num_labels, 2)))
        # Draw the rows of other labels, too, so that the numbers equal those of one draw of all rows.
        for start, stop in pairwise(_draw_bounds(num_labels)):
            drawn = torch.empty(stop - start, dim).normal_(0.0, dim**-0.5)
            first, last = max(start, shard.start), min(stop, shard.stop)
            if first < last:
                rows[first - shard.start : last - shard.start] = drawn[first - start : last - start]
        return Table.of({"rows": rows, "bias": bias})

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return rows and biases of a range of labels, as views."""  # shape: (C, dim), (C,)
        return self.rows[start:stop], self.bias[start:stop]

    def at(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and biases of the given labels, as copies."""  # shape: (C, dim), (C,)
        return self.rows[ids], self.bias[ids]

    def plain(self) -> Table:
        """Return the table for prediction: this table, in any precision."""
        return self

    def arrays(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
        """Return rows and biases in NumPy, not copied; None unless all are of float32 on the CPU."""
        both = self.rows.detach(), self.bias.detach()
        if any(each.device.type != "cpu" or each.dtype != torch.float32 for each in both):
            return None
        return both[0].numpy(), both[1].numpy()

    def widen(self) -> None:
        """Convert the rows to float32 via the CPU, so that a GPU never holds both precisions."""
        if self.rows.dtype != torch.float32:
            device, rows = self.rows.device, self.rows.data.cpu().float()
            self.rows.data = self.rows.data.new_empty(0)  # free the old rows first
            self.rows.data = rows.to(device)

    def extended(self, rows: Tensor, biases: Tensor) -> Table:
        """Return a table with more labels; this one does not change. With room, the two share their rows."""
        return self._like(*with_more_rows(self.state_dict(), {"rows": rows, "bias": biases}, self.growing))

    def with_room(self) -> Table:
        """Return the same table, with room for labels to come."""
        return self if self.growing else self._like(*as_growing(self.state_dict()))

    def _like(self, tensors: Mapping[str, Tensor], growing: Growing) -> Table:
        table = Table.of(tensors)
        table.growing = growing
        return table.train(self.training)

    def learnt(self) -> Iterator[nn.Module]:
        """Return the modules that are updated with the encoder, not row by row: none."""
        return iter(())


class Composed(nn.Module):
    """Free rows mixed with rows made of label texts: DECAF, ECLARE, InceptionXML-LF."""

    def __init__(self, table: Table, parts: Sequence[LabelText | Frozen], mix: nn.Module) -> None:
        super().__init__()
        self.num_labels, self.dim = table.num_labels, table.dim
        self.table, self.parts, self.mix = table, nn.ModuleList(parts), mix

    def mixed(self, free: Tensor, labels: LabelIds) -> Tensor:
        """Return the rows of these labels, from their free rows."""  # shape: (C, dim) -> (C, dim)
        rows: Tensor = self.mix([as_computed(free), *(as_computed(part(labels)) for part in self.parts)])
        return rows

    @torch.no_grad()
    def plain(self) -> Table:
        """Return a table with the present rows, which gives the same scores without dropout."""
        was_training = self.training
        self.eval()
        bias = self.table.bias.detach().clone()
        table = _make_table(bias, self.dim, lambda labels: self.mixed(self.table.rows[labels], labels))
        self.train(was_training)
        return table

    def learnt(self) -> Iterator[nn.Module]:
        """Yield the modules that are updated with the encoder, not row by row."""
        yield from (*self.parts, self.mix)

    def refresh(self) -> None:
        """Compute the rows of frozen parts again."""
        for part in self.parts:
            if isinstance(part, Frozen):
                part.refresh()


class Encoded(nn.Module):
    """The encoder's vectors of the label texts, of length 1, as rows: the head of a siamese stage."""

    tokens: Tensor  # shape: (L, T)

    def __init__(self, encoder: nn.Module, tokens: Tensor, dim: int) -> None:
        super().__init__()
        self._encoder = [encoder]  # in a list, so that its weights do not count as weights of this module
        self.num_labels, self.dim = len(tokens), dim
        self.register_buffer("tokens", tokens, persistent=False)

    def at(self, ids: LabelIds) -> Tensor:
        """Return the rows of these labels, with a gradient if it is enabled."""  # shape: (C, dim)
        tokens = self.tokens[ids].long()
        longest = max(int((tokens != 0).any(dim=0).nonzero().max()) + 1, 1)
        return F.normalize(self._encoder[0](tokens[:, :longest]).float(), dim=1)

    @torch.no_grad()
    def plain(self) -> Table:
        """Return a table of the present rows without bias, so that scores are cosines."""
        encoder = self._encoder[0]
        was_training = encoder.training
        encoder.eval()
        bias = torch.zeros(self.num_labels, device=self.tokens.device)
        table = _make_table(bias, self.dim, self.at, batch=1024)
        encoder.train(was_training)
        return table

    def learnt(self) -> Iterator[nn.Module]:
        """Return no modules: only the encoder is trained."""
        return iter(())


Head = Table | Composed | Encoded


def _draw_bounds(num_labels: int) -> list[int]:
    """Return the bounds of blocks of rows that give the same random numbers as one draw of all rows.

    PyTorch draws random numbers in groups of 16, except the last few of a draw. So blocks are multiples of 16
    numbers, and the last block is not short.
    """
    starts = list(range(0, max(num_labels - BLOCK, 1), BLOCK))
    return [*starts, num_labels]


def _make_table(bias: Tensor, dim: int, rows_of: Callable[[slice], Tensor], batch: int = BLOCK) -> Table:
    """Return a table with these biases and with rows that `rows_of` computes, a range at a time."""
    rows = torch.empty(len(bias), dim, device=bias.device)
    for start in range(0, len(bias), batch):
        labels = slice(start, min(start + batch, len(bias)))
        rows[labels] = rows_of(labels)
    return Table.of({"rows": rows, "bias": bias})
