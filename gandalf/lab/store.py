"""Keep results on disk: a line for each run, its best labels, and which study wants the run.

results.jsonl holds the lines; one that was written for other data of the same name counts for nothing.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.lab.variants import Run

Line = dict[str, Any]
LineOrError = Line | str  # the line of a run, or why the run failed
RESULTS, PLAN, FACTS = "results.jsonl", "plan.json", "facts.json"
PREDICTIONS, FIRST_STAGES = "predictions", "first-stages"  # folders
NEEDED = {"key", "run", "name", "figures", "steps", "recipe"}  # of a line
PLACES = 10  # labels kept of each test point, its filter applied


@dataclass(frozen=True)
class StudyRun:
    """A row of a study's table, and one of its runs."""

    study: str
    row: str
    run: Run
    base: tuple[str, ...] = ()  # settings that all rows of its table have


def read_lines(*paths: Path) -> list[Line]:
    """Return the last line of each run in these files; leave out lines that were cut short."""
    found: dict[str, Line] = {}
    for path in paths:
        for number, text in enumerate(path.read_text("utf-8").splitlines() if path.exists() else (), start=1):
            with suppress(json.JSONDecodeError):
                line = json.loads(text)
                if not isinstance(line, dict) or not line.keys() >= NEEDED:
                    what = "is no line of results"
                    raise DataError(what, remedy="remove it, or name another folder", file=path, line=number)
                found[line["key"]] = line
    return list(found.values())


def append(path: Path, line: Line) -> None:
    """Append a line and flush it to disk; a line that was cut short before stays by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        start = "" if file.read(1) in (b"", b"\n") else "\n"
        file.write(f"{start}{json.dumps(line)}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def stored_lines(folder: Path) -> list[Line]:
    """Return all lines of a folder of runs."""
    if not folder.is_dir():
        raise DataError("there is no such folder of runs", remedy="make one: gandalf reproduce", file=folder)
    return read_lines(*sorted(folder.glob("*.jsonl")))


def of_data(lines: Iterable[Line], name: str, digest: str, points: int) -> list[Line]:
    """Return the lines of this data, found by its hash; older lines by name and number of test points."""

    def fits(line: Line) -> bool:
        if "data_hash" in line:
            return bool(line["data_hash"] == digest)
        on_test = line["run"].get("split", "test") == "test"
        return bool(line["name"] == name and (not on_test or line["figures"]["points"] == points))

    return [line for line in lines if fits(line)]


def read_json(path: Path) -> Any:  # noqa: ANN401  whatever was written there
    """Return the content of a JSON file of the folder; an empty object without the file."""
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise DataError("is no JSON", remedy="delete it; it is written anew", file=path) from error


def write_json(path: Path, value: Mapping[str, Any] | list[Any]) -> None:
    """Write the file, whole or not at all."""
    with written(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=1)


def read_plan(folder: Path) -> list[StudyRun]:
    """Return the runs that the studies of the folder want."""
    stored = read_json(folder / PLAN) or []
    return [
        StudyRun(each["study"], each["row"], Run.of(each["run"]), tuple(each.get("base", ())))
        for each in stored
    ]


def add_to_plan(folder: Path, entries: Iterable[StudyRun]) -> None:
    """Add runs to the plan of the folder; a row that has changed replaces the old one."""
    every = {_place(each): each for each in (*read_plan(folder), *entries)}
    write_json(folder / PLAN, [asdict(each) for each in every.values()])


def _place(entry: StudyRun) -> tuple[object, ...]:
    """Return what identifies a run in the tables: its study, row, data, system, settings and seed."""
    run = entry.run
    return entry.study, entry.row, run.data, run.system, entry.base, run.seed


def write_predictions(folder: Path, line: Line, ids: npt.NDArray[np.int64]) -> None:
    """Write the best labels of every test point, best first; -1 fills a row."""
    path = _predictions(folder, line)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path, "wb") as file:
        np.savez_compressed(file, ids=ids[:, :PLACES].astype(np.int32))


def read_predictions(folder: Path, line: Line) -> npt.NDArray[np.int64] | None:
    """Return the best labels of every test point, or None if they were not kept."""
    path = _predictions(folder, line)
    if not path.exists():
        return None
    try:
        with np.load(path) as file:
            return np.asarray(file["ids"], dtype=np.int64)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError("is no file of predictions", remedy="remove it", file=path) from error


def _predictions(folder: Path, line: Line) -> Path:
    return folder / PREDICTIONS / f"{line['key']}-{line.get('data_hash', '')[:8]}.npz"
