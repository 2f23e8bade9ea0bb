"""An augmented folder remembers the set it was made from: metrics speak of that one, never of the copy.

Propensities and label frequencies change when label points are added; published code has got this wrong and
printed figures that compare with nobody's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.errors import DataError

RECORD = "gandalf.json"  # how the folder was made
ONE_WAY = ("libmultilabel", "pairs")  # formats that do not say all of a data set
FREQUENCIES = "label_frequencies.txt"  # training points of each label in the original set, one number a line


@dataclass(frozen=True, eq=False)
class Origin:
    """What an augmented set was made from."""

    name: str
    points: int
    label_frequencies: npt.NDArray[np.int64]  # shape: (L,)
    format: str = "raw"


def write_origin(folder: Path, record: Mapping[str, Any], frequencies: npt.NDArray[np.int64]) -> None:
    """Keep in a filled folder how it was made, D's frequencies, and the names of all that was written."""
    with written(folder / FREQUENCIES) as file:
        file.writelines(f"{number}\n" for number in frequencies)
    files = sorted([RECORD, *(path.name for path in folder.iterdir())])
    with written(folder / RECORD) as file:
        file.write(json.dumps({**record, "files": files}, indent=2, ensure_ascii=False) + "\n")


def foreign_files(folder: Path) -> list[str]:
    """Names in the folder that `write_origin` did not list: all of them where there is no record of ours."""
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
    """The origin of an augmented folder; None for any other folder or file."""
    record, counts = folder / RECORD, folder / FREQUENCIES
    if not record.is_file():
        return None
    try:
        facts = json.loads(record.read_text("utf-8"))
        words = counts.read_text("ascii").split()
        if not all(map(str.isdigit, words)):  # Python would read 1_0
            raise ValueError(f"{FREQUENCIES} holds something that is no count")
        frequencies = np.array([int(word) for word in words], dtype=np.int64)
        return Origin(str(facts["data"]), int(facts["points"]), frequencies, str(facts["format"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DataError(
            f"does not say what the folder was made from ({error})",
            remedy=f"write the folder again with gandalf augment, or remove {RECORD}",
            file=record,
        ) from error
