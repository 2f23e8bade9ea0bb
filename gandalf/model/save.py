"""Write a model folder, completely or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from gandalf.data.claim import is_leftover
from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.model.card import model_card
from gandalf.model.facts import Facts
from gandalf.model.part import Part
from gandalf.model_folder import (
    CARD,
    CONFIG,
    FORMAT,
    HASHES,
    LABELS,
    METRICS,
    PARTS,
    RECIPE,
    VERSION,
    listed_files,
    read_json,
    with_hashes,
)
from gandalf.train.logs import EVENTS, LOG


def save_model(
    model: Part,
    folder: str | Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the model into a new folder, completely or not at all; `overwrite` replaces another model."""
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
    """Write a model that was made from the model in `source`, with the figures, recipe and log of `source`.

    `metrics` are added to the figures. `folder` may be `source` itself; it is replaced at the end.
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
    """Yield a temporary folder to fill; on success it becomes `folder` and may replace only a model."""
    foreign = foreign_files(folder) if overwrite and folder.is_dir() else []
    if foreign:
        what = f"holds {foreign[0]}, which is not part of a model, and is not replaced"
        raise DataError(what, remedy="choose another name, or move that file away", file=folder)
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
    """Write the model's files into an existing folder; `config.json` comes last and makes it a model.

    `stale` are files in the folder that belong to a replaced model. `config.json` does not list them.
    """
    facts = model.facts()
    with written(folder / LABELS) as file:
        file.writelines(_label_lines(model))
    model.write(folder)
    if metrics is not None:
        write_json(metrics, folder / METRICS)
    with written(folder / CARD) as file:
        file.write(model_card(model, metrics) if card is None else card)
    stored = _config(facts, folder, stale)
    write_json(with_hashes(stored, folder / CONFIG, _hashed(stored["files"])), folder / CONFIG)


def write_part(part: Part, folder: Path) -> None:
    """Write a part of a mix into an existing folder: a model without labels, figures, card and hashes."""
    part.write(folder)
    write_json(_config(part.facts(), folder), folder / CONFIG)


def _hashed(names: Collection[str]) -> list[str]:
    """Return the files to hash: not the log, the figures and the card, which may change."""
    return [name for name in names if name not in (CARD, METRICS, LOG) and not name.startswith(EVENTS)]


def _config(facts: Facts, folder: Path, stale: Collection[str] = ()) -> dict[str, Any]:
    """Return the content of `config.json`: the release, the files of the folder, and the facts."""
    inner = (folder / PARTS).rglob("*") if (folder / PARTS).is_dir() else ()
    found = (path.relative_to(folder) for path in (*folder.iterdir(), *inner) if path.is_file())
    names = {path.as_posix() for path in found if not any(map(is_leftover, path.parts))}
    files = sorted({CONFIG, *names} - {*stale})
    about = {"format": FORMAT, "version": VERSION, "made_by": f"gandalf {_release()}", "files": files}
    return about | asdict(facts)


def list_files(folder: Path, *names: str) -> None:
    """Add existing files to the list of files in a model's `config.json`."""
    files = sorted({*listed_files(folder), *names})
    found = read_json(folder / CONFIG)
    known = found.pop(HASHES, None)
    found["files"] = files
    if known is not None:
        found = with_hashes(found, folder / CONFIG, _hashed(files))
    write_json(found, folder / CONFIG, sync=True)


def foreign_files(folder: Path) -> list[str]:
    """Return the files that the folder's `config.json` does not list; all files if it is no model."""
    try:
        ours = read_json(folder / CONFIG).get("format") == FORMAT
        listed = {*listed_files(folder)} if ours else set[str]()
    except DataError:
        listed = set()
    tops = {name.partition("/")[0] for name in listed}
    foreign = {path for path in folder.iterdir() if path.name not in tops}
    if PARTS in tops:
        inner = (path for path in (folder / PARTS).rglob("*") if path.is_file())
        foreign |= {path for path in inner if path.relative_to(folder).as_posix() not in listed}
    names = (path.relative_to(folder) for path in foreign)
    return sorted(name.as_posix() for name in names if not any(map(is_leftover, name.parts)))


def _label_lines(model: Part) -> Iterator[str]:
    for index, text in enumerate(model.label_texts):
        record = {"text": text} if model.label_ids is None else {"id": model.label_ids[index], "text": text}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def write_json(value: Mapping[str, Any], path: Path, *, sync: bool = False) -> None:
    """Write a JSON file of a model folder."""
    with written(path, sync=sync) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _release() -> str:
    try:
        return metadata.version("gandalf-xmc")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return "(not installed)"
