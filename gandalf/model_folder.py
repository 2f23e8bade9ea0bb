"""Name the files of a model folder, and read them safely: report damage, check hashes, refuse foreign names.

The files are JSON, safetensors and text. No format is used that could run code when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from gandalf.errors import DataError

CONFIG, WEIGHTS, LABELS = "config.json", "model.safetensors", "labels.jsonl"
METRICS, CARD = "metrics.json", "README.md"
RECIPE = "recipe.toml"  # settings of the run that made the model
INDEX, INDEX_FACTS = "index.safetensors", "index.json"  # valid for these rows only, so never copied along
PARTS = "parts"  # folder with a folder for each part of a mix
CHECKPOINTS = "checkpoints"  # folder inside the folder of an unfinished run
SEARCH = "search.json"  # file among the checkpoints of an unfinished search
SLIM_FACTS = "slim.json"  # replaces config.json in the folder of an exported model
FORMAT, VERSION = "gandalf model", 1
HASHES = "sha256"  # key that `with_hashes` adds

COPY_AGAIN = "copy the folder again, or train the model again"
EXPORT_AGAIN = "export it again"
RESUME_RUN = "finish the run: gandalf train DATA OUT --resume"


def is_searching(folder: Path) -> bool:
    """Return True if the folder holds no more than the first usable model of an unfinished search."""
    return (folder / CHECKPOINTS / SEARCH).is_file()


def listed_files(folder: Path) -> list[str]:
    """Return the names of a model's files, as its `config.json` lists them."""
    path = folder / CONFIG
    names = read_json(path).get("files", [])
    if not isinstance(names, list):
        raise damaged("does not list the model's files", path)
    return [name_inside(name, path) for name in names]


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; raise a DataError if there is none."""
    try:
        found = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise missing_file(path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise damaged("is not JSON, or is cut short", path) from error
    if not isinstance(found, dict):
        raise damaged("is not a JSON object", path)
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")  # Python accepts NaN and Infinity, which JSON does not have


def name_inside(name: object, path: Path) -> str:
    """Return a file name that was read from `path`; refuse it unless it lies in the folder of `path`."""
    inside = isinstance(name, str) and name not in ("", ".") and "\\" not in name and "\0" not in name
    inside = inside and not PureWindowsPath(str(name)).drive
    if not inside or PurePosixPath(str(name)).is_absolute() or ".." in PurePosixPath(str(name)).parts:
        raise damaged(f"names the file {str(name)[:60]!r}, which is not in its folder", path)
    return str(name)


def with_hashes(facts: Mapping[str, Any], path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return the facts with hashes added: of the files `names` in the folder of `path`, and of the facts.

    The facts will be written to `path`, so their hash is stored under the name of `path`.
    """
    hashes = {name: _file_hash(path.parent / name) for name in sorted({*names} - {path.name})}
    return {**facts, HASHES: hashes | {path.name: _facts_hash(facts, hashes)}}


def check_hashes(path: Path) -> None:
    """Refuse a folder with a changed file, by the hashes in the file `path`.

    A folder of an early release has no hashes, and is not checked.
    """
    facts = read_json(path)
    hashes = facts.pop(HASHES, None)
    if hashes is None:
        return
    if not isinstance(hashes, dict):
        raise damaged("has hashes of files that cannot be read", path)
    if hashes.pop(path.name, None) != _facts_hash(facts, hashes):
        raise _changed(path)
    for name, expected in hashes.items():
        file = path.parent / name_inside(name, path)
        need_file(file)
        if _file_hash(file) != expected:
            raise _changed(file)


def _changed(path: Path) -> DataError:
    if _is_unfinished(path):
        return DataError("is of a run that is not finished", remedy=RESUME_RUN, file=path)
    again = (
        f"{COPY_AGAIN}; if you changed it yourself, read it without this check (--no-verify, verify=False)"
    )
    return DataError("is not what was written, by its hash", remedy=again, file=path)


def _file_hash(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def _facts_hash(facts: Mapping[str, Any], hashes: Mapping[str, Any]) -> str:
    """Return the hash of the content of a JSON file, without its spaces."""
    text = json.dumps([facts, hashes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def need_file(path: Path) -> None:
    """Raise a DataError unless the model folder has the file `path`."""
    if not path.is_file():
        raise missing_file(path)


def missing_file(path: Path) -> DataError:
    """Return the error about a folder that lacks the file `path`."""
    what = f"is no complete model folder: it has no {path.name}"
    return DataError(what, remedy=_remedy(path), file=path.parent)


def damaged(what: str, path: Path, line: int | None = None) -> DataError:
    """Return the error about a file or a part of a model folder that cannot be as it was written."""
    return DataError(what, remedy=_remedy(path), file=path, line=line)


def _remedy(path: Path) -> str:
    if _is_unfinished(path):
        return RESUME_RUN
    exported = (path / SLIM_FACTS).is_file() or (path.parent / SLIM_FACTS).is_file()
    return EXPORT_AGAIN if exported else COPY_AGAIN


def _is_unfinished(path: Path) -> bool:
    """Return True if the file is in the folder of a run that can be resumed."""
    return (path.parent / CHECKPOINTS).is_dir()
