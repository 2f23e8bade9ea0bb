"""The one loop worth compiling: joint sums of a block of labels, kept only where they can matter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = tuple[Array, Array, Array]  # indptr, indices, data
Kernel = Callable[..., tuple[Array, Array, Array]]


def _joint_rows(
    labels: Arrays,
    points: Arrays,
    block: tuple[int, int],
    least: Array,
    room: int,
) -> tuple[Array, Array, Array]:
    """Lengths, sorted columns and joint sums of the rows of labels [first, last): entries above least[label].

    `labels` and `points` are (indptr, indices, data) of both directions; where `data` is empty every target
    is 1. `room` bounds the entries of the block.
    """
    (label_start, label_points, label_values), (point_start, point_labels, point_values) = labels, points
    first, last = block
    sums = np.zeros(len(label_start) - 1, dtype=point_values.dtype)
    met = np.empty(len(sums), dtype=point_labels.dtype)
    columns, joint = np.empty(room, dtype=point_labels.dtype), np.empty(room, dtype=point_values.dtype)
    lengths = np.zeros(last - first, dtype=np.int64)
    graded, end = len(point_values) > 0, 0
    for j in range(first, last):
        number = 0
        for a in range(label_start[j], label_start[j + 1]):
            s = label_points[a]
            for b in range(point_start[s], point_start[s + 1]):
                i = point_labels[b]
                if sums[i] == 0:
                    met[number] = i
                    number += 1
                sums[i] += label_values[a] * point_values[b] if graded else 1
        begin = end
        for i in met[:number]:
            if sums[i] > least[j]:
                columns[end] = i
                end += 1
        columns[begin:end].sort()
        for b in range(begin, end):
            joint[b] = sums[columns[b]]
        for i in met[:number]:
            sums[i] = 0
        lengths[j - first] = end - begin
    return lengths, columns[:end].copy(), joint[:end].copy()


@cache
def compiled() -> Kernel | None:
    """The loop as machine code that runs beside other threads, or None where numba is not installed."""
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return None
    try:
        kernel: Kernel = numba.njit(nogil=True, cache=True)(_joint_rows)
    except RuntimeError:  # no folder that compiled code could be kept in
        kernel = numba.njit(nogil=True)(_joint_rows)
    return kernel
