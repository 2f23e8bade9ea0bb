"""Triton kernels of the fused head: slopes of a block of labels, and its rows moved by them.

Matrices are met as tiles through tensor descriptors: what lies outside is read as 0 and never written, so
that no size has to fit a tile. Programs are as many as the processor has cores, and each takes tile after
tile. Nothing here adds floats in an order that changes: same numbers in, same numbers out.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def slopes_kernel(
    points,  # (B, dim)
    rows,  # (C, dim), of this block
    bias,  # (C,)
    weights,  # (B,), what points count
    out,  # (B, C): sigmoid(score) times the weight; targets are subtracted later
    sums,  # (tiles of points, C): of the slopes, for the biases
    losses,  # (tiles,): softplus(score) times the weight, summed
    num_points,
    num_labels,
    dim,
    PROGRAMS: tl.constexpr,
    TILE_POINTS: tl.constexpr,
    TILE_LABELS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VALUE: tl.constexpr,
    FULL: tl.constexpr,  # no tile hangs over the last point
    FAST: tl.constexpr,  # by the processor's own approximations, where it has some
    PRECISION: tl.constexpr,
):
    """Scores of all points with a block of labels, turned into slopes before they leave the core."""
    across = tl.cdiv(num_points, TILE_POINTS)
    tiles = across * tl.cdiv(num_labels, TILE_LABELS)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        # Points change fastest: rows are read once while all points pass by.
        first_point, first_label = tile % across * TILE_POINTS, tile // across * TILE_LABELS
        scores = tl.zeros((TILE_POINTS, TILE_LABELS), tl.float32)
        scores = add_products(scores, points, rows, first_point, first_label, dim, TILE_DIM, PRECISION)
        label = first_label + tl.arange(0, TILE_LABELS)
        known = label < num_labels
        # A label that is not there has no slope and no loss.
        shift = tl.load(bias + label, mask=known, other=float("-inf"))[None, :]
        slopes = _sigmoid(scores * -LOG2_E + shift * -LOG2_E, FAST)
        point = first_point + tl.arange(0, TILE_POINTS)
        counts = (point < num_points).to(tl.float32)
        if WEIGHTED:
            counts *= tl.load(weights + point, mask=point < num_points, other=0.0)
        if WEIGHTED or not FULL:
            slopes *= counts[:, None]
        tl.store(sums + tile % across * num_labels + label, tl.sum(slopes, axis=0), mask=known)
        if VALUE:
            scores += shift
            softplus = tl.maximum(scores, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(scores)))
            tl.store(losses + tile, tl.sum(tl.sum(softplus * counts[:, None], axis=1), axis=0))
        out.store([first_point, first_label], slopes.to(out.dtype))


@triton.jit
def add_products(  # of a tile of points and a tile of rows
    scores, points, rows, first_point, first_label, dim, TILE_DIM: tl.constexpr, PRECISION: tl.constexpr
):
    """The scores and the products of these points with these rows."""
    for place in range(0, dim, TILE_DIM):
        left = points.load([first_point, place])
        right = rows.load([first_label, place])
        scores = tl.dot(left, tl.trans(right), scores, input_precision=PRECISION)
    return scores


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    """1 / (1 + 2 ** x). What is done to every score costs as much as the product: three instructions."""
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
def update_kernel(
    slopes,  # (B, C)
    points,  # (B, dim)
    rows,  # (C, dim), moved in place
    first,  # (C, dim), velocity or first moment, moved in place
    second,  # (C, dim), second moment, moved in place; unused by SGD
    num_points,
    num_labels,
    dim,
    share,  # 1 / number of points
    rate,
    momentum,
    beta2,
    decay,
    correction1,  # 1 - momentum ** steps
    correction2,  # sqrt(1 - beta2 ** steps)
    seed,  # of the rounding, another at every step and block
    PROGRAMS: tl.constexpr,
    TILE_LABELS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_POINTS: tl.constexpr,
    OPTIMISER: tl.constexpr,  # sgd, momentum or adamw
    PRECISION: tl.constexpr,
):
    """Gradient of a block of rows, and the optimiser's step while the gradient is still in the core."""
    across = tl.cdiv(dim, TILE_DIM)
    tiles = across * tl.cdiv(num_labels, TILE_LABELS)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        label, place = tile // across * TILE_LABELS, tile % across * TILE_DIM
        gradient = tl.zeros((TILE_LABELS, TILE_DIM), tl.float32)
        for point in range(0, num_points, TILE_POINTS):
            left = slopes.load([point, label])
            right = points.load([point, place])
            gradient = tl.dot(tl.trans(left), right, gradient, input_precision=PRECISION)
        # A quarter at a time: rows and state of a whole tile would not fit beside its gradient.
        constants = (share, rate, momentum, beta2, decay, correction1, correction2, seed, dim)
        table = (rows, first, second)
        one, two = _halves(gradient, TILE_LABELS, TILE_DIM)
        one, other = _halves(one, TILE_LABELS, TILE_DIM // 2)
        _move(one, table, label, place, constants, OPTIMISER)
        _move(other, table, label, place + TILE_DIM // 4, constants, OPTIMISER)
        one, other = _halves(two, TILE_LABELS, TILE_DIM // 2)
        _move(one, table, label, place + TILE_DIM // 2, constants, OPTIMISER)
        _move(other, table, label, place + TILE_DIM // 2 + TILE_DIM // 4, constants, OPTIMISER)


@triton.jit
def _halves(tile, TALL: tl.constexpr, WIDE: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, (TALL, 2, WIDE // 2)), (0, 2, 1)))


@triton.jit
def _move(gradient, table, label, place, constants, OPTIMISER: tl.constexpr):
    """Move the part of the rows that begins at this label and place by its gradient."""
    rows, first, second = table
    share, rate, momentum, beta2, decay, correction1, correction2, seed, dim = constants
    chance = _chance(label, place, dim, seed, gradient.shape[0], gradient.shape[1])
    row = rows.load([label, place]).to(tl.float32)
    gradient = gradient * share
    if OPTIMISER == "adamw":
        one = first.load([label, place]).to(tl.float32)
        two = second.load([label, place]).to(tl.float32)
        one = one + (gradient - one) * (1.0 - momentum)
        two = two * beta2 + gradient * gradient * (1.0 - beta2)
        row = row * (1.0 - rate * decay)
        row = row - rate / correction1 * one / (tl.sqrt(two) / correction2 + 1e-8)
        first.store([label, place], _rounded(one, chance >> 16, first.dtype))
        second.store([label, place], _rounded(two, chance >> 8, second.dtype))
    else:
        gradient = gradient + decay * row
        if OPTIMISER == "momentum":
            gradient = momentum * first.load([label, place]).to(tl.float32) + gradient
            first.store([label, place], _rounded(gradient, chance >> 16, first.dtype))
        row = row - rate * gradient
    rows.store([label, place], _rounded(row, chance, rows.dtype))


@triton.jit
def _chance(label, place, dim, seed, TALL: tl.constexpr, WIDE: tl.constexpr):
    """32 bits for each place of a tile that look random, others for each seed."""
    down, along = label + tl.arange(0, TALL), place + tl.arange(0, WIDE)
    where = down.to(tl.uint32)[:, None] * dim.to(tl.uint32) + along.to(tl.uint32)[None, :]
    bits = where * 0x9E3779B1 + seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def _rounded(value, chance, DTYPE: tl.constexpr):
    """The value as it is stored: bfloat16 up or down by chance, so that small steps are not lost."""
    if tl.bfloat16 == DTYPE:
        bits = value.to(tl.uint32, bitcast=True) + (chance & 0xFFFF)
        return (bits & 0xFFFF0000).to(tl.float32, bitcast=True).to(tl.bfloat16)
    else:
        return value.to(DTYPE)
