"""Write and read checkpoints, which are complete or absent, even after a kill, and hold no pickle."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from gandalf.data.claim import remove
from gandalf.data.files import new_folder, sync_path
from gandalf.errors import DataError
from gandalf.settings import changes
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.train.parallel.shards import (
    checksum,
    overlapping,
    per_label,
    read_tensors,
    shard_name,
    write_tensors,
)

TENSORS, STATE = "tensors.safetensors", "state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
# Folders that a killed writer was filling or emptying, and their locks.
_LEFTOVER = re.compile(r"\.checkpoint-\d+\..*")

Saved = tuple[dict[str, Tensor], dict[str, Any]]
Shard = tuple[int, int]  # checksum and number of labels


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: numbered folders, of which the newest `keep` stay.

    A state may hold the `fingerprint` and the `config` of its run, which `latest` compares. Each of several
    ranks writes and reads its shard of the labels. The number of ranks may change between writing and
    reading.
    """

    folder: Path
    keep: int = 1
    ranks: Ranks = ONE

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint to the disk, then remove older checkpoints."""
        ranks, rows = self.ranks, {}
        if ranks.world > 1:
            rows = {name: tensor for name, tensor in tensors.items() if per_label(name)}
            tensors = {name: tensor for name, tensor in tensors.items() if name not in rows}
        path = ranks.on_first(lambda: self.folder / f"checkpoint-{max(self._numbered(), default=0) + 1:06d}")
        with ExitStack() as stack:
            part = ranks.on_first(lambda: _open_folder(stack, path))
            shards = ranks.values_of_all(_write_shard(part, rows, ranks)) if rows else []
            if failed := [each for each in shards if isinstance(each, str)]:
                raise DataError(f"cannot be written ({failed[0]})", file=path)

            def finish() -> None:
                """Write the other files and give the folder its name, which makes it a checkpoint."""
                with _name_write_errors(path):
                    _write(part, tensors, state, shards)
                    stack.close()
                    sync_path(self.folder)
                    self._remove_old()

            ranks.on_first(finish)

    def latest(
        self,
        fingerprint: str | None = None,
        config: Mapping[str, Any] | None = None,
        labels: int = 0,
    ) -> Saved | None:
        """Return the newest readable checkpoint, with tensors on the CPU; None if there is no checkpoint.

        Given a fingerprint, refuse a checkpoint of another run; given a config, name the settings that
        differ. Each of several ranks gets the rows of its shard of `labels`.
        """
        numbered = self.ranks.on_first(self._numbered)
        shard = self.ranks.share(labels) if self.ranks.world > 1 else None
        damaged: list[_DamagedError] = []
        for number in sorted(numbered, reverse=True):
            saved: Saved | None = None
            problem = _DamagedError("another rank cannot read its part")
            try:
                saved = _read(numbered[number], shard)
            except _DamagedError as error:
                problem = error
            if self.ranks.any_rank(saved is None) or saved is None:
                damaged.append(problem)
                continue
            _refuse_other_run(numbered[number], saved[1], fingerprint, config)
            return saved
        if damaged:
            raise DataError(
                f"the checkpoint is damaged: {damaged[0]}",
                file=numbered[max(numbered)],
                remedy="delete it and start again from the beginning",
            )
        return None

    def state(self) -> dict[str, Any]:
        """Return the newest readable state, or {}; only `latest` reports damage."""

        def read() -> dict[str, Any]:
            for _, path in sorted(self._numbered().items(), reverse=True):
                with suppress(_DamagedError):
                    return _read_state(path)[0]
            return {}

        return self.ranks.on_first(read)

    def _numbered(self) -> dict[int, Path]:
        return {int(name[1]): path for path, name in self._matching(_NAME) if path.is_dir()}

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
            if name := pattern.fullmatch(path.name):
                yield path, name

    def _remove_old(self) -> None:
        """Remove older checkpoints, renamed first, and what killed writers left."""
        numbered = self._numbered()
        for number in sorted(numbered, reverse=True)[self.keep :]:
            path = numbered[number]
            path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old"))
        for path, _ in self._matching(_LEFTOVER):
            with suppress(OSError):
                remove(path)


def fingerprint(config: Mapping[str, Any], *parts: bytes | memoryview) -> str:
    """Return a hash of the settings, and of bytes of the data, that distinguishes runs."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for part in parts:
        digest.update(
            f"|{memoryview(part).nbytes}|".encode()
        )  # so that a byte that moves to another part changes the hash
        digest.update(part)
    return digest.hexdigest()


