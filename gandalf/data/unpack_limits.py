"""Limit the size that a compressed file may unpack to, by its own size and the memory of the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from zipfile import ZipFile

from numpy.lib import format as npy

from gandalf.errors import DataError

VARIABLE = "GANDALF_UNPACK_LIMIT"  # environment variable: a size such as 20GB, or none
LEAST_LIMIT = 64 << 20  # bytes; any file may unpack to this size
RATIO = 50  # unpacked bytes for each byte of a file; text rarely packs below a thirtieth
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def unpack_limit(size: int) -> int:
    """Return the number of bytes that a file of `size` bytes may unpack to."""
    setting = os.environ.get(VARIABLE, "")
    if setting.lower() == "none":
        return 1 << 62
    if setting:
        match = _SIZE.fullmatch(setting.strip())
        if match is None:
            raise DataError(f"{VARIABLE} is {setting[:40]!r}", remedy="write it as 20GB, or as none")
        return int(float(match[1]) * 1000 ** _UNITS[match[2].upper()])
    return min(max(LEAST_LIMIT, RATIO * size), max(LEAST_LIMIT, physical_memory() or 1 << 62))


def need_room(needed: int, path: Path, what: str = "unpacks to") -> None:
    """Raise a DataError if a file needs more memory than `unpack_limit` allows; call before allocating."""
    need_room_for(needed, path.stat().st_size, path, what)


def need_room_for(needed: int, size: int, path: Path | None, what: str) -> None:
    """Like `need_room`, for the `size` bytes of a file that were read already."""
    if needed > (most := unpack_limit(size)):
        what = f"{what} {needed / 1e9:,.1f} GB or more, and {size:,} bytes may become {most / 1e9:,.2f} GB"
        remedy = f"if you trust it, set the environment variable {VARIABLE}=none, or a size such as 20GB"
        raise DataError(what, remedy=remedy, file=path, kind="too-large")


def limit_unpacked(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yield the unpacked pieces; raise a DataError once their total is above the limit."""
    total, most = 0, unpack_limit(path.stat().st_size)
    for piece in pieces:
        total += len(piece)
        if total > most:
            need_room(total, path)
        yield piece


def check_npz(path: Path) -> None:
    """Raise an error if an array of an .npz file is larger than its entry, or all arrays exceed the limit."""
    total = 0
    with ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                shape, _, kind = _NPY_HEADERS[npy.read_magic(file)](file, max_header_size=10_000)
            size = prod(shape) * kind.itemsize
            if kind.hasobject or min(shape, default=0) < 0 or size > entry.file_size:
                raise ValueError(f"{entry.filename} is smaller than its header says")
            total += size
    need_room(total, path)


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine, or None if the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such call, or no such name
        return None
