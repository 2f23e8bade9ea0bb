"""One writer at a time for a file or a folder, and what writers that were killed have left of it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gandalf.errors import DataError

LOCK = ".gandalf.lock"  # in a folder whose parent cannot be written; else .NAME.lock beside what is written
PART, OLD = "part", "old"  # ends of the names of what is not finished, and of what is being replaced
RESTORE_WAIT = 10.0  # seconds that a reader waits for the writer who is about to give a folder its name
_MARK = r"[0-9a-f]{8}"
# Also the lock of a writer that was killed, and what safetensors leaves where it wrote under our name.
_LEFTOVER = re.compile(rf"\..+\.{_MARK}\.({PART}|{OLD})|\..+\.lock|\.tmp\w{{6}}")
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_held = threading.local()


def temporary_name(path: Path, end: str) -> Path:
    """Return a name beside `path` that no writer has used before."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.{end}")


def is_leftover(name: str) -> bool:
    """Return True for the name of what a writer of ours uses while it writes, and leaves if it is killed."""
    return _LEFTOVER.fullmatch(name) is not None


@contextmanager
def alone(target: Path, *, parents: bool = False, wait: float = 0.0) -> Iterator[None]:
    """Let this thread alone write a file or folder; first remove what killed writers have left of it.

    Another writer is refused, after `wait` seconds. With `parents`, missing folders around the target are
    made, and removed again if they stay empty. The system drops the lock however the process ends.
    """
    path = Path(target).resolve()
    holding: set[Path] = _held.__dict__.setdefault("paths", set())
    if path in holding:
        yield
        return
    with _locked(path, target, parents, wait):
        _tidy(path)
        holding.add(path)
        try:
            yield
        finally:
            holding.discard(path)


def put_back(path: Path) -> None:
    """Give a folder its name back if its writer was killed between taking and giving the name."""
    path = Path(path).resolve()
    if path.exists() or not path.name or not _left(path, OLD):
        return
    with suppress(DataError, OSError), alone(path, wait=RESTORE_WAIT):
        pass


@contextmanager
def _locked(path: Path, named: Path, parents: bool, wait: float) -> Iterator[None]:
    made = [each for each in path.parents if parents and not each.exists()]
    try:
        if not parents and not path.parent.is_dir():  # which the lock would make
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquired(path, wait)
    except Timeout:
        remedy = "wait until it has ended, or choose another name"
        raise DataError("another run is writing there", remedy=remedy, file=named) from None
    except FileExistsError as error:  # a file where a folder around the target should be
        raise DataError(f"cannot be written ({os.strerror(errno.ENOTDIR)})", file=named) from error
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=named) from error
    try:
        yield
    finally:
        # The name goes before the lock does: after it, this might be the file that another run has locked.
        with suppress(OSError):  # Windows removes no open file, and there filelock does it
            Path(lock.lock_file).unlink()
        lock.release()
        for each in made:
            with suppress(OSError):  # which is what keeps a folder with something in it
                each.rmdir()


def _acquired(path: Path, wait: float) -> FileLock:
    """Lock a file beside `path`, or one in it where only the folder itself can be written."""
    inside = FileLock(path / LOCK)
    if not path.name:
        inside.acquire(timeout=wait)
        return inside
    beside = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        beside.acquire(timeout=wait)
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.is_dir():
            raise
        inside.acquire(timeout=wait)
        return inside
    return beside


def _tidy(path: Path) -> None:
    """Give a folder that lost its name to a killed writer the name back, and remove what is no use."""
    if not path.name:
        return
    old = _left(path, OLD)
    with suppress(OSError):  # what cannot be removed is in nobody's way
        if old and not path.exists():
            max(old, key=lambda each: each.stat().st_mtime).rename(path)
        for each in (*_left(path, PART), *_left(path, OLD), *_left_inside(path)):
            remove(each)


def _left(path: Path, end: str) -> list[Path]:
    """Return what killed writers of this very name have left beside it."""
    name = re.compile(rf"\.{re.escape(path.name)}\.{_MARK}\.{end}")
    try:
        return [each for each in path.parent.iterdir() if name.fullmatch(each.name)]
    except OSError:
        return []


def _left_inside(path: Path) -> list[Path]:
    """Return the unfinished files in a folder that is written in place."""
    if not path.is_dir() or path.is_symlink():
        return []
    name = re.compile(rf"\..+\.{_MARK}\.{PART}")
    return [each for each in path.iterdir() if name.fullmatch(each.name)]


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
