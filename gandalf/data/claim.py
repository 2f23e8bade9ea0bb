"""Allow one writer at a time for a file or folder, and clean up after killed writers."""

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

# Lock in a folder whose parent is read-only; otherwise the lock is .NAME.lock beside the folder.
LOCK = ".gandalf.lock"
PART, OLD = "part", "old"  # suffixes of unfinished files and folders, and of folders being replaced
RESTORE_WAIT = 10.0  # seconds that a reader waits for a writer that is renaming a folder
_MARK = r"[0-9a-f]{8}"
# Matches unfinished and old names, locks of killed writers, and temporary files of safetensors.
_LEFTOVER = re.compile(rf"\..+\.{_MARK}\.({PART}|{OLD})|\..+\.lock|\.tmp\w{{6}}")
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_held = threading.local()


def temporary_name(path: Path, end: str) -> Path:
    """Return a new name beside `path`."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.{end}")


def is_leftover(name: str) -> bool:
    """Return True for a temporary name or lock of a writer, which a killed writer leaves behind."""
    return _LEFTOVER.fullmatch(name) is not None


@contextmanager
def only_writer(target: Path, *, parents: bool = False, wait: float = 0.0) -> Iterator[None]:
    """Let only this thread write a file or folder; first remove the leftovers of killed writers.

    Another writer is refused after `wait` seconds. With `parents`, missing folders around the target are
    created, and removed again if they stay empty. The system releases the lock when the process ends in any
    way.
    """
    path = Path(target).resolve()
    holding: set[Path] = _held.__dict__.setdefault("paths", set())
    if path in holding:
        yield
        return
    with _locked(path, target, parents, wait):
        _clean_up(path)
        holding.add(path)
        try:
            yield
        finally:
            holding.discard(path)


def restore_folder(path: Path) -> None:
    """Move a folder back to its name if its writer was killed while it replaced the folder."""
    path = Path(path).resolve()
    if path.exists() or not path.name or not _leftovers(path, OLD):
        return
    with suppress(DataError, OSError), only_writer(path, wait=RESTORE_WAIT):
        pass


@contextmanager
def _locked(path: Path, named: Path, parents: bool, wait: float) -> Iterator[None]:
    made = [each for each in path.parents if parents and not each.exists()]
    try:
        if not parents and not path.parent.is_dir():  # FileLock would create the parent
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, wait)
    except Timeout:
        remedy = "wait until it has ended, or choose another name"
        raise DataError("another run is writing there", remedy=remedy, file=named) from None
    except FileExistsError as error:  # a folder around the target is a file
        raise DataError(f"cannot be written ({os.strerror(errno.ENOTDIR)})", file=named) from error
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=named) from error
    try:
        yield
    finally:
        # Remove the file before the release; after the release, another run might have locked it.
        with suppress(OSError):  # Windows cannot remove an open file; there filelock removes it
            Path(lock.lock_file).unlink()
        lock.release()
        for each in made:
            with suppress(OSError):  # rmdir fails for a folder that is not empty
                each.rmdir()


def _acquire(path: Path, wait: float) -> FileLock:
    """Lock a file beside `path`, or inside the folder `path` if its parent is read-only."""
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


def _clean_up(path: Path) -> None:
    """Restore the name of a folder that a killed writer was replacing, and remove leftovers."""
    if not path.name:
        return
    old = _leftovers(path, OLD)
    with suppress(OSError):  # a leftover that cannot be removed does no harm
        if old and not path.exists():
            max(old, key=lambda each: each.stat().st_mtime).rename(path)
        for each in (*_leftovers(path, PART), *_leftovers(path, OLD), *_leftovers_inside(path)):
            remove(each)


def _leftovers(path: Path, end: str) -> list[Path]:
    """Return the leftovers of killed writers of this name."""
    name = re.compile(rf"\.{re.escape(path.name)}\.{_MARK}\.{end}")
    try:
        return [each for each in path.parent.iterdir() if name.fullmatch(each.name)]
    except OSError:
        return []


def _leftovers_inside(path: Path) -> list[Path]:
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
