"""Labels added while a model is served, kept in a file: what was acknowledged is there after any crash.

One line for each request. A line without its end was never acknowledged, and the next writer removes it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part

FORMAT = "gandalf added labels"
KEPT = ("text", "id", "examples", "neighbours")  # of a label


class Journal:
    """The labels of a file, in the order they were added; several processes may read and write it."""

    def __init__(self, path: Path, model: Part) -> None:
        self.path, self._header = path, {"format": FORMAT, "version": 1, **_fingerprint(model)}
        self._lock = FileLock(f"{path}.lock")
        self._read = 0  # bytes
        with self.locked():
            first = _first_line(path)
            if not first.endswith(b"\n"):  # nothing was ever acknowledged
                self._write(self._header)
            elif self._line(first) != self._header:
                what = "holds labels that were added to another model, or is no such file"
                raise DataError(what, remedy="name another file with --added, or move it away", file=path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes."""
        with self._lock:
            yield

    def grown(self) -> bool:
        """Whether there is something that was not read yet, or is being written."""
        return self.path.stat().st_size > self._read

    def new(self) -> list[list[NewLabel]]:
        """What was added, by anyone, since this was last asked."""
        with open(self.path, "rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines(keepends=True)
        found = []
        for line in lines:
            if not line.endswith(b"\n"):
                break  # not yet, or never, written in full
            self._read += len(line)
            record = self._line(line)
            if record != self._header:
                found.append([NewLabel(**label) for label in record["labels"]])
        return found

    def append(self, labels: Sequence[NewLabel]) -> None:
        """Write labels; on return they are on the disk. Hold the lock, and have read what is there."""
        self._read += self._write(
            {
                "labels": [
                    {name: value for name, value in asdict(one).items() if name in KEPT} for one in labels
                ]
            }
        )

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
            _sync_folder(self.path.parent)
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=self.path) from error
        return len(line)

    def _line(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not ({"labels", "format"} & record.keys()):
                raise ValueError("no record")
        except ValueError as error:
            what = "holds a line that is no list of labels"
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


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
