"""The tensors of a checkpoint in files: whole, or those with a row for each label cut over ranks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

# Of what `Training.state` gives, and of the best weights so far, those that have a row for each label.
_PER_LABEL = re.compile(
    r"(best/)?(head/(table\.)?(rows|bias)|head/parts\.\d+\.rows|head_update/(rows|bias)\.\w+)"
)


def per_label(name: str) -> bool:
    """Whether the tensor of that name in a checkpoint has a row for each label."""
    return _PER_LABEL.fullmatch(name) is not None


def shard_name(rank: int, world: int) -> str:
    """The file of a rank's rows."""
    return f"rows-{rank + 1:05d}-of-{world:05d}.safetensors"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write a file; its checksum."""
    save_file(_apart(tensors), path)
    return checksum(path)


@dataclass(frozen=True)
class Part:
    """What is wanted of a rank's file."""

    path: Path
    rank: int
    rows: slice  # of the file


def overlapping(folder: Path, sizes: Sequence[int], own: slice | None) -> list[Part]:
    """Files of ranks with so many labels each that hold some of `own`; None: all of them."""
    found, start = [], 0
    for rank, size in enumerate(sizes):
        first, last = (0, size) if own is None else (max(own.start - start, 0), min(own.stop - start, size))
        if first < last:
            found.append(Part(folder / shard_name(rank, len(sizes)), rank, slice(first, last)))
        start += size
    return found


def read_tensors(whole: Path, parts: Sequence[Part], own: slice | None) -> dict[str, Tensor]:
    """All tensors, and of those with a row for each label the rows of `own`; None: all rows."""
    if own is None and not parts:
        return load_file(whole)
    with safe_open(whole, "pt") as file:
        found = {name: _rows(file, name, own if per_label(name) else None) for name in file.keys()}  # noqa: SIM118
    pieces: dict[str, list[Tensor]] = {}
    for part in parts:
        with safe_open(part.path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                pieces.setdefault(name, []).append(_rows(file, name, part.rows))
    return found | {name: torch.cat(each) for name, each in pieces.items()}


def checksum(path: Path) -> int:
    """Of a file's bytes."""
    total = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            total = zlib.crc32(chunk, total)
    return total


def _rows(file: Any, name: str, rows: slice | None) -> Tensor:  # noqa: ANN401  an open file has no type
    found: Tensor = file.get_tensor(name) if rows is None else file.get_slice(name)[rows]
    return found


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
