"""Compile loops over arrays to machine code with numba (an extra)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

# With the error model of Python, numba checks every division for 0, and then it cannot vectorise the loop.
OPTIONS = {"nogil": True, "error_model": "numpy"}


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any] | None:
    """Compile a loop over arrays to machine code that releases the GIL; return None without numba."""
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return None
    try:
        made: Callable[..., Any] = numba.njit(**OPTIONS, cache=True)(loop)
    except RuntimeError:  # there is no folder that can cache compiled code
        made = numba.njit(**OPTIONS)(loop)
    return made
