"""Write and read the JSON files of a vocabulary in a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.errors import DataError

LONGEST = 1 << 20  # highest max_length
REMEDY = "copy the model folder again, or train it again"


def need_length(tokens: object) -> None:
    """Raise a DataError if max_length is above LONGEST: a table has this many columns for every text."""
    if isinstance(tokens, bool):  # which Python takes for 1
        raise DataError(f"max_length is {tokens!r}; it must be a whole number")
    if isinstance(tokens, int) and tokens > LONGEST:
        raise DataError(f"max_length is {tokens:,}; it must be at most {LONGEST:,}")


def need_counts(options: Any, **least: int) -> None:  # noqa: ANN401  a dataclass of options
    """Raise a DataError unless each named option is a whole number of at least the given value."""
    need_length(options.max_length)
    for name, lowest in least.items():
        value = getattr(options, name)
        if not isinstance(value, int) or value < lowest:
            raise DataError(f"{name} is {value!r}; it must be a whole number of at least {lowest}")


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts as JSON; equal facts give equal bytes."""
    with written(path) as file:
        file.write(json.dumps(facts, ensure_ascii=False, separators=(",", ":")) + "\n")


def read_text(path: Path, remedy: str = REMEDY) -> str:
    """Return the text of a file, which must be UTF-8."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=path, remedy=remedy) from error
    except ValueError as error:
        raise DataError("is damaged: it is not UTF-8", file=path, remedy=remedy) from error


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a JSON file, which must hold an object."""
    text = read_text(path)
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is cut short or damaged ({error})", file=path, remedy=REMEDY) from error
    if not isinstance(facts, dict):
        raise DataError("holds no vocabulary", file=path, remedy=REMEDY)
    return facts


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn exceptions of the body, which uses the facts of a file, into a DataError that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"does not hold what a vocabulary needs ({type(error).__name__}: {error})"
        raise DataError(what, file=path, remedy=REMEDY) from error


def checked_counts(values: list[int], size: int) -> npt.NDArray[np.int64]:
    """Return a list of `size` counts as an array; raise a ValueError if it is no such list."""
    counts = np.array(values)
    if counts.shape != (size,) or counts.dtype != np.int64 or counts.min(initial=0) < 0:
        raise ValueError(f"there are not {size} counts, one for each token")
    return counts  # shape: (size,)
