"""Make rows of labels from the words of their texts, or also of the texts of their neighbours in a graph."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from gandalf.nets.blocks import LABEL_BLOCKS, BlockName, identity_linear
from gandalf.nets.head_kind import HeadKind
from gandalf.nets.word_table import WordTable

LabelIds = slice | Tensor  # a range of labels, or their ids
BLOCK = 1 << 14  # labels whose rows are computed at once if all are needed


class LabelText(nn.Module):
    """Rows of labels as weighted sums of word vectors, followed by a block.

    The word vectors belong to the encoder; nothing else is shared with it. With bags of the label texts this
    is the label-text embedding (LTE). With bags averaged over a label graph it is the graph-averaged
    embedding (GALE), because the sum is linear in the words.
    """

    indptr: Tensor  # shape: (L + 1,)
    indices: Tensor  # shape: (nnz,)
    weights: Tensor  # shape: (nnz,)

    def __init__(
        self, words: WordTable, bags: csr_array, dim: int, block: BlockName, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self._words = [words]  # in a list, so that its weights do not count as weights of this module
        self.num_labels, self.dim = bags.shape[0], dim
        for name, array in (("indptr", bags.indptr), ("indices", bags.indices), ("weights", bags.data)):
            kind = np.float32 if name == "weights" else np.int64
            self.register_buffer(name, torch.from_numpy(array.astype(kind)), persistent=False)
        self._ends = bags.indptr.astype(np.int64)  # on the CPU, so that a range need not wait for a GPU
        narrower = words.embedding_dim != dim
        self.project: nn.Module = (
            nn.Linear(words.embedding_dim, dim, bias=False) if narrower else nn.Identity()
        )
        if isinstance(self.project, nn.Linear):
            nn.init.orthogonal_(self.project.weight)
        self.block = LABEL_BLOCKS[block](dim, dropout)

    def forward(self, labels: LabelIds) -> Tensor:
        """Return the rows of these labels."""  # shape: (C, dim)
        places, offsets = self._places(labels)
        words = self._words[0]
        summed = words.bag_sum(self.indices[places], offsets, self.weights[places])
        rows: Tensor = self.block(self.project(as_computed(summed / words.length)))
        return rows

    def _places(self, labels: LabelIds) -> tuple[slice | Tensor, Tensor]:
        """Return the places of the words of these labels, and the start of each label."""
        if isinstance(labels, slice):
            start, stop, _ = labels.indices(self.num_labels)
            begin, end = int(self._ends[start]), int(self._ends[stop])
            return slice(begin, end), self.indptr[start : stop + 1] - begin
        first, last = self.indptr[labels], self.indptr[labels + 1]
        offsets = torch.cat([first.new_zeros(1), torch.cumsum(last - first, dim=0)])
        shift = torch.repeat_interleave(first - offsets[:-1], last - first)
        return torch.arange(len(shift), device=first.device) + shift, offsets


def as_computed(rows: Tensor) -> Tensor:
    """Convert rows to the precision of products, since memory traffic limits the work on many rows."""
    kind = rows.device.type
    return rows.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else rows


class Frozen(nn.Module):
    """Rows without a gradient, which `refresh` computes once for many steps."""

    rows: Tensor  # shape: (L, dim)

    def __init__(self, part: LabelText) -> None:
        super().__init__()
        self.part, self.num_labels, self.dim = part, part.num_labels, part.dim
        self.register_buffer("rows", torch.zeros(part.num_labels, part.dim))
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute all rows again."""
        was_training = self.part.training
        self.part.eval()
        for start in range(0, self.num_labels, BLOCK):
            rows = slice(start, min(start + BLOCK, self.num_labels))
            self.rows[rows] = self.part(rows)
        self.part.train(was_training)

    def forward(self, labels: LabelIds) -> Tensor:
        """Return the rows of these labels."""  # shape: (C, dim)
        return self.rows[labels]


class GatedSum(nn.Module):
    """DECAF's mix: gates weigh each number of the parts, are the same for all labels and start half open."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.gates = nn.Parameter(torch.zeros(parts, dim))

    def forward(self, parts: list[Tensor]) -> Tensor:
        """Return one row for each label."""  # shape: P times (C, dim) -> (C, dim)
        return _weighted(torch.sigmoid(self.gates).to(parts[0].dtype).unbind(), parts)


class Attention(nn.Module):
    """ECLARE's mix: every label weighs its parts by a softmax over all parts.

    Each part passes dropout, ReLU and its own linear map. Another linear map of all parts gives one number
    for each part. The linear maps have spectral norm 1.
    """

    def __init__(self, dim: int, parts: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.of_part = nn.ModuleList(identity_linear(dim) for _ in range(parts))
        self.together = spectral_norm(nn.Linear(parts * dim, parts))

    def forward(self, parts: list[Tensor]) -> Tensor:
        """Return one row for each label."""  # shape: P times (C, dim) -> (C, dim)
        weights = self.weights(parts).to(parts[0].dtype)
        return _weighted(torch.split(weights, 1, dim=1), parts)

    def weights(self, parts: list[Tensor]) -> Tensor:
        """Return the parts' weights, which sum to 1 for each label."""  # shape: P times (C, dim) -> (C, P)
        mapped = [
            linear(torch.relu(self.dropout(part))) for linear, part in zip(self.of_part, parts, strict=True)
        ]
        weights: Tensor = torch.softmax(self.together(torch.cat(mapped, dim=1)).float(), dim=1)
        return weights


def _weighted(weights: Iterable[Tensor], parts: list[Tensor]) -> Tensor:
    """Return the weighted sum of the parts."""  # shape: P times (C, dim) -> (C, dim)
    products = (weight * part for weight, part in zip(weights, parts, strict=True))
    return sum(products, start=next(products))


# Times are those on Docs-79K (docs/reference/systems.md). Long free rows would win the softmax of an
# attention from the first update on, and label texts would say nothing: ECLARE's rows stay about as long as
# they are.
GATED = HeadKind(("own",), GatedSum, row_values=7, slower=1.5)
ATTENTION = HeadKind(("own", "averaged"), Attention, spread=0.1, row_values=21, slower=2.6)