class _DamagedError(Exception):
    """A checkpoint has damaged or missing files."""


@contextmanager
def _name_write_errors(path: Path) -> Iterator[None]:
    """Turn a failed write in the body into a `DataError` with the reason."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be written ({reason})", file=path) from error


def _open_folder(stack: ExitStack, path: Path) -> Path:
    with _name_write_errors(path):
        return stack.enter_context(new_folder(path))


def _write_shard(folder: Path, rows: Mapping[str, Tensor], ranks: Ranks) -> Shard | str:
    """Write a rank's rows; return the facts about them, or the reason of a failure, for all ranks."""
    path = folder / shard_name(ranks.rank, ranks.world)
    try:
        shard = write_tensors(path, rows), len(next(iter(rows.values())))
        sync_path(path)
    except (OSError, SafetensorError) as error:
        return str(getattr(error, "strerror", None) or error)
    return shard


def _write(
    folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], shards: Sequence[Shard | str]
) -> None:
    text = json.dumps(state)
    sums = {"tensors": write_tensors(folder / TENSORS, tensors), "state": zlib.crc32(text.encode())}
    written = {"checksums": sums, "state": text, **({"shards": list(shards)} if shards else {})}
    (folder / STATE).write_text(json.dumps(written), encoding="utf-8")
    for path in (folder / TENSORS, folder / STATE, folder):
        sync_path(path)


def _read(folder: Path, shard: slice | None = None) -> Saved:
    with _name_damage():
        state, tensors, shards = _read_state(folder)
        parts = overlapping(folder, [rows for _, rows in shards], shard)
        checksums = {folder / TENSORS: tensors} | {part.path: shards[part.rank][0] for part in parts}
        for path, total in checksums.items():
            if checksum(path) != total:
                raise _DamagedError(f"{path.name} is not what was written")
        return read_tensors(folder / TENSORS, parts, shard), state


def _read_state(folder: Path) -> tuple[dict[str, Any], int, list[Shard]]:
    """Return the state, the checksum of its tensors, and the facts about shards."""
    with _name_damage():
        written = json.loads((folder / STATE).read_text("utf-8"))
        sums, text, shards = written["checksums"], written["state"], written.get("shards", [])
        if zlib.crc32(text.encode()) != sums["state"]:
            raise _DamagedError(f"{STATE} is not what was written")
        return json.loads(text), sums["tensors"], shards


@contextmanager
def _name_damage() -> Iterator[None]:
    """Turn a failed read in the body into a `_DamagedError` with the reason."""
    try:
        yield
    except OSError as error:
        raise _DamagedError(
            f"{Path(error.filename or STATE).name} cannot be read ({error.strerror})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or not ours
        raise _DamagedError(f"{STATE} is cut short or damaged") from error
    except SafetensorError as error:
        raise _DamagedError(f"{TENSORS} is cut short or damaged") from error


def _refuse_other_run(
    path: Path, state: Mapping[str, Any], fingerprint: str | None, config: Mapping[str, Any] | None
) -> None:
    if fingerprint is None or state.get("fingerprint") == fingerprint:
        return
    remedy = "start again without resuming, or in another folder"
    before = state.get("config")
    if config is None or not isinstance(before, Mapping):
        raise DataError("is the checkpoint of another run", file=path, remedy=remedy)
    changed = changes(before, config)
    if not changed:
        raise DataError("is the checkpoint of a run on other data", file=path, remedy=remedy)
    raise DataError(f"is the checkpoint of a run with other settings: {changed}", file=path, remedy=remedy)
