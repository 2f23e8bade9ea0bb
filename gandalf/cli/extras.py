"""Name the extra to install when a command needs a library that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gandalf.errors import DataError


@contextmanager
def needs_extra(purpose: str, extra: str = "train") -> Iterator[None]:
    """Turn a missing library in the body into a DataError that says what to install.

    Commands import these libraries only where they use them, so that other commands start quickly.
    """
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {error.name}", remedy=f"pip install 'gandalf-xmc[{extra}]'"
        ) from error
