"""What is in a model folder: JSON, safetensors and text, nothing that could run code when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gandalf.errors import DataError
from gandalf.model.calibration import Calibration
from gandalf.wide.folder import AGAIN, confined, read_json

CONFIG, WEIGHTS, LABELS = "config.json", "model.safetensors", "labels.jsonl"
METRICS, CARD = "metrics.json", "README.md"
RECIPE = "recipe.toml"  # of the run that made the model
INDEX, INDEX_FACTS = "index.safetensors", "index.json"  # of these very rows: not for a model made from this
FORMAT, VERSION = "gandalf model", 1


@dataclass(frozen=True)
class Facts:
    """What `config.json` says of the other files, so that each can be checked against it."""

    encoder: dict[str, Any]  # its kind and its options
    labels: int
    dim: int
    config: dict[str, Any]
    calibration: Calibration | None


def listed_files(folder: Path) -> list[str]:
    """Return the names of a model's files, as its `config.json` lists them."""
    path = folder / CONFIG
    found = read_json(path).get("files", [])
    if not isinstance(found, list):
        raise DataError("does not list the model's files", remedy=AGAIN, file=path)
    return [confined(name, path) for name in found]
