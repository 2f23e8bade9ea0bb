"""Files of a model folder as data from outside: damage gets a sentence, and no name leaves the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from gandalf.errors import DataError

CHECKPOINTS = "checkpoints"  # folder of a run that is not finished
EXPORTED = "slim.json"  # what an exported model's folder has in place of config.json
PARTS = "parts"  # folder of the folders of a mix's parts
AGAIN = "copy the folder again, or train the model again"
FINISH = "finish the run: gandalf train DATA OUT --resume"
HASHES = "sha256"  # key of what `with_hashes` adds


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file, or say in a sentence what is wrong with the file."""
    try:
        found = json.loads(path.read_bytes(), parse_constant=_no_number)
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON, or is cut short", remedy=_mend(path), file=path) from error
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", remedy=_mend(path), file=path)
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")  # Python reads NaN, and nobody else does


def confined(name: object, path: Path) -> str:
    """Return a file's name from `path` if it stays inside that file's folder, or refuse it."""
    inside = isinstance(name, str) and name not in ("", ".") and "\\" not in name and "\0" not in name
    inside = inside and not PureWindowsPath(str(name)).drive
    if not inside or PurePosixPath(str(name)).is_absolute() or ".." in PurePosixPath(str(name)).parts:
        raise DataError(
            f"names the file {str(name)[:60]!r}, which is not in its folder", remedy=AGAIN, file=path
        )
    return str(name)


def with_hashes(facts: Mapping[str, Any], path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return facts that also hold hashes: of these files in the folder of `path`, and of the facts.

    The facts are about to be written to `path`, so their own hash stands under its name.
    """
    found = {name: _file_hash(path.parent / name) for name in sorted({*names} - {path.name})}
    return {**facts, HASHES: found | {path.name: _facts_hash(facts, found)}}


def check_hashes(path: Path) -> None:
    """Refuse a folder if a file of it is not what was written; `path` is the file that holds the hashes.

    A folder of an earlier release holds none, and there is nothing to check.
    """
    facts = read_json(path)
    found = facts.pop(HASHES, None)
    if found is None:
        return
    if not isinstance(found, dict):
        raise DataError("garbles the hashes of its files", remedy=AGAIN, file=path)
    own = found.pop(path.name, None)
    if own != _facts_hash(facts, found):
        raise _changed(path)
    for name, expected in found.items():
        file = path.parent / confined(name, path)
        if not file.is_file():
            raise missing(file)
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
    """Hash the content of a JSON file, not its spaces."""
    text = json.dumps([facts, hashes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def missing(path: Path) -> DataError:
    """Return the sentence about a folder that lacks this file."""
    return DataError(
        f"is no complete model folder: it has no {path.name}", remedy=_mend(path), file=path.parent
    )
