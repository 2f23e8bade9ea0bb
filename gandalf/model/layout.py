"""What is in a model folder: JSON, safetensors and text, nothing that could run code when it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gandalf.errors import DataError
from gandalf.model.calibration import Calibration

CONFIG, WEIGHTS, LABELS = "config.json", "model.safetensors", "labels.jsonl"
METRICS, CARD = "metrics.json", "README.md"
INDEX, INDEX_FACTS = "index.safetensors", "index.json"  # of these very rows: not for a model made from this
PARTS = "parts"  # folder of the folders of a mix's parts
FORMAT, VERSION = "gandalf model", 1
LOCK = ".gandalf.lock"  # in the folder, while a run writes there

AGAIN = "copy the folder again, or train the model again"


@dataclass(frozen=True)
class Facts:
    """What `config.json` says of the other files, so that each can be checked against it."""

    encoder: dict[str, Any]  # its kind and its options
    labels: int
    dim: int
    config: dict[str, Any]
    calibration: Calibration | None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file, or a sentence about what is wrong with it."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON, or is cut short", remedy=AGAIN, file=path) from error
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", remedy=AGAIN, file=path)
    return found


def confined(name: object, path: Path) -> str:
    """Return a file's name from `path` if it stays inside that file's folder, or refuse it."""
    inside = isinstance(name, str) and name not in ("", ".") and "\\" not in name and "\0" not in name
    if not inside or PurePosixPath(str(name)).is_absolute() or ".." in PurePosixPath(str(name)).parts:
        raise DataError(
            f"names the file {str(name)[:60]!r}, which is not in its folder", remedy=AGAIN, file=path
        )
    return str(name)


def listed_files(folder: Path) -> list[str]:
    """Return the names of a model's files, as its `config.json` lists them."""
    path = folder / CONFIG
    found = read_json(path).get("files", [])
    if not isinstance(found, list):
        raise DataError("does not list the model's files", remedy=AGAIN, file=path)
    return [confined(name, path) for name in found]


def missing(path: Path) -> DataError:
    """What to say of a folder without this file."""
    return DataError(f"is no complete model folder: it has no {path.name}", remedy=AGAIN, file=path.parent)


def instead_of(remedy: str, foreign: str) -> str:
    """What to do where a folder holds what is not ours; the lock of a run must stay where it is."""
    return remedy if foreign == LOCK else f"{remedy}, or move that away"
