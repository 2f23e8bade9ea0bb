"""One run at a time in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from gandalf.data.claim import alone
from gandalf.errors import DataError
from gandalf.train.parallel.ranks import Ranks


@contextmanager
def by_first(ranks: Ranks, make: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Something for the first rank alone to enter and leave; the others go on when it has entered."""
    with ExitStack() as stack:
        ranks.on_first(lambda: stack.enter_context(make()))
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder, made if it is not there, for this run alone; folders that it leaves empty are removed."""
    if folder.exists() and not folder.is_dir():
        what = "is a file where a folder is to be written"
        raise DataError(what, remedy="choose another name", file=folder)
    made = not folder.exists()  # else it is the user's
    with alone(folder, parents=True):
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=folder) from error
        try:
            yield
        finally:
            if made:
                with suppress(OSError):  # which is what keeps a folder with something in it
                    folder.rmdir()
