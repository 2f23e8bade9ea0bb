"""Define the Triton kernels of the fused head: turn scores into slopes in place, and move rows by a gradient.

PyTorch computes the three matrix products between them; no kernel that we wrote was faster. Floats are always
added in the same order, so the same input gives the same output.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def slopes_kernel(
    scores,  # (C, stride), of which B are points: scores without biases, slopes times SCALE afterwards
    bias,  # (C,)
    weights,  # (B,), of points
    sums,  # (C,): of the slopes, for the biases
    losses,  # (tiles,): softplus(score) times the weight, summed
    num_labels,
    num_points,
    stride,
    SCALE: tl.constexpr,
    TILE_LABELS: tl.constexpr,
    TILE_POINTS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    WITH_LOSS: tl.constexpr,
    FAST: tl.constexpr,  # use the approximations of NVIDIA GPUs
):
    """Compute slopes without targets: sigmoid(score) times the weight. Each program has its own labels."""
    label = tl.program_id(0) * TILE_LABELS + tl.arange(0, TILE_LABELS)
    known = label < num_labels
    shift = tl.load(bias + label, mask=known, other=0.0)[:, None]
    row = scores + label.to(tl.int64)[:, None] * stride
    total = tl.zeros((TILE_LABELS, TILE_POINTS), tl.float32)
    loss = tl.zeros((TILE_LABELS, TILE_POINTS), tl.float32)
    for first in range(0, num_points, TILE_POINTS):
        point = first + tl.arange(0, TILE_POINTS)
        there = point < num_points
        inside = known[:, None] & (point < stride)[None, :]
        score = tl.load(row + point[None, :], mask=inside, other=0.0).to(tl.float32) + shift
        # Padding has no slope and no loss.
        score = tl.where(known[:, None] & there[None, :], score, float("-inf"))
        slope = _sigmoid(score * -LOG2_E, FAST)
        if WEIGHTED:
            counts = tl.load(weights + point, mask=there, other=0.0)[None, :]
            slope *= counts
        total += slope
        if WITH_LOSS:
            softplus = tl.maximum(score, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(score)))
            if WEIGHTED:
                softplus *= counts
            loss += softplus
        tl.store(row + point[None, :], (slope * SCALE).to(scores.dtype.element_ty), mask=inside)
    tl.store(sums + label, tl.sum(total, axis=1), mask=known)
    if WITH_LOSS:
        tl.store(losses + tl.program_id(0), tl.sum(tl.sum(loss, axis=1), axis=0))


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    """Return 1 / (1 + 2 ** x)."""
    if FAST:
        return tl.inline_asm_elementwise(
            "{.reg .f32 t; ex2.approx.ftz.f32 t, $1; add.f32 t, t, 0f3F800000; rcp.approx.ftz.f32 $0, t;}",
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return 1.0 / (1.0 + tl.exp2(x))


@triton.jit
def targets_kernel(
    slopes,  # (C, stride), of which B are points, times SCALE
    fixed,  # (C,), 0 at first: sums of each label's targets, as multiples of 1 / UNIT
    point,  # (K,)
    column,  # (K,)
    value,  # (K,)
    weights,  # (B,), of points
    count,
    stride,
    SCALE: tl.constexpr,
    UNIT: tl.constexpr,
    TILE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Subtract the targets from the slopes; no pair of point and label occurs twice."""
    each = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = each < count
    where = tl.load(point + each, mask=inside, other=0)
    label = tl.load(column + each, mask=inside, other=0)
    target = tl.load(value + each, mask=inside, other=0.0)
    if WEIGHTED:
        target *= tl.load(weights + where, mask=inside, other=0.0)
    place = slopes + label * stride + where
    slope = tl.load(place, mask=inside, other=0.0).to(tl.float32) - target * SCALE
    tl.store(place, slope.to(slopes.dtype.element_ty), mask=inside)
    # Programs run in any order, and whole numbers have the same sum in any order.
    tl.atomic_add(fixed + label, (target * UNIT).to(tl.int64), mask=inside, sem="relaxed")


