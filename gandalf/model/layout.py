"""Name the files of a model folder, and read its facts and labels.

The files are JSON, safetensors and text. No format is used that could run code when it is read.
"""

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
from gandalf.wide.folder import AGAIN, EXPORTED, missing_file, name_inside, read_json

CONFIG, WEIGHTS, LABELS = "config.json", "model.safetensors", "labels.jsonl"
METRICS, CARD = "metrics.json", "README.md"
RECIPE = "recipe.toml"  # settings of the run that made the model
TEXT_COLUMN = "text_column"  # key of a config: the column of texts in the training table
INDEX, INDEX_FACTS = "index.safetensors", "index.json"  # valid for these rows only, so never copied along
CHECKPOINTS = "checkpoints"  # folder in that of an unfinished run
SEARCH = "search.json"  # beside the checkpoints while a search goes on
FORMAT, VERSION = "gandalf model", 1


@dataclass(frozen=True)
class Facts:
    """The entries of `config.json` against which the other files are checked."""

    encoder: dict[str, Any]  # its kind and options; a mix, trees and a memory have their kind here too
    labels: int
    dim: int
    config: dict[str, Any]
    calibration: Calibration | None


def is_searching(folder: Path) -> bool:
    """Return True if the folder holds no more than the first usable model of an unfinished search."""
    return (folder / CHECKPOINTS / SEARCH).is_file()


def listed_files(folder: Path) -> list[str]:
    """Return the names of a model's files, as its `config.json` lists them."""
    path = folder / CONFIG
    found = read_json(path).get("files", [])
    if not isinstance(found, list):
        raise DataError("does not list the model's files", remedy=AGAIN, file=path)
    return [name_inside(name, path) for name in found]


def read_facts(folder: Path) -> Facts:
    """Read the facts of a model folder without its tensors; raise a DataError if it holds no model."""
    restore_folder(folder)
    if not folder.is_dir():
        what = (
            "is a file where a model folder is expected"
            if folder.exists()
            else "there is no such model folder"
        )
        raise DataError(what, remedy="give the folder that gandalf train wrote", file=folder)
    path = folder / CONFIG
    if not path.exists() and (folder / EXPORTED).is_file():
        what = "is an exported model, which runs without PyTorch"
        remedy = "read it with gandalf.slim.SlimPredictor, or give the folder that gandalf train wrote"
        raise DataError(what, remedy=remedy, file=folder)
    found = read_json(path)
    if found.get("format") != FORMAT:
        raise DataError(
            "does not describe a gandalf model", remedy="give the folder that gandalf train wrote", file=path
        )
    if found.get("version") != VERSION:
        raise DataError(
            f"is in version {found.get('version')!r} of the format, and this release reads version {VERSION}",
            remedy="pip install --upgrade gandalf-xmc",
            file=path,
        )
    try:
        calibration = found["calibration"]
        return Facts(
            _typed(found, "encoder", dict),
            _typed(found, "labels", int),
            _typed(found, "dim", int),
            _typed(found, "config", dict),
            None if calibration is None else Calibration(**calibration),
        )
    except (KeyError, TypeError, ValueError) as error:  # a DataError of Calibration is a ValueError too
        raise DataError(f"lacks or garbles a setting ({error})", remedy=AGAIN, file=path) from error


def _typed(found: Mapping[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401  JSON
    value: Any = found[name]
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or (kind is int and value < 1):
        raise TypeError(f"{name} is {str(value)[:40]!r}")
    return value


def read_labels(path: Path, expected: int) -> tuple[list[str] | None, list[str]]:
    """Return the ids of the labels, or None if labels have no ids, and their texts."""
    if not path.is_file():
        raise missing_file(path)
    ids, texts = list[str](), list[str]()
    for line, text in read_lines(path, Findings()):
        try:
            record = json.loads(text)
            texts.append(record["text"])
            if "id" in record:
                ids.append(record["id"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError("is no label", remedy=AGAIN, file=path, line=line) from error
    if (
        len(texts) != expected
        or len(ids) not in (0, expected)
        or {*map(type, texts), *map(type, ids)} != {str}
    ):
        what = (
            f"does not hold the texts of the {expected:,} labels that {CONFIG} speaks of, but {len(texts):,}"
        )
        raise DataError(what, remedy=AGAIN, file=path)
    return ids or None, texts
