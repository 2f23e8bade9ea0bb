"""What was added while a model is served, kept in a file: what was acknowledged is there after any crash.

One line for each request. A line without its end was never acknowledged, and the next writer removes it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from gandalf.data.files import sync_path, written
from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part

FORMAT = "gandalf added labels"
RECORDS = {"format", "labels", "examples", "removed"}  # a line has at least one of these
KEPT = ("text", "id", "examples", "neighbours")  # of a label


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
    """The changes of a file in their order; several processes may read and write it."""

    def __init__(self, path: Path, model: Part) -> None:
        self.path, self._header = path, {"format": FORMAT, "version": 1, **_fingerprint(model)}
        self._lock = FileLock(f"{path}.lock")
        self._read = 0  # bytes
        self._file: BinaryIO | None = None  # that so much was read of
        self._identity = (0, 0)  # its device and inode
        with self.locked():
            first = _first_line(path)
            if not first.endswith(b"\n"):  # nothing was ever acknowledged
                self._write(self._header)
            elif self._line(first) != self._header:
                what = "holds labels that were added to another model, or is no such file"
                raise DataError(what, remedy="name another file with --added, or move it away", file=path)
            self._open()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes."""
        with self._lock:
            yield

    def grown(self) -> bool:
        """Return True if there is something that was not read yet, or is being written."""
        return self.path.stat().st_size > self._read or self._is_replaced()

    def _is_replaced(self) -> bool:
        """Return True if the file is another one than was read so far; a thread that predicts asks too."""
        found = self.path.stat()
        return (found.st_dev, found.st_ino) != self._identity

    def _open(self) -> None:
        """Hold the file that is there now: while it is open, its inode goes to no other file."""
        before, self._file = self._file, open(self.path, "rb")  # noqa: SIM115  for as long as it is read
        found = os.fstat(self._file.fileno())
        self._identity = (found.st_dev, found.st_ino)
        if before is not None:
            before.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()

    def new(self) -> tuple[bool, list[Change]]:
        """Return what anyone changed since this was last asked.

        True with it: an example was removed, so the file was written anew; the changes are all there are, and
        stand in place of those that were returned before.
        """
        afresh = self._is_replaced()
        if afresh:
            self._open()
            self._read = 0
        assert self._file is not None
        self._file.seek(self._read)
        lines = self._file.read().splitlines(keepends=True)
        found = []
        for line in lines:
            if not line.endswith(b"\n"):
                break  # not yet, or never, written in full
            self._read += len(line)
            record = self._line(line)
            if record != self._header:
                found.append(Change.of(record))
        return afresh, found

    def append(self, change: Change) -> None:
        """Write a change; on return it is on the disk. Hold the lock, and have read what is there."""
        self._read += self._write(change.as_record())

    def remove(self, id: str) -> None:
        """Remove an example: of one that was added here nothing is left in the file. Hold the lock."""
        changes, found = list[Change](), False
        content = self.path.read_bytes()
        for line in content[: _whole(content)].splitlines()[1:]:  # what was cut short was never acknowledged
            change = Change.of(self._line(line))
            kept = tuple(example for example in change.examples if example.id != id)
            found = found or len(kept) < len(change.examples)
            if change.labels or kept or change.removed:
                changes.append(replace(change, examples=kept))
        if not found:
            self.append(Change(removed=(id,)))
            return
        with written(self.path, sync=True) as file:
            for record in (self._header, *(change.as_record() for change in changes)):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _write(self, record: dict[str, Any]) -> int:
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        try:
            with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
                end = _whole(file.read())
                file.truncate(end)
                file.seek(end)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            sync_path(self.path.parent)  # a new file's name is on the disk only when its folder is
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=self.path) from error
        return len(line)

    def _line(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not (RECORDS & record.keys()):
                raise ValueError("no record")
        except ValueError as error:
            what = "holds a line that is no change of a model"
            raise DataError(what, remedy="move it away, or remove that line", file=self.path) from error
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


def _whole(content: bytes) -> int:
    return content.rfind(b"\n") + 1
