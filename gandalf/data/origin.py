"""Record in an augmented folder the data set it was made from, for use by the metrics.

Label points change label frequencies and so propensities. Metrics must use the original frequencies, or their
figures cannot be compared with published ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import write_lines
from gandalf.errors import DataError

RECORD = "gandalf.json"  # the arguments that made the folder
ONE_WAY = ("libmultilabel", "pairs")  # formats that cannot be read back, since they drop part of the data
FREQUENCIES = "label_frequencies.txt"  # label frequencies of the original set, one number a line


@dataclass(frozen=True, eq=False)
class Origin:
    """The data set that an augmented set was made from."""

    name: str
    points: int
    label_frequencies: npt.NDArray[np.int64]  # shape: (L,)
    format: str = "raw"


def write_origin(folder: Path, record: Mapping[str, Any], frequencies: npt.NDArray[np.int64]) -> None:
    """Write the record, with a list of the folder's files, and the original label frequencies."""
    write_lines(folder / FREQUENCIES, (f"{number}\n" for number in frequencies))
    files = sorted([RECORD, *(path.name for path in folder.iterdir())])
    text = json.dumps({**record, "files": files}, indent=2, ensure_ascii=False)
    write_lines(folder / RECORD, [f"{text}\n"])


def foreign_files(folder: Path) -> list[str]:
    """Return the names in the folder that its record does not list; without a record, all names."""
    record = _record(folder)
    ours = record.get("files", []) if str(record.get("made_by", "")).startswith("gandalf ") else []
    return sorted(path.name for path in folder.iterdir() if path.name not in ours)


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def read_origin(folder: Path) -> Origin | None:
    """Return the origin of an augmented folder, or None for any other folder or file."""
    record, counts = folder / RECORD, folder / FREQUENCIES
    if not record.is_file():
        return None
    try:
        facts = json.loads(record.read_text("utf-8"))
        words = counts.read_text("ascii").split()
        if not all(map(str.isdigit, words)):  # int() would accept 1_0
            raise ValueError(f"{FREQUENCIES} holds a value that is no count")
        frequencies = np.array([int(word) for word in words], dtype=np.int64)
        return Origin(str(facts["data"]), int(facts["points"]), frequencies, str(facts["format"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        what = f"does not name the origin of the folder ({error})"
        remedy = f"write the folder again with gandalf augment, or remove {RECORD}"
        raise DataError(what, remedy=remedy, file=record) from error