@triton.jit(do_not_specialize=["seed"])
def move_kernel(
    gradient,  # (size,), times 1 / share
    rows,  # (size,), moved in place
    first,  # (size,), velocity or first moment, moved in place; unused by SGD without momentum
    second,  # (size,), second moment, moved in place; unused by SGD
    size,
    share,
    rate,
    momentum,
    beta2,
    decay,
    correction1,  # 1 - momentum ** steps
    correction2,  # sqrt(1 - beta2 ** steps)
    seed,  # of the rounding, different at every step and block
    TILE: tl.constexpr,
    OPTIMISER: tl.constexpr,  # sgd, momentum or adamw
):
    """Take the optimiser's step; numbers with fewer bits than float32 are rounded at random."""
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = place < size
    chance = _chance(place, seed)
    row = tl.load(rows + place, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32) * share
    if OPTIMISER == "adamw":
        one = tl.load(first + place, mask=inside, other=0.0).to(tl.float32)
        two = tl.load(second + place, mask=inside, other=0.0).to(tl.float32)
        one = one + (slope - one) * (1.0 - momentum)
        two = two * beta2 + slope * slope * (1.0 - beta2)
        row = row * (1.0 - rate * decay)
        row = row - rate / correction1 * one / (tl.sqrt(two) / correction2 + 1e-8)
        tl.store(first + place, _rounded(one, chance >> 16, first.dtype.element_ty), mask=inside)
        tl.store(second + place, _rounded(two, chance >> 8, second.dtype.element_ty), mask=inside)
    else:
        slope = slope + decay * row
        if OPTIMISER == "momentum":
            slope = momentum * tl.load(first + place, mask=inside, other=0.0).to(tl.float32) + slope
            tl.store(first + place, _rounded(slope, chance >> 16, first.dtype.element_ty), mask=inside)
        row = row - rate * slope
    tl.store(rows + place, _rounded(row, chance, rows.dtype.element_ty), mask=inside)


@triton.jit
def widen_kernel(
    rows,  # (size,), of float8
    wide,  # (size,), written
    size,
    TILE: tl.constexpr,
):
    """Copy the numbers to a type with more bits; PyTorch's copy of float8 is several times as slow."""
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = place < size
    row = tl.load(rows + place, mask=inside, other=0.0)
    tl.store(wide + place, row.to(wide.dtype.element_ty), mask=inside)


@triton.jit
def _chance(place, seed):
    """Return 32 random-looking bits for each place and seed."""
    bits = place.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _rounded(value, chance, kind: tl.constexpr):
    """Return the value as it is stored: rounded up or down at random, so that small steps are not lost.

    NaN stays NaN: all its bits are set, so adding random bits would make it 0.
    """
    if kind == tl.float32:
        return value
    elif kind == tl.float8e4nv:
        # Numbers below SMALL are as far apart as those from SMALL to 2 SMALL: shift them there and back.
        SMALL: tl.constexpr = 0.015625
        size = tl.abs(value)
        size = tl.where(size > 448.0, 448.0, size)  # the largest number of float8
        shift = tl.where(size < SMALL, SMALL, 0.0)
        bits = (size + shift).to(tl.uint32, bitcast=True) + (chance & 0xFFFFF)
        size = (bits & 0xFFF00000).to(tl.float32, bitcast=True) - shift
        signed = tl.where(value < 0, -size, size)
        return tl.where(tl.abs(value) < float("inf"), signed, value * 0.0).to(kind)  # float8 has no infinity
    else:
        LOST: tl.constexpr = 0xFFFF if kind == tl.bfloat16 else 0x1FFF  # bits that are dropped
        bits = value.to(tl.uint32, bitcast=True) + (chance & LOST)
        rounded = (bits & (0xFFFFFFFF ^ LOST)).to(tl.float32, bitcast=True)
        return tl.where(value == value, rounded, value).to(kind)
