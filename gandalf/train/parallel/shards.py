"""Write and read the tensors of a checkpoint: in one file, or with one shard of rows for each rank."""

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

# Names in `Training.state`, and of the best weights so far, of tensors with a row for each label.
_PER_LABEL = re.compile(
    r"(best/)?(head/(table\.)?(rows|bias)|head/parts\.\d+\.rows|head_update/(rows|bias)\.\w+)"
)


def per_label(name: str) -> bool:
    """Return True if the tensor of that name has a row for each label."""
    return _PER_LABEL.fullmatch(name) is not None


def shard_name(rank: int, world: int) -> str:
    """Return the name of the file with a rank's rows."""
    return f"rows-{rank + 1:05d}-of-{world:05d}.safetensors"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write the tensors to a file and return its checksum."""
    save_file(separate_memory(tensors), path)
    return checksum(path)


@dataclass(frozen=True)
class ShardRange:
    """Range of rows to read from the shard of one rank."""

    path: Path
    rank: int
    rows: slice  # counted in the shard


def overlapping(folder: Path, sizes: Sequence[int], labels: slice | None) -> list[ShardRange]:
    """Return the ranges of shards, of these sizes, that hold the labels; None: all labels."""
    ranges, start = [], 0
    for rank, size in enumerate(sizes):
        labels_here = slice(0, size) if labels is None else slice(labels.start - start, labels.stop - start)
        first, last = max(labels_here.start, 0), min(labels_here.stop, size)
        if first < last:
            ranges.append(ShardRange(folder / shard_name(rank, len(sizes)), rank, slice(first, last)))
        start += size
    return ranges


def read_tensors(whole: Path, parts: Sequence[ShardRange], labels: slice | None) -> dict[str, Tensor]:
    """Read all tensors; of tensors with a row for each label only the rows of `labels` (None: all rows)."""
    if labels is None and not parts:
        return load_file(whole)
    with safe_open(whole, "pt") as file:
        tensors = {n: _read_rows(file, n, labels if per_label(n) else None) for n in file.keys()}  # noqa: SIM118
    pieces: dict[str, list[Tensor]] = {}
    for part in parts:
        with safe_open(part.path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                pieces.setdefault(name, []).append(_read_rows(file, name, part.rows))
    return tensors | {name: torch.cat(each) for name, each in pieces.items()}


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    total = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            total = zlib.crc32(chunk, total)
    return total


def _read_rows(file: Any, name: str, rows: slice | None) -> Tensor:  # noqa: ANN401  an open file has no type
    tensor: Tensor = file.get_tensor(name) if rows is None else file.get_slice(name)[rows]
    return tensor


def separate_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors that share no memory, as safetensors needs them."""
    unshared: dict[str, Tensor] = {}
    taken = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        memory = (tensor.device, tensor.untyped_storage().data_ptr())
        unshared[name] = tensor.clone() if memory in taken else tensor
        taken.add(memory)
    return unshared
