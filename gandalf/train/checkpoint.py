"""Checkpoints that are there wholly or not at all, whatever kills the writer, and hold no pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gandalf.data.files import new_folder
from gandalf.errors import DataError
from gandalf.settings import differing

TENSORS, STATE = "tensors.safetensors", "state.json"
_NAME = re.compile(r"checkpoint-(\d+)")
# What a killed writer leaves behind: a folder half filled or half emptied.
_LEFTOVER = re.compile(r"\.checkpoint-\d+\..*")

Saved = tuple[dict[str, Tensor], dict[str, Any]]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: numbered folders, of which the newest `keep` stay.

    A state may hold a `fingerprint` of the run it belongs to and the `config` the run was started with;
    `latest` compares them.
    """

    folder: Path
    keep: int = 1

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; when this returns it is on the disk, and older ones are gone."""
        known = self._numbered()
        path = self.folder / f"checkpoint-{max(known, default=0) + 1:06d}"
        try:
            with new_folder(path) as part:
                _write(part, tensors, state)
            _sync(self.folder)
            self._clean()
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot be written ({reason})", file=path) from error

    def latest(self, fingerprint: str | None = None, config: Mapping[str, Any] | None = None) -> Saved | None:
        """The newest checkpoint that can be read, tensors on the CPU; None if there never was one.

        With a fingerprint, a checkpoint of another run is refused; with a config, by what differs.
        """
        numbered = self._numbered()
        damaged: list[_DamagedError] = []
        for number in sorted(numbered, reverse=True):
            try:
                tensors, state = _read(numbered[number])
            except _DamagedError as error:
                damaged.append(error)
                continue
            _refuse_foreign(numbered[number], state, fingerprint, config)
            return tensors, state
        if damaged:
            raise DataError(
                f"the checkpoint is damaged: {damaged[0]}",
                file=numbered[max(numbered)],
                remedy="delete it and start again from the beginning",
            )
        return None

    def _numbered(self) -> dict[int, Path]:
        return {int(name[1]): path for path, name in self._matching(_NAME)}

    def _matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
            name = pattern.fullmatch(path.name)
            if name and path.is_dir():
                yield path, name

    def _clean(self) -> None:
        """Remove the older checkpoints, each by one renaming first, and what killed writers left."""
        numbered = self._numbered()
        for number in sorted(numbered, reverse=True)[self.keep :]:
            path = numbered[number]
            path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old"))
        for path, _ in self._matching(_LEFTOVER):
            shutil.rmtree(path, ignore_errors=True)


def fingerprint(config: Mapping[str, Any], *parts: bytes | memoryview) -> str:
    """A hash of the settings and of whatever bytes of the data tell one run from another."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for part in parts:
        digest.update(f"|{memoryview(part).nbytes}|".encode())  # so that no byte can change sides unseen
        digest.update(part)
    return digest.hexdigest()


class _DamagedError(Exception):
    """What is wrong with the files of a checkpoint."""


def _write(folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    save_file(_apart(tensors), folder / TENSORS)
    text = json.dumps(state)
    sums = {"tensors": _checksum(folder / TENSORS), "state": zlib.crc32(text.encode())}
    (folder / STATE).write_text(json.dumps({"checksums": sums, "state": text}), encoding="utf-8")
    for path in (folder / TENSORS, folder / STATE, folder):
        _sync(path)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the order of their bytes, none in the memory of another, as the file wants them."""
    found: dict[str, Tensor] = {}
    taken = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        memory = (tensor.device, tensor.untyped_storage().data_ptr())
        found[name] = tensor.clone() if memory in taken else tensor
        taken.add(memory)
    return found


def _read(folder: Path) -> Saved:
    try:
        written = json.loads((folder / STATE).read_text("utf-8"))
        sums, text = written["checksums"], written["state"]
        if zlib.crc32(text.encode()) != sums["state"]:
            raise _DamagedError(f"{STATE} is not what was written")
        if _checksum(folder / TENSORS) != sums["tensors"]:
            raise _DamagedError(f"{TENSORS} is not what was written")
        return load_file(folder / TENSORS), json.loads(text)
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
    names = differing(before, json.loads(json.dumps(config)))
    if not names:
        raise DataError("is the checkpoint of a run on other data", file=path, remedy=remedy)
    changes = ", ".join(f"{name} was {_at(before, name)} and is {_at(config, name)}" for name in names)
    raise DataError(f"is the checkpoint of a run with other settings: {changes}", file=path, remedy=remedy)


def _at(config: Mapping[str, Any], name: str) -> str:
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return json.dumps(value)


def _checksum(path: Path) -> int:
    total = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            total = zlib.crc32(chunk, total)
    return total


def _sync(path: Path) -> None:
    """Have the file or folder on the disk, not only on its way there."""
    if path.is_dir() and os.name != "posix":
        return  # only there can a folder be opened
    number = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
