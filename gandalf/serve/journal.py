"""Keep the changes of a served model in a file; an acknowledged change survives any crash.

The file has one line for each request. A line without its end was never acknowledged, and the next writer
removes it.
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
LOCKED = 30.0  # seconds to wait for the lock of another process
LABEL_FIELDS = ("text", "id", "examples", "neighbours")  # fields of a label that are stored

log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Change:
    """The change of one request: labels and examples that it added, examples that it removed."""

    labels: tuple[NewLabel, ...] = ()
    examples: tuple[Example, ...] = ()
    removed: tuple[str, ...] = ()  # ids of removed examples that the model folder holds

    def as_record(self) -> dict[str, Any]:
        """Return the change as plain values, without empty fields."""
        found: dict[str, Any] = {}
        if self.labels:
            found["labels"] = [{name: getattr(one, name) for name in LABEL_FIELDS} for one in self.labels]
        if self.examples:
            found["examples"] = [asdict(one) for one in self.examples]
        if self.removed:
            found["removed"] = list(self.removed)
        return found

    @staticmethod
    def of(record: dict[str, Any]) -> Change:
        """Return the change of a record made by `as_record`."""
        return Change(
            tuple(NewLabel(**label) for label in record.get("labels", ())),
            tuple(Example(**example) for example in record.get("examples", ())),
            tuple(record.get("removed", ())),
        )


class Journal:
    """The changes of a file in their order; several processes may read and write the file.

    At the start, a fault of the file raises a `DataError`. Later a fault never stops predictions: `trouble`
    returns the reason why nothing can be written, and writing raises an `UnavailableError`.
    """

    def __init__(self, path: Path, model: Part) -> None:
        self._file: FileIO | None = None  # kept open, so that no other file can get its inode
        self.path, self._header = path, {"format": FORMAT, "version": 1, **_fingerprint(model)}
        self._lock = FileLock(f"{path}.lock", timeout=LOCKED)
        self._identity = (0, 0)  # device and inode of the open file
        self._damaged_line: int | None = None  # number of the first damaged line
        self._fault: str | None = None  # fault of the file as a whole, such as that it cannot be read
        self._tampering: str | None = None  # set if another program changed bytes that were read
        self._foreign: os.stat_result | None = None  # a file that took the name and is no journal
        self._bytes_read, self._bytes_seen = 0, 0  # bytes of complete lines; also those of an incomplete one
        self._lines_read, self._checksum = 0, 0  # number and checksum of the complete lines
        with self._lock:
            first = _first_line(path)
            if not first.endswith(b"\n"):  # without a complete line nothing was acknowledged
                self._create()
            elif self._record(first) != self._header:
                what = "holds labels that were added to another model, or is no such file"
                raise DataError(what, remedy="name another file with --added, or move it away", file=path)
            self._open()

    @property
    def trouble(self) -> str | None:
        """Return the reason why nothing can be written now, or None; clients see it, so it names no path."""
        fault = self._fault or self._tampering
        if fault is not None:
            return f"nothing can be added now: {fault}"
        if self._damaged_line is not None:
            where = f"line {self._damaged_line} of the journal of the server"
            return f"nothing can be added now: {where} is damaged"
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, so that no other process writes."""
        try:
            self._lock.acquire()
        except (OSError, Timeout) as error:
            log.error("%s: cannot be locked (%s)", self.path, error)
            raise UnavailableError("nothing can be added now: the journal cannot be locked") from error
        try:
            yield
        finally:
            self._lock.release()

    def is_behind(self) -> bool:
        """Return True if the file has changes that were not read yet; cheap, since predictions ask it too."""
        # First, and in this order: another thread may be adding to the file, or opening another one.
        identity, read = self._identity, self._bytes_read
        try:
            found = self.path.stat()
        except OSError as error:
            self._set_fault(_unreadable(error))
            return False
        if _identity(found) != identity:
            return self._foreign is None or _version(found) != _version(self._foreign)
        self._set_fault(SHORTER if found.st_size < read else None)
        return found.st_size > self._bytes_seen

    def read_changes(self, *, strict: bool = False) -> tuple[bool, list[Change | None]]:
        """Return the changes since the last call; None stands for a damaged line.

        The first value is True if the file was written anew. The changes then replace all earlier changes.
        With `strict`, a damaged line raises a DataError.
        """
        try:
            afresh = self._reopened()
            assert self._file is not None
            self._file.seek(self._bytes_read)
            content = self._file.read()
        except OSError as error:
            self._set_fault(_unreadable(error))
            return False, []
        self._bytes_seen = self._bytes_read + len(content)
        found = list[Change | None]()
        for line in content[: _end_of_lines(content)].splitlines(keepends=True):  # the rest is being written
            self._bytes_read, self._lines_read = self._bytes_read + len(line), self._lines_read + 1
            self._checksum = zlib.crc32(line, self._checksum)
            try:
                if self._lines_read > 1:
                    found.append(Change.of(self._record(line)))
            except DataError as error:
                if strict:
                    raise
                log.error("%s", error)
                self._damaged_line = self._damaged_line or self._lines_read
                found.append(None)
        return afresh, found

    def verify(self) -> str | None:
        """Read the file again, and return the reason why nothing can be written, or None."""
        self.is_behind()
        try:
            same = zlib.crc32(self._content()) == self._checksum
        except OSError as error:
            self._set_fault(_unreadable(error))
        else:
            self._tampering = None if same else "the journal of the server was changed by something else"
        return self.trouble

    def need_writable(self) -> None:
        """Raise an `UnavailableError` if nothing can be written. Lock and read all changes before."""
        trouble = self.verify()
        if trouble is not None:
            raise UnavailableError(trouble)

    def append(self, change: Change) -> None:
        """Write a change to the disk. Hold the lock, and call `need_writable` before."""
        line = _line(change.as_record())
        with self._as_unavailable(), open(self.path, "r+b", buffering=0) as file:
            file.truncate(self._bytes_read)  # an incomplete line was never acknowledged
            file.seek(self._bytes_read)
            try:
                _write(file, line)
            except OSError:
                with suppress(OSError):
                    file.truncate(self._bytes_read)
                raise
        self._bytes_read, self._lines_read = self._bytes_read + len(line), self._lines_read + 1
        self._bytes_seen, self._checksum = self._bytes_read, zlib.crc32(line, self._checksum)

    def remove(self, id: str) -> None:
        """Remove an example; if this file added the example, rewrite the file without it.

        Hold the lock, and call `need_writable` before.
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
        with self._as_unavailable(), written(self.path, "wb", sync=True) as file:
            for record in (self._header, *(change.as_record() for change in changes)):
                file.write(_line(record))

    def mark_damaged(self) -> None:
        """Mark the last line as damaged: its change cannot be made, so later changes may be wrong too."""
        self._damaged_line = self._damaged_line or self._lines_read

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()

    def _content(self) -> bytes:
        """Return the present bytes of the part of the file that was read before."""
        assert self._file is not None
        self._file.seek(0)
        return self._file.read(self._bytes_read) or b""

    def _open(self) -> None:
        """Open the file that has the name now, and start to read it from its beginning."""
        before, self._file = self._file, FileIO(self.path)
        self._bytes_read = self._bytes_seen = self._lines_read = self._checksum = 0
        self._damaged_line = None
        # Set last. Otherwise a predicting thread would compare the new file with numbers of the old one.
        self._identity = _identity(os.fstat(self._file.fileno()))
        if before is not None:
            before.close()

    def _reopened(self) -> bool:
        """Open another file that took the name, if it is a journal of this model; return True if so."""
        found = self.path.stat()
        if _identity(found) == self._identity:
            return False
        if not self._is_own(_first_line(self.path)):
            self._foreign = found
            self._set_fault("the journal of the server was replaced by another file")
            return False
        self._open()
        self._set_fault(None)
        return True

    def _is_own(self, first: bytes) -> bool:
        try:
            return self._record(first) == self._header
        except DataError:
            return False

    def _set_fault(self, fault: str | None) -> None:
        """Store a fault of the file, or None; log it if it is new."""
        if fault is not None and fault != self._fault:
            log.error("%s: %s", self.path, fault)
        self._fault = fault

    @contextmanager
    def _as_unavailable(self) -> Iterator[None]:
        """Turn an error of writing into an `UnavailableError`."""
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
            sync_path(self.path.parent)  # the name of a new file is on disk only when its folder is
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
            raise DataError(what, remedy=remedy, file=self.path, line=self._lines_read or None) from error
        return record


def _fingerprint(model: Part) -> dict[str, int]:
    """Return number and checksum of a model's label texts."""
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
    """Write a complete line and sync it."""
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


def _end_of_lines(content: bytes) -> int:
    """Return the end of the last complete line."""
    return content.rfind(b"\n") + 1
