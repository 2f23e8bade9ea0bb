"""Times on a GPU, and the limits they are held against.

A card that works without pause draws all the power it may and lowers its clock: on an H200 a large product
begins at 770 TFLOP/s and has 660 after half a second. So a step is held against a product that was measured
in turn with it, both without pause; what a rested card does is kept beside it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Line = dict[str, Any]
Work = Callable[[int], object]
SIZE = 8_192  # of the product that is the limit
ROUNDS, SECONDS, REST = 3, 0.4, 0.5


def milliseconds(work: Work, times: int = 20, warm: int = 3) -> float:
    """Return the median time of `work(n)`, with a pause after each."""
    for number in range(warm):
        work(number)
    return statistics.median(_timed(work, 1) for _ in range(times))


def rested(work: Work) -> float:
    """Return the median time of `work(n)` on a card that has rested and is not kept busy."""
    torch.cuda.synchronize()
    time.sleep(REST)
    return milliseconds(work)


def recorded(work: Work) -> Work:
    """Return `work(0)` as a CUDA graph, which does not wait for a host to launch it."""
    work(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work(0)
    return lambda _: graph.replay()


def ceilings() -> Line:
    """Measure what a rested card does at best: a bfloat16 matrix product in TFLOP/s, a copy in TB/s."""
    product = rested(_product())
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    copy = milliseconds(lambda _: target.copy_(source), times=10)
    return {"matmul_tflops": _tflops(product), "copy_tbs": 2 * source.nbytes / copy / 1e9}


def without_pause(work: Work) -> Line:
    """Measure milliseconds of `work(n)` over and over, and TFLOP/s of a product in turn with it."""
    product, found, tops = _product(), [], []
    for _ in range(ROUNDS):
        tops.append(_tflops(_in_a_row(product)))
        found.append(_in_a_row(work))
    return {"ms": statistics.median(found), "product_tflops": statistics.median(tops)}


def _product() -> Work:
    left, right = (torch.randn(SIZE, SIZE, device="cuda").bfloat16() for _ in range(2))
    there = torch.empty_like(left)
    return lambda _: torch.mm(left, right, out=there)


def _tflops(product: float) -> float:
    return 2 * SIZE**3 / product / 1e9


def _in_a_row(work: Work) -> float:
    """Return the mean time of as many calls as fill SECONDS."""
    first = _timed(work, 3)
    return _timed(work, math.ceil(1e3 * SECONDS / first))


def _timed(work: Work, times: int) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for number in range(times):
        work(number)
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / times
