"""One run at a time in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gandalf.errors import DataError
from gandalf.model.layout import LOCK
from gandalf.train.ranks import Ranks


@contextmanager
def by_first(ranks: Ranks, make: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Something for the first rank alone to enter and leave; the others go on when it has entered."""
    with ExitStack() as stack:
        ranks.first(lambda: stack.enter_context(make()))
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder, made if it is not there, for this run alone; folders that it leaves empty are removed.

    The system holds the lock for the process and drops it however that ends: the file that a killed run
    leaves behind locks nobody out.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]  # and not the user's
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout:
        remedy = "wait until it has ended, or choose another OUT"
        raise DataError("another run is writing there", remedy=remedy, file=folder) from None
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=folder) from error
    try:
        yield
    finally:
        # The name goes before the lock does: after it, this might be the file that another run has locked.
        with suppress(OSError):  # Windows removes no open file, and there filelock does it
            (folder / LOCK).unlink()
        lock.release()
        for each in made:
            with suppress(OSError):  # which is what keeps a folder with something in it
                each.rmdir()
