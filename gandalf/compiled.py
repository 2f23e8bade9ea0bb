"""Loops as machine code, by the extra numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

# A check of each division for 0 would keep loops from being vectors.
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
    except RuntimeError:  # no folder to cache compiled code in
        made = numba.njit(**OPTIONS)(loop)
    return made
