"""Files of a model folder as data from outside: damage gets a sentence, and no name leaves the folder."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from gandalf.errors import DataError

CHECKPOINTS = "checkpoints"  # folder of a run that is not finished
PARTS = "parts"  # folder of the folders of a mix's parts
AGAIN = "copy the folder again, or train the model again"


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file, or say in a sentence what is wrong with the file."""
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


def missing(path: Path) -> DataError:
    """Return the sentence about a folder that lacks this file."""
    unfinished = (path.parent / CHECKPOINTS).is_dir()
    remedy = "finish the run: gandalf train DATA OUT --resume" if unfinished else AGAIN
    return DataError(f"is no complete model folder: it has no {path.name}", remedy=remedy, file=path.parent)
