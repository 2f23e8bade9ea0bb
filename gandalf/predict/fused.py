"""Find the exact top k on a GPU: low precision finds candidates, float32 ranks them.

The error of a bfloat16 score is at most `SLACK` times the lengths of the two vectors. If a label's score plus
this slack is below the k-th best score so far, the label cannot be among the k best. Each block of labels is
twice as large as the block before. The threshold is nearly final when the large blocks come, so about as many
labels survive in each block.
"""

from __future__ import annotations

import importlib.util
import math
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.model.exact import BATCH, BestLabels, RowBlocks, best_in_block, pair_scores, search_in_batches
from gandalf.wide.mixing import Floats, Ints

# Two roundings to 8 bits with an error of at most 2**-8 each; the product of the errors and float32 sums.
SLACK = 2**-7 + 2**-13
FIRST = 8_192  # labels that are scored in float32, for the first threshold
SURVIVORS = 8  # times k: most labels of a block that may survive for a point
TILES = (128, 128, 64)  # points, labels, dimensions; larger tiles do not fit into the registers of a core
LEAST_LABELS = 65_536  # with fewer labels the launches cost more than they save (docs/lab/gpu_log.md)


def why_not_fused(rows: Tensor) -> str | None:
    """Return the reason why the kernel cannot search these rows, or None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if rows.device.type != "cuda" or torch.cuda.get_device_capability(rows.device)[0] < 9:
        return "there is no GPU since Hopper"
    return f"vectors of {rows.shape[1]} numbers are no multiple of 8" if rows.shape[1] % 8 else None


class FusedSearch:
    """A search of all labels of a head; it holds a copy of the rows in low precision."""

    def __init__(self, head: RowBlocks, dtype: torch.dtype = torch.bfloat16) -> None:
        self.head, self.tiles, self.first = head, TILES, FIRST
        rows, bias = head.block(0, head.num_labels)
        self.low, self.bias = rows.to(dtype), bias.float()
        self.slack = rows.float().norm(dim=1) * SLACK
        if not bool(torch.isfinite(self.slack).all()):
            raise DataError("the scores are not numbers", remedy="train again: the training has diverged")
        cuda = rows.device.type == "cuda"
        self.programs = torch.cuda.get_device_properties(rows.device).multi_processor_count if cuda else 4

    def __call__(self, x: Tensor, k: int, exclude: csr_array | None) -> tuple[Ints, Floats]:
        """Return label numbers and scores like `top_k`: -1 and -inf if fewer than k labels remain."""

        def best(points: Tensor, excluded: csr_array | None) -> BestLabels:
            return self.best(points, k, excluded)

        return search_in_batches(best, x, k, exclude, BATCH)

    @torch.no_grad()
    def best(self, x: Tensor, k: int, exclude: csr_array | None = None) -> BestLabels:
        """Return numbers and scores of the k best labels of each point, ties to the smaller label."""
        x = x.to(self.low.device).float()
        spare = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        wanted = min(k + spare, self.head.num_labels)
        ends = self._block_ends(wanted)
        found = self._ranked(x, best_in_block(x, self.head, (0, ends[0]), wanted)[0], wanted)
        for block in pairwise(ends):
            found = self._with_block(x, found, block, wanted)
        return _without_excluded(*found, k, exclude)

    def _block_ends(self, wanted: int) -> list[int]:
        """Return the ends of the blocks; each block but the first is as large as all blocks before it."""
        ends = [min(max(self.first, 2 * wanted), self.head.num_labels)]
        while ends[-1] < self.head.num_labels:
            ends.append(min(2 * ends[-1], self.head.num_labels))
        return ends

    def _with_block(self, x: Tensor, found: BestLabels, block: tuple[int, int], wanted: int) -> BestLabels:
        """Return the best labels of `found` and of a block."""
        number = len(x)
        capacity = SURVIVORS * wanted
        counts = torch.zeros(number, dtype=torch.int32, device=x.device)
        ids = torch.full((number, capacity), -1, dtype=torch.int32, device=x.device)
        self._launch(x, (found[1][:, -1].contiguous(), counts, ids), block)
        most = int(counts.max())
        fits = most <= capacity  # else too many labels are alike, and the whole block is scored in float32
        new = ids[:, :most].long() if fits else best_in_block(x, self.head, block, wanted)[0]
        return self._ranked(x, torch.cat([found[0], new], dim=1), wanted)

    def _ranked(self, x: Tensor, ids: Tensor, wanted: int) -> BestLabels:
        """Return the best of these labels by their scores in float32; -1 is no label."""
        ids = torch.sort(ids, dim=1).values  # so that ties go to the smaller label
        scores = pair_scores(x, self.head, ids.clamp_min(0)).masked_fill(ids < 0, -torch.inf)
        scores, order = torch.sort(scores, dim=1, descending=True, stable=True)
        return ids.gather(1, order[:, :wanted]), scores[:, :wanted]

    def _launch(self, x: Tensor, given: tuple[Tensor, Tensor, Tensor], block: tuple[int, int]) -> None:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from gandalf.predict.fused_kernels import survivors_kernel

        thresholds, counts, ids = given
        tall, wide, deep = self.tiles
        points, rows = x.to(self.low.dtype).contiguous(), self.low[slice(*block)]
        tiles = math.ceil(len(x) / tall) * math.ceil(len(rows) / wide)
        programs = min(self.programs, tiles)
        survivors_kernel[(programs,)](
            TensorDescriptor.from_tensor(points, [tall, deep]),
            TensorDescriptor.from_tensor(rows, [wide, deep]),
            self.bias[slice(*block)],
            self.slack[slice(*block)],
            x.norm(dim=1),
            thresholds,
            counts,
            ids,
            len(x),
            len(rows),
            x.shape[1],
            block[0],
            ids.shape[1],
            PROGRAMS=programs,
            TILE_POINTS=tall,
            TILE_LABELS=wide,
            TILE_DIM=deep,
            PRECISION="ieee" if self.low.dtype == torch.float32 else "tf32",
            num_warps=8,
            num_stages=4,
        )


def _without_excluded(ids: Tensor, scores: Tensor, k: int, exclude: csr_array | None) -> BestLabels:
    """Return the first k labels of each point that are not excluded."""
    if exclude is not None and exclude.nnz:
        # Each pair of point and label becomes one number, which is searched among the excluded numbers.
        labels = exclude.shape[1]
        row = np.repeat(np.arange(exclude.shape[0]), np.diff(exclude.indptr))
        pairs = torch.from_numpy(np.sort(row * labels + exclude.indices.astype(np.int64))).to(ids.device)
        own = torch.arange(len(ids), device=ids.device)[:, None] * labels + ids
        place = torch.searchsorted(pairs, own).clamp_max(len(pairs) - 1)
        scores = scores.masked_fill(pairs[place] == own, -torch.inf)
        scores, order = torch.sort(scores, dim=1, descending=True, stable=True)
        ids = ids.gather(1, order)
    return ids[:, :k], scores[:, :k]
