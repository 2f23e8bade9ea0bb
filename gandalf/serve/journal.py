"""What was added while a model is served, kept in a file: what was acknowledged is there after any crash.

One line for each request. A line without its end was never acknowledged, and the next writer removes it.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gandalf.data.files import NO_ROOM, sync_path, written
from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.serve.limits import FullError, UnavailableError

FORMAT = "gandalf added labels"
RECORDS = {"format", "labels", "examples", "removed"}  # a line has at least one of these
SHORTER = "the journal of the server is shorter than it was"
LOCKED = 30.0  # seconds that another process may take to write
KEPT = ("text", "id", "examples", "neighbours")  # of a label

log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Change:
    """What one request changed: labels and examples that it added, examples that it removed."""

    labels: tuple[NewLabel, ...] = ()
    examples: tuple[Example, ...] = ()
    removed: tuple[str, ...] = ()  # ids of examples that the model's own folder holds

    def as_record(self) -> dict[str, Any]:
        """Return plain values; what is empty is left out."""
        found: dict[str, Any] = {}
        if self.labels:
            found["labels"] = [
                {name: value for name, value in asdict(one).items() if name in KEPT} for one in self.labels
            ]
        if self.examples:
            found["examples"] = [asdict(one) for one in self.examples]
        if self.removed:
            found["removed"] = list(self.removed)
        return found

    @staticmethod
    def of(record: dict[str, Any]) -> Change:
        """Return the change that `as_record` gave."""
        return Change(
            tuple(NewLabel(**label) for label in record.get("labels", ())),
            tuple(Example(**example) for example in record.get("examples", ())),
            tuple(record.get("removed", ())),
        )


class Journal:
    """The changes of a file in their order; several processes may read and write it.

    What goes wrong with the file at the start is a `DataError`. Later it never keeps anyone from reading:
    `trouble` says why nothing can be written, and writing raises an `UnavailableError`.
    """

    def __init__(self, path: Path, model: Part) -> None:
        self._file: FileIO | None = None  # held open: so long, its inode goes to no other file
        self.path, self._header = path, {"format": FORMAT, "version": 1, **_fingerprint(model)}
        self._lock = FileLock(f"{path}.lock", timeout=LOCKED)
        self._identity = (0, 0)  # of that file: device and inode
        self._bad: int | None = None  # the first line of it that is no change
        self._wrong: str | None = None  # what is wrong with the file as a whole
        self._changed: str | None = None  # that what was read of it is not there any more
        self._ignored: os.stat_result | None = None  # another file under its name that is no journal
        self._read, self._seen = 0, 0  # bytes of it that were taken in, and those that were looked at
        self._lines, self._mark = 0, 0  # of what was taken in: its lines and their checksum
        with self._lock:
            first = _first_line(path)
            if not first.endswith(b"\n"):  # nothing was ever acknowledged
                self._create()
            elif self._record(first) != self._header:
                what = "holds labels that were added to another model, or is no such file"
                raise DataError(what, remedy="name another file with --added, or move it away", file=path)
            self._open()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written now, without saying where the file is."""
        wrong = self._wrong or self._changed
        if wrong is not None:
            return f"nothing can be added now: {wrong}"
        if self._bad is not None:
            return f"nothing can be added now: line {self._bad} of the journal of the server is damaged"
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes."""
        try:
            self._lock.acquire()
        except (OSError, Timeout) as error:
            log.error("%s: cannot be locked (%s)", self.path, error)
            raise UnavailableError("nothing can be added now: the journal cannot be locked") from error
        try:
            yield
        finally:
            self._lock.release()

    def behind(self) -> bool:
        """Return True if there is something that was not read yet; a thread that predicts asks too."""
        try:
            found = self.path.stat()
        except OSError as error:
            self._say(_unreadable(error))
            return False
        if _identity(found) != self._identity:
            return self._ignored is None or _version(found) != _version(self._ignored)
        self._say(SHORTER if found.st_size < self._read else None)
        return found.st_size > self._seen

    def new(self, *, strict: bool = False) -> tuple[bool, list[Change | None]]:
        """Return what anyone changed since this was last asked; None stands for a line that is no change.

        True with it: the file was written anew; the changes are all there are, and stand in place of those
        that were returned before. `strict` refuses a line that is no change.
        """
        try:
            afresh = self._reopened()
            assert self._file is not None
            self._file.seek(self._read)
            content = self._file.read()
        except OSError as error:
            self._say(_unreadable(error))
            return False, []
        self._seen = self._read + len(content)
        found = list[Change | None]()
        for line in content[: _whole(content)].splitlines(keepends=True):  # the rest may be under way
            self._read, self._lines = self._read + len(line), self._lines + 1
            self._mark = zlib.crc32(line, self._mark)
            try:
                if self._lines > 1:
                    found.append(Change.of(self._record(line)))
            except DataError as error:
                if strict:
                    raise
                log.error("%s", error)
                self._bad = self._bad or self._lines
                found.append(None)
        return afresh, found

    def verify(self) -> str | None:
        """Return why nothing can be written, also if something else has changed what was read."""
        self.behind()
        try:
            same = zlib.crc32(self._content()) == self._mark
        except OSError as error:
            self._say(_unreadable(error))
        else:
            self._changed = None if same else "the journal of the server was changed by something else"
        return self.trouble

    def check(self) -> None:
        """Raise an error if nothing can be written. Hold the lock, and have read what is there."""
        trouble = self.verify()
        if trouble is not None:
            raise UnavailableError(trouble)

    def append(self, change: Change) -> None:
        """Write a change; on return it is on the disk. Hold the lock, and have checked the file."""
        line = _line(change.as_record())
        with self._written(), open(self.path, "r+b", buffering=0) as file:
            file.truncate(self._read)  # what was cut short was never acknowledged
            file.seek(self._read)
            try:
                _write(file, line)
            except OSError:
                with suppress(OSError):
                    file.truncate(self._read)
                raise
        self._read, self._lines = self._read + len(line), self._lines + 1
        self._seen, self._mark = self._read, zlib.crc32(line, self._mark)

    def remove(self, id: str) -> None:
        """Remove an example: of one that was added here nothing is left in the file.

        Hold the lock, and have checked the file.
        """
        changes, found = list[Change](), False
        for line in self._content().splitlines()[1:]:
            change = Change.of(self._record(line))
            kept = tuple(example for example in change.examples if example.id != id)
            found = found or len(kept) < len(change.examples)
            if change.labels or kept or change.removed:
                changes.append(replace(change, examples=kept))
        if not found:
            self.append(Change(removed=(id,)))
            return
        with self._written(), written(self.path, "wb", sync=True) as file:
            for record in (self._header, *(change.as_record() for change in changes)):
                file.write(_line(record))

    def spoilt(self) -> None:
        """Note that a change that was read cannot be made: then the next ones may not mean what they say."""
        self._bad = self._bad or self._lines

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()

    def _content(self) -> bytes:
        """Return what was read, as it is in the file now."""
        assert self._file is not None
        self._file.seek(0)
        return self._file.read(self._read) or b""

    def _open(self) -> None:
        """Hold the file that is there now, without having read anything of it."""
        before, self._file = self._file, FileIO(self.path)
        self._read, self._seen, self._lines, self._mark, self._bad = 0, 0, 0, 0, None
        # At last: a thread that predicts would compare the new file with what was read of the old one.
        self._identity = _identity(os.fstat(self._file.fileno()))
        if before is not None:
            before.close()

    def _reopened(self) -> bool:
        """Turn to another file under the name, if it is a journal of this model."""
        found = self.path.stat()
        if _identity(found) == self._identity:
            return False
        if not self._is_own(_first_line(self.path)):
            self._ignored = found
            self._say("the journal of the server was replaced by another file")
            return False
        self._open()
        self._say(None)
        return True

    def _is_own(self, first: bytes) -> bool:
        try:
            return self._record(first) == self._header
        except DataError:
            return False

    def _say(self, wrong: str | None) -> None:
        """Keep what is wrong with the file; its first time is logged."""
        if wrong is not None and wrong != self._wrong:
            log.error("%s: %s", self.path, wrong)
        self._wrong = wrong

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DataError) as error:
            log.error("%s: cannot be written (%s)", self.path, error)
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in NO_ROOM:
                raise FullError("nothing can be added now: the disk of the server is full") from error
            raise UnavailableError("nothing can be added now: the journal cannot be written") from error

    def _create(self) -> None:
        try:
            with open(self.path, "wb", buffering=0) as file:
                _write(file, _line(self._header))
            sync_path(self.path.parent)  # a new file's name is on the disk only when its folder is
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=self.path) from error

    def _record(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not (RECORDS & record.keys()):
                raise ValueError("no record")
            Change.of(record)
        except (ValueError, TypeError) as error:
            what, remedy = "holds a line that is no change of a model", "move it away, or remove that line"
            raise DataError(what, remedy=remedy, file=self.path, line=self._lines or None) from error
        return record


def _fingerprint(model: Part) -> dict[str, int]:
    """What tells a model's labels from another's."""
    mark = 0
    for text in model.label_texts:
        mark = zlib.crc32(text.encode("utf-8", "replace") + b"\n", mark)
    return {"model_labels": model.num_labels, "model_mark": mark}


def _first_line(path: Path) -> bytes:
    if not path.exists():
        return b""
    with open(path, "rb") as file:
        return file.readline()


def _write(file: FileIO, line: bytes) -> None:
    """Write a line whole and sync it."""
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def _unreadable(error: OSError) -> str:
    return f"the journal of the server cannot be read ({error.strerror})"


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _version(found: os.stat_result) -> tuple[int, int, int, int]:
    return *_identity(found), found.st_size, found.st_mtime_ns


def _whole(content: bytes) -> int:
    return content.rfind(b"\n") + 1
