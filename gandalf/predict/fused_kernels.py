"""Define the Triton kernel of exact prediction: it compares scores in registers and stores few labels."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def survivors_kernel(
    points,  # (B, dim), in low precision
    rows,  # (C, dim), rows of this block in low precision
    bias,  # (C,)
    slack,  # (C,), largest error of a score for a point of length 1
    lengths,  # (B,), lengths of the points
    thresholds,  # (B,), lowest useful score of each point
    counts,  # (B,), output: number of surviving labels
    ids,  # (B, capacity), output: surviving labels in any order
    num_points,
    num_labels,
    dim,
    first_id,  # first label of the block
    capacity,
    PROGRAMS: tl.constexpr,
    TILE_POINTS: tl.constexpr,
    TILE_LABELS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Store the labels of a block whose score may reach a point's threshold, at most `capacity` of them."""
    across = tl.cdiv(num_points, TILE_POINTS)
    tiles = across * tl.cdiv(num_labels, TILE_LABELS)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        first_point, first_label = tile % across * TILE_POINTS, tile // across * TILE_LABELS
        scores = tl.zeros((TILE_POINTS, TILE_LABELS), tl.float32)
        for deep in range(0, dim, TILE_DIM):
            left = points.load([first_point, deep])
            right = rows.load([first_label, deep])
            scores = tl.dot(left, tl.trans(right), scores, input_precision=PRECISION)
        label = first_label + tl.arange(0, TILE_LABELS)
        known = label < num_labels
        point = first_point + tl.arange(0, TILE_POINTS)
        there = point < num_points
        scores += tl.load(bias + label, mask=known, other=float("-inf"))[None, :]
        length = tl.load(lengths + point, mask=there, other=0.0)
        scores += length[:, None] * tl.load(slack + label, mask=known, other=0.0)[None, :]
        least = tl.load(thresholds + point, mask=there, other=float("inf"))
        stay = (scores >= least[:, None]) & known[None, :] & there[:, None]
        found = stay.to(tl.int32)
        number = tl.sum(found, axis=1)
        start = tl.atomic_add(counts + point, number, mask=there & (number > 0))
        place = start[:, None] + tl.cumsum(found, axis=1) - 1
        where = ids + point[:, None] * capacity + place  # a batch is small enough for 32 bits
        tl.store(where, (label + first_id)[None, :] + tl.zeros_like(found), mask=stay & (place < capacity))
