"""Writing a model folder, wholly or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.model.card import model_card
from gandalf.model.layout import (
    CARD,
    CONFIG,
    FORMAT,
    LABELS,
    LOCK,
    METRICS,
    RECIPE,
    VERSION,
    Facts,
    instead_of,
    listed_files,
)
from gandalf.model.part import Part
from gandalf.train.logs import LOG
from gandalf.wide.folder import PARTS, read_json


def save_model(
    model: Part,
    folder: str | Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the model into a new folder, wholly or not at all; `overwrite` replaces another model's."""
    with _replaced(Path(folder), overwrite) as temporary:
        write_model(model, temporary, metrics=metrics, card=card)


def save_derived(
    model: Part,
    source: Path,
    folder: Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model made from one in a folder, whose figures, recipe and log go along; `metrics` are added.

    The folder may be that very one: it is replaced at the end, if all went well.
    """
    before = read_json(source / METRICS) if (source / METRICS).is_file() else None
    both = None if before is None and metrics is None else {**(before or {}), **(metrics or {})}
    with _replaced(folder, overwrite) as temporary:
        for name in (RECIPE, LOG):
            if name in listed_files(source) and (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
        write_model(model, temporary, metrics=both)


@contextmanager
def _replaced(folder: Path, overwrite: bool) -> Iterator[Path]:
    """A folder to fill, which may take the place of a model's and of nothing else."""
    foreign = foreign_files(folder) if overwrite and folder.is_dir() else []
    if foreign:
        what = f"holds {foreign[0]}, which is not part of a model, and is not replaced"
        raise DataError(what, remedy=instead_of("choose another name", foreign[0]), file=folder)
    with new_folder(folder, overwrite=overwrite, inner=(PARTS,)) as temporary:
        yield temporary


def write_model(
    model: Part,
    folder: Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
    stale: Collection[str] = (),
) -> None:
    """Write the model's files into a folder that is there; `config.json` comes last and makes it a model.

    `stale` files are those of a model that this one replaces: they are there, and not part of it.
    """
    facts = model.facts()
    with written(folder / LABELS) as file:
        file.writelines(_label_lines(model))
    model.write(folder)
    if metrics is not None:
        write_json(metrics, folder / METRICS)
    with written(folder / CARD) as file:
        file.write(model_card(model, metrics) if card is None else card)
    _write_config(facts, folder, stale)


def write_part(part: Part, folder: Path) -> None:
    """Write a part of a mix into a folder that is there: a model without labels, figures and card."""
    part.write(folder)
    _write_config(part.facts(), folder)


def _write_config(facts: Facts, folder: Path, stale: Collection[str] = ()) -> None:
    inner = (folder / PARTS).rglob("*") if (folder / PARTS).is_dir() else ()
    found = [path for path in (*folder.iterdir(), *inner) if path.is_file() and path.name != LOCK]
    files = sorted({CONFIG, *(path.relative_to(folder).as_posix() for path in found)} - {*stale})
    about = {"format": FORMAT, "version": VERSION, "made_by": f"gandalf {_release()}", "files": files}
    write_json(about | asdict(facts), folder / CONFIG)


def list_files(folder: Path, *names: str) -> None:
    """Say in a model's `config.json` that these files, which are there, are part of it too."""
    found = read_json(folder / CONFIG)
    found["files"] = sorted({*found.get("files", []), *names})
    write_json(found, folder / CONFIG)


def foreign_files(folder: Path) -> list[str]:
    """Return names in the folder that no `config.json` of ours lists: all of them where there is none."""
    try:
        found = read_json(folder / CONFIG)
    except DataError:
        found = {}
    listed = {str(name) for name in found.get("files", [])} if found.get("format") == FORMAT else set()
    ours = {name.partition("/")[0] for name in listed}
    foreign = {path.name for path in folder.iterdir() if path.name not in ours}
    inner = (path for path in (folder / PARTS).rglob("*") if PARTS in ours and path.is_file())
    return sorted(foreign | {path.relative_to(folder).as_posix() for path in inner} - listed)


def _label_lines(model: Part) -> Iterator[str]:
    for index, text in enumerate(model.label_texts):
        record = {"text": text} if model.label_ids is None else {"id": model.label_ids[index], "text": text}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Write a file of a model's folder."""
    with written(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _release() -> str:
    try:
        return metadata.version("gandalf-xmc")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return "(not installed)"
