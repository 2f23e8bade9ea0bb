"""The folder that a demonstration leaves: never over anything else, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gandalf.data.claim import is_leftover
from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.lab.demo import BASELINE, MODEL, PREDICTIONS
from gandalf.runs.folder import refuse_to_lose as refuse_to_lose_model
from gandalf.wide.folder import read_json

PAGE, RESULTS = "index.html", "results.json"
FORMAT = "gandalf demo"  # in the results: what tells the folder from anyone else's


@contextmanager
def demo_folder(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that takes its name when the body has succeeded; `overwrite` then removes a demo."""
    refuse_to_lose(out, overwrite=overwrite)
    with new_folder(out, overwrite=overwrite, inner=(MODEL, BASELINE, PREDICTIONS)) as folder:
        yield folder


def write_results(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write all figures, and give them back as they stand in the file."""
    found = {"format": FORMAT, **results}
    with written(folder / RESULTS) as file:
        json.dump(found, file, ensure_ascii=False, indent=1, allow_nan=False)
    return found


def refuse_to_lose(out: Path, *, overwrite: bool) -> None:
    """Never write over what another command or a person put there, nor over a demo unless told to."""
    if not out.is_dir() or not _names(out):
        return  # what else may be wrong with it, `new_folder` says
    foreign = _foreign(out)
    if foreign is not None:
        what = f"holds {foreign}, which is not part of a demo, and is not replaced"
        raise DataError(what, remedy="choose another OUT, or move that away", file=out)
    if not overwrite:
        remedy = "choose another OUT, or replace it with --overwrite"
        raise DataError("holds a demo already", remedy=remedy, file=out)
    for name in (MODEL, BASELINE):
        if (out / name).exists():
            refuse_to_lose_model(out / name, resume=False, overwrite=True)


def _foreign(out: Path) -> str | None:
    """Something in the folder that no demo put there."""
    names = _names(out)
    others = [name for name in names if name not in (PAGE, RESULTS, MODEL, BASELINE, PREDICTIONS)]
    if others or RESULTS not in names or read_json(out / RESULTS).get("format") != FORMAT:
        return (others or names)[0]
    inside = _names(out / PREDICTIONS) if PREDICTIONS in names else []
    return next((f"{PREDICTIONS}/{name}" for name in inside if not name.endswith(".npz")), None)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not is_leftover(path.name))
