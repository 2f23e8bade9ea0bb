"""Read files of a model folder safely: report damage, check hashes, and refuse names outside the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from gandalf.errors import DataError

CHECKPOINTS = "checkpoints"  # only the folder of an unfinished run has it
EXPORTED = "slim.json"  # replaces config.json in the folder of an exported model
PARTS = "parts"  # folder with a folder for each part of a mix
AGAIN = "copy the folder again, or train the model again"
FINISH = "finish the run: gandalf train DATA OUT --resume"
HASHES = "sha256"  # key that `with_hashes` adds


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; raise a DataError if there is none."""
    try:
        found = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise missing_file(path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON, or is cut short", remedy=_mend(path), file=path) from error
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", remedy=_mend(path), file=path)
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")  # Python accepts NaN and Infinity, which JSON does not have


def name_inside(name: object, path: Path) -> str:
    """Return a file name that was read from `path`; refuse it unless it lies in the folder of `path`."""
    inside = isinstance(name, str) and name not in ("", ".") and "\\" not in name and "\0" not in name
    inside = inside and not PureWindowsPath(str(name)).drive
    if not inside or PurePosixPath(str(name)).is_absolute() or ".." in PurePosixPath(str(name)).parts:
        raise DataError(
            f"names the file {str(name)[:60]!r}, which is not in its folder", remedy=AGAIN, file=path
        )
    return str(name)


def with_hashes(facts: Mapping[str, Any], path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return the facts with hashes added: of the files `names` in the folder of `path`, and of the facts.

    The facts will be written to `path`, so their hash is stored under the name of `path`.
    """
    found = {name: _file_hash(path.parent / name) for name in sorted({*names} - {path.name})}
    return {**facts, HASHES: found | {path.name: _facts_hash(facts, found)}}


def check_hashes(path: Path) -> None:
    """Refuse a folder with a changed file, by the hashes in the file `path`.

    A folder of an early release has no hashes, and is not checked.
    """
    facts = read_json(path)
    found = facts.pop(HASHES, None)
    if found is None:
        return
    if not isinstance(found, dict):
        raise DataError("has hashes of files that cannot be read", remedy=AGAIN, file=path)
    own = found.pop(path.name, None)
    if own != _facts_hash(facts, found):
        raise _changed(path)
    for name, expected in found.items():
        file = path.parent / name_inside(name, path)
        if not file.is_file():
            raise missing_file(file)
        if _file_hash(file) != expected:
            raise _changed(file)


def _changed(path: Path) -> DataError:
    if _unfinished(path):
        return DataError("is of a run that is not finished", remedy=FINISH, file=path)
    remedy = f"{AGAIN}; if you changed it yourself, read it without this check (--no-verify, verify=False)"
    return DataError("is not what was written, by its hash", remedy=remedy, file=path)


def _unfinished(path: Path) -> bool:
    """Return True if the file is in the folder of a run that can be resumed."""
    return (path.parent / CHECKPOINTS).is_dir()


def _mend(path: Path) -> str:
    return FINISH if _unfinished(path) else AGAIN


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


def missing_file(path: Path) -> DataError:
    """Return the error about a folder that lacks the file `path`."""
    return DataError(
        f"is no complete model folder: it has no {path.name}", remedy=_mend(path), file=path.parent
    )
