"""Write and read a memory: its arrays in one file, the records of its keys in another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.files import read_lines, written
from gandalf.data.unpack_limits import check_npz
from gandalf.errors import Findings
from gandalf.memory.keys import Vectors, check_queries, read_keys
from gandalf.memory.memory import EXAMPLE, LABEL, POINT, EntryGroup, Memory, Record, Voting
from gandalf.model_folder import damaged, need_file

MEMORY = "memory"  # the kind in `config.json` and `slim.json`
INNER = "model"  # folder of the model itself, inside the folder of parts
ARRAYS, RECORDS = "memory.npz", "memory.jsonl"
KINDS = (POINT, LABEL, EXAMPLE)


def write_memory(memory: Memory, folder: Path) -> None:
    """Write a memory into an existing folder."""
    whole = reduce(EntryGroup.joined, memory.groups)
    values = whole.values
    arrays = {"labels": values.indices, "label_values": values.data, "label_ends": values.indptr}
    with written(folder / ARRAYS, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays, **whole.keys.arrays())
    with written(folder / RECORDS) as file:
        for record in whole.records:
            about = {name: value for name, value in asdict(record).items() if value is not None}
            file.write(json.dumps(about, ensure_ascii=False) + "\n")


def check_memory(memory: Memory, vectors: Vectors, folder: Path) -> None:
    """Raise a DataError unless the keys have the kind and width of the model's vectors."""
    try:
        check_queries(memory.groups[0].keys, vectors)
    except ValueError as error:
        raise damaged(f"its memory does not fit the model: {error}", folder) from error


def read_memory(folder: Path, facts: Mapping[str, Any], labels: int) -> tuple[Memory, float]:
    """Return the memory and its weight; `facts` and `labels` come from the folder's `config.json`."""
    weight, voting, number = _read_voting(facts, folder)
    records = _read_records(folder / RECORDS)
    path = folder / ARRAYS
    need_file(path)
    try:
        check_npz(path)
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            keys = read_keys(arrays)
            parts = (arrays["label_values"], arrays["labels"], arrays["label_ends"])
        values = csr_array(parts, shape=(len(keys), labels))
        values.check_format(full_check=True)
        if not (np.abs(values.data) <= 1).all():  # also False for NaN
            raise ValueError("a value does not lie between -1 and 1")
        group = EntryGroup(keys, values, records)
    except Exception as error:  # NumPy and zipfile raise errors of many types on a damaged file
        raise damaged(f"its memory cannot be read ({error})", path) from error
    if len(group) != number:
        what = f"has {len(group):,} keys, but config.json announces {number:,}"
        raise damaged(what, path)
    return Memory((group,), voting), weight


def memory_facts(memory: Memory, weight: float, reader: str | None = None) -> dict[str, Any]:
    """Return the facts for `config.json`; `reader` is the part of a mix that makes the keys."""
    voting = asdict(memory.voting)
    return {"kind": MEMORY, "weight": weight, "keys": len(memory), **voting, "reader": reader}


def _read_voting(facts: Mapping[str, Any], folder: Path) -> tuple[float, Voting, int]:
    """Return the weight, the settings of the vote and the number of keys."""
    try:
        voting = Voting(*(facts[name] for name in ("temperature", "neighbours", "doubt")))
        weight, number = float(facts["weight"]), int(facts["keys"])
    except (KeyError, TypeError, ValueError) as error:  # DataError is a ValueError
        raise damaged(f"has no valid facts of its memory ({error})", folder) from error
    if not 0 < weight <= 1:
        raise damaged(f"gives its memory the weight {weight}", folder)
    return weight, voting, number


def _read_records(path: Path) -> tuple[Record, ...]:
    need_file(path)
    found: list[Record] = []
    met: set[str | None] = set()
    for line, text in read_lines(path, Findings()):
        try:
            record = Record(**json.loads(text))
            if not isinstance(record.text, str) or not isinstance(record.id, str | None):
                raise TypeError("the text or the id is no string")
            if record.kind not in KINDS:
                raise ValueError("the kind is unknown")
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged("is not a record of a memory", path, line) from error
        if record.id is not None and record.id in met:
            raise damaged(f"the id {record.id!r} is there twice", path, line)
        met.add(record.id)
        found.append(record)
    return tuple(found)
