"""Import the training libraries only in commands that need them, so that other commands start quickly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gandalf.errors import DataError


@contextmanager
def engine(purpose: str, extra: str = "train") -> Iterator[None]:
    """Turn a missing library in the body into a DataError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {error.name}", remedy=f"pip install 'gandalf-xmc[{extra}]'"
        ) from error


def device_of(asked: str) -> str:
    """Return "cuda" or "cpu"; `auto` is the GPU if there is one."""
    import torch

    found = torch.cuda.is_available()
    if asked == "cuda" and not found:
        raise DataError("there is no CUDA device here", remedy="leave --device out, or say --device cpu")
    return {"auto": "cuda" if found else "cpu"}.get(asked, asked)
