"""One change of a file, drawn from a seed: odd values in JSON, odd bytes in everything else."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRIES = int(os.environ.get("FUZZ_TRIES", "25"))  # changes for each kind of folder; `make fuzz` sets more
SEED = int(os.environ.get("FUZZ_SEED", "0"))

VALUES: list[Any] = [
    None,
    5,
    -1,
    0,
    10**12,
    2**31,
    1e30,
    0.5,
    float("nan"),
    True,
    "x",
    "",
    "../x",
    [],
    [1],
    {},
]
WORDS = [
    b"",
    b"\0",
    b"\n",
    b"\r",
    b",",
    b":",
    b"\t",
    b'"',
    b"nan",
    b"1e999",
    b"9" * 30,
    b"1_0",
    b"-1",
    b"[",
    b"{}",
]
WORDS += [b"\xff", "é".encode(), "\u0661".encode(), b"null", b"999999999"]


def files_of(folder: Path, spared: tuple[str, ...] = ()) -> list[Path]:
    """Files of a folder whose change must not go unnoticed."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in spared)


@contextmanager
def changed(path: Path, dice: random.Random) -> Iterator[str]:
    """Change a file for as long as the body runs; yield what was done to it."""
    kept = path.read_bytes()
    content, what = (
        mutated_json(kept, dice)
        if path.suffix == ".json" and dice.random() < 0.8
        else mutated_bytes(kept, dice)
    )
    path.write_bytes(content)
    try:
        yield f"{path.name}: {what}"
    finally:
        path.write_bytes(kept)


def mutated_json(content: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Put an odd value in one place."""
    try:
        found = json.loads(content)
    except ValueError:
        return mutated_bytes(content, dice)
    places = list(_places(found))
    place, value = dice.choice(places), dice.choice(VALUES)
    if not place:
        return json.dumps(value).encode(), f"{value!r}"
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(found).encode(), f"{place} = {value!r}"


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*place, key))
    elif isinstance(value, list):
        for key in range(min(3, len(value))):
            yield from _places(value[key], (*place, key))


def mutated_bytes(content: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Flip bits, cut, repeat, or put an odd word in."""
    found, done = bytearray(content or b" "), []
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(found) + 1)
        end = min(len(found), at + dice.randint(0, 9))
        kind = dice.choice(["flip", "cut", "word", "end", "again"])
        if kind == "flip" and at < len(found):
            found[at] ^= 1 << dice.randrange(8)
        elif kind == "end":
            del found[at:]
        elif kind == "again":
            found[at:at] = found[at:end]
        else:
            found[at:end] = b"" if kind == "cut" else dice.choice(WORDS)
        done.append(f"{kind} at {at}")
    return bytes(found), ", ".join(done)
