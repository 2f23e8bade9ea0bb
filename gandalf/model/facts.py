"""Read the facts and the labels of a model folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gandalf.data.claim import restore_folder
from gandalf.data.files import read_lines
from gandalf.errors import DataError, Findings
from gandalf.model.calibration import Calibration
from gandalf.model_folder import CONFIG, FORMAT, SLIM_FACTS, VERSION, damaged, need_file, read_json

TEXT_COLUMN = "text_column"  # key of a config: the column of texts in the training table
GIVE_MODEL = "give the folder that gandalf train wrote"


@dataclass(frozen=True)
class Facts:
    """The entries of `config.json` against which the other files are checked."""

    encoder: dict[str, Any]  # its kind and options; a mix, trees and a memory have their kind here too
    labels: int
    dim: int
    config: dict[str, Any]
    calibration: Calibration | None


def read_facts(folder: Path) -> Facts:
    """Read the facts of a model folder without its tensors; raise a DataError if it holds no model."""
    restore_folder(folder)
    _refuse_other_folder(folder)
    path = folder / CONFIG
    stored = read_json(path)
    if stored.get("format") != FORMAT:
        raise DataError("does not describe a gandalf model", remedy=GIVE_MODEL, file=path)
    if stored.get("version") != VERSION:
        made = stored.get("version")
        what = f"is in version {made!r} of the format, and this release reads version {VERSION}"
        raise DataError(what, remedy="pip install --upgrade gandalf-xmc", file=path)
    try:
        calibration = stored["calibration"]
        return Facts(
            _typed(stored, "encoder", dict),
            _typed(stored, "labels", int),
            _typed(stored, "dim", int),
            _typed(stored, "config", dict),
            None if calibration is None else Calibration(**calibration),
        )
    except (KeyError, TypeError, ValueError) as error:  # a DataError of Calibration is a ValueError too
        raise damaged(f"lacks or garbles a setting ({error})", path) from error


def _refuse_other_folder(folder: Path) -> None:
    """Refuse a missing folder, a file, and the folder of an exported model."""
    if not folder.is_dir():
        is_file = "is a file where a model folder is expected"
        what = is_file if folder.exists() else "there is no such model folder"
        raise DataError(what, remedy=GIVE_MODEL, file=folder)
    if not (folder / CONFIG).exists() and (folder / SLIM_FACTS).is_file():
        what = "is an exported model, which runs without PyTorch"
        remedy = f"read it with gandalf.slim.SlimPredictor, or {GIVE_MODEL}"
        raise DataError(what, remedy=remedy, file=folder)


def _typed(stored: Mapping[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401  JSON
    """Return an entry of the type `kind`; raise a TypeError for another type, and for an int below 1."""
    value: Any = stored[name]
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or (kind is int and value < 1):
        raise TypeError(f"{name} is {str(value)[:40]!r}")
    return value


def read_labels(path: Path, expected: int) -> tuple[list[str] | None, list[str]]:
    """Return the ids of the labels, or None if labels have no ids, and their texts."""
    need_file(path)
    ids, texts = list[str](), list[str]()
    for line, text in read_lines(path, Findings()):
        try:
            record = json.loads(text)
            texts.append(record["text"])
            if "id" in record:
                ids.append(record["id"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise damaged("is no label", path, line) from error
    are_strings = {*map(type, texts), *map(type, ids)} == {str}
    if len(texts) != expected or len(ids) not in (0, expected) or not are_strings:
        what = f"does not hold the texts of the {expected:,} labels of the model, but {len(texts):,}"
        raise damaged(what, path)
    return ids or None, texts
