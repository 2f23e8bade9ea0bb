"""Checkpoints that are there wholly or not at all, whatever kills the writer, and hold no pickle."""

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
# What a killed writer leaves behind: a folder half filled or half emptied, or its lock.
_LEFTOVER = re.compile(r"\.checkpoint-\d+\..*")

Saved = tuple[dict[str, Tensor], dict[str, Any]]
Shard = tuple[int, int]  # a checksum, and labels


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: numbered folders, of which the newest `keep` stay.

    A state may hold a `fingerprint` of the run it belongs to and the `config` the run was started with;
    `latest` compares them. Of several ranks each writes and reads the rows of its own labels, and the number
    of those who read need not be that of those who wrote.
    """

    folder: Path
    keep: int = 1
    ranks: Ranks = ONE

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; when this returns it is on the disk, and older ones are gone."""
        ranks, own = self.ranks, {}
        if ranks.world > 1:
            own = {name: tensor for name, tensor in tensors.items() if per_label(name)}
            tensors = {name: tensor for name, tensor in tensors.items() if name not in own}
        path = ranks.on_first(lambda: self.folder / f"checkpoint-{max(self._numbered(), default=0) + 1:06d}")
        with ExitStack() as stack:
            part = ranks.on_first(lambda: _entered(stack, path))
            shards = ranks.values_of_all(_shard(part, own, ranks)) if own else []
            if failed := [each for each in shards if isinstance(each, str)]:
                raise DataError(f"cannot be written ({failed[0]})", file=path)

            def finish() -> None:
                """Write what is left and give the folder its name: only now is it a checkpoint."""
                with _told(path):
                    _write(part, tensors, state, shards)
                    stack.close()
                    sync_path(self.folder)
                    self._clean()

            ranks.on_first(finish)

    def latest(
        self,
        fingerprint: str | None = None,
        config: Mapping[str, Any] | None = None,
        labels: int = 0,
    ) -> Saved | None:
        """The newest checkpoint that can be read, tensors on the CPU; None if there never was one.

        With a fingerprint, a checkpoint of another run is refused; with a config, by what differs. Several
        ranks are given the rows of their shares of so many `labels`.
        """
        numbered = self.ranks.on_first(self._numbered)
        own = self.ranks.share(labels) if self.ranks.world > 1 else None
        damaged: list[_DamagedError] = []
        for number in sorted(numbered, reverse=True):
            found: Saved | None = None
            problem = _DamagedError("another rank cannot read its part")
            try:
                found = _read(numbered[number], own)
            except _DamagedError as error:
                problem = error
            if self.ranks.any_rank(found is None) or found is None:
                damaged.append(problem)
                continue
            _refuse_foreign(numbered[number], found[1], fingerprint, config)
            return found
        if damaged:
            raise DataError(
                f"the checkpoint is damaged: {damaged[0]}",
                file=numbered[max(numbered)],
                remedy="delete it and start again from the beginning",
            )
        return None

    def state(self) -> dict[str, Any]:
        """The state of the newest one whose state can be read; damage is told by `latest`."""

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

    def _clean(self) -> None:
        """Remove the older checkpoints, each by one renaming first, and what killed writers left."""
        numbered = self._numbered()
        for number in sorted(numbered, reverse=True)[self.keep :]:
            path = numbered[number]
            path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old"))
        for path, _ in self._matching(_LEFTOVER):
            with suppress(OSError):
                remove(path)


def fingerprint(config: Mapping[str, Any], *parts: bytes | memoryview) -> str:
    """A hash of the settings and of whatever bytes of the data tell one run from another."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for part in parts:
        digest.update(f"|{memoryview(part).nbytes}|".encode())  # so that no byte can change sides unseen
        digest.update(part)
    return digest.hexdigest()


class _DamagedError(Exception):
    """What is wrong with the files of a checkpoint."""


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say of what cannot be written why."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be written ({reason})", file=path) from error


def _entered(stack: ExitStack, path: Path) -> Path:
    with _told(path):
        return stack.enter_context(new_folder(path))


def _shard(folder: Path, own: Mapping[str, Tensor], ranks: Ranks) -> Shard | str:
    """Write a rank's rows; what is to be known of them, or why it could not be done: for all to hear."""
    path = folder / shard_name(ranks.rank, ranks.world)
    try:
        found = write_tensors(path, own), len(next(iter(own.values())))
        sync_path(path)
    except (OSError, SafetensorError) as error:
        return str(getattr(error, "strerror", None) or error)
    return found


def _write(
    folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], shards: Sequence[Shard | str]
) -> None:
    text = json.dumps(state)
    sums = {"tensors": write_tensors(folder / TENSORS, tensors), "state": zlib.crc32(text.encode())}
    written = {"checksums": sums, "state": text, **({"shards": list(shards)} if shards else {})}
    (folder / STATE).write_text(json.dumps(written), encoding="utf-8")
    for path in (folder / TENSORS, folder / STATE, folder):
        sync_path(path)


def _read(folder: Path, own: slice | None = None) -> Saved:
    with _damage_told():
        state, tensors, shards = _read_state(folder)
        parts = overlapping(folder, [rows for _, rows in shards], own)
        wanted = {folder / TENSORS: tensors} | {part.path: shards[part.rank][0] for part in parts}
        for path, total in wanted.items():
            if checksum(path) != total:
                raise _DamagedError(f"{path.name} is not what was written")
        return read_tensors(folder / TENSORS, parts, own), state


def _read_state(folder: Path) -> tuple[dict[str, Any], int, list[Shard]]:
    """The state, the checksum of the tensors that go with it, and what is known of ranks' rows."""
    with _damage_told():
        written = json.loads((folder / STATE).read_text("utf-8"))
        sums, text, shards = written["checksums"], written["state"], written.get("shards", [])
        if zlib.crc32(text.encode()) != sums["state"]:
            raise _DamagedError(f"{STATE} is not what was written")
        return json.loads(text), sums["tensors"], shards


@contextmanager
def _damage_told() -> Iterator[None]:
    """Say of what cannot be read why."""
    try:
        yield
    except OSError as error:
        raise _DamagedError(
            f"{Path(error.filename or STATE).name} cannot be read ({error.strerror})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or none of ours
        raise _DamagedError(f"{STATE} is cut short or damaged") from error
    except SafetensorError as error:
        raise _DamagedError(f"{TENSORS} is cut short or damaged") from error


def _refuse_foreign(
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
