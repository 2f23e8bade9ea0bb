"""The training half, for the commands that need it: light commands start without its libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gandalf.errors import DataError


@contextmanager
def engine(purpose: str, extra: str = "train") -> Iterator[None]:
    """Say what to install where a library that the body imports is missing."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {error.name}", remedy=f"pip install 'gandalf-xmc[{extra}]'"
        ) from error


def device_of(asked: str) -> str:
    """Where to compute: `auto` is a GPU if there is one."""
    import torch

    found = torch.cuda.is_available()
    if asked == "cuda" and not found:
        raise DataError("there is no CUDA device here", remedy="leave --device out, or say --device cpu")
    return {"auto": "cuda" if found else "cpu"}.get(asked, asked)
