"""A run from Python in one call: data and a system's name in, a trained model out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.formats.table_options import OPTIONS, TableArguments
from gandalf.data.load import load
from gandalf.errors import DataError, argument
from gandalf.recipe import Recipe
from gandalf.runs.output import train_to_folder
from gandalf.runs.place import Place
from gandalf.runs.remember import train_with_memory
from gandalf.runs.search import search
from gandalf.runs.trained import Trained
from gandalf.settings import override
from gandalf.systems import AUTO, default_system
from gandalf.systems import recipe as recipe_of
from gandalf.train.logs import Listener

WHOLE_NAMES = {"targets": "targets.targets"}  # the last part of this name is a table's too
_NOT_FINITE = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}  # JSON's names, and those of settings


def train(
    data: Any,  # noqa: ANN401  what `gandalf.load` gives or takes
    recipe: str | Recipe | None = None,
    *settings: str,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
    listeners: Sequence[Listener] = (),
    **changes: object,
) -> Trained:
    """Train a model on what `gandalf.load` gives or takes; with `out`, leave it there as a folder.

    The folder is that of `gandalf train`, figures on the test split included; `resume` goes on with an
    unfinished run in it, and `overwrite` removes what a run left there. `recipe` is a system's name or a
    recipe; without it the best model for the data is searched for, or where settings of one system are given,
    that system is astec. Settings are those that `gandalf config` prints, written as `"encoder.dim=200"` or,
    by the last part of their name, as keywords: `epochs=5, targets="shrunk"`. So are the columns of a table,
    as in `gandalf.load`: `text_column="subject"`.

    `tell` is called with sentences such as how much memory training takes. Each of `listeners` is called as
    `listener(kind, step, values)` with the loss (kind "train") and held-out figures ("validation").
    """
    splits = _as_splits(data, {name: changes.pop(name) for name in OPTIONS if name in changes})
    if recipe is None:
        recipe = default_system([*settings, *changes])
    start = recipe_of(recipe) if isinstance(recipe, str) else recipe
    asked = changed(start, *settings, **changes)
    if out is None and (resume or overwrite):
        raise DataError("without a folder there is nothing to resume or overwrite", remedy="name it: out=...")
    place = Place(None if out is None else Path(out), resume, tell=tell, listeners=tuple(listeners))
    if out is not None:
        return train_to_folder(splits, asked, place, overwrite=overwrite).trained
    if asked.system == AUTO:
        return search(splits, asked, place).trained
    if asked.targets.targets == "auto":
        from gandalf.runs.auto import choose

        asked = choose(splits, asked).recipe
    return train_with_memory(splits, asked, place)


def changed(recipe: Recipe, *settings: str, **changes: object) -> Recipe:
    """The recipe with some settings changed: first the keywords, then those written as `key=value`."""
    given = [f"{WHOLE_NAMES.get(name, name)}={_written(value)}" for name, value in changes.items()]
    return override(recipe, [*given, *settings])


def _written(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | Path):
        return str(value)
    text = json.dumps(value, default=_number)
    return _NOT_FINITE.get(text, text)


def _number(value: Any) -> Any:  # noqa: ANN401  NumPy's and torch's numbers, which JSON does not know
    if hasattr(value, "item"):
        return value.item()
    raise DataError(f"a setting cannot be {value!r:.60}")


def _as_splits(data: Any, table: dict[str, Any]) -> Splits:  # noqa: ANN401  what `gandalf.load` takes
    if not isinstance(data, Splits | Dataset):
        splits = load(data, **cast(TableArguments, table))
    elif table:
        said, kind = argument(next(iter(table))), type(data).__name__
        what = f"{said} says how data is read, and a {kind} is read already"
        raise DataError(what, remedy="give it to gandalf.load")
    else:
        splits = Splits(train=data) if isinstance(data, Dataset) else data
    if splits.origin is not None:
        what = f"the data set is already augmented, from {splits.origin.name}"
        raise DataError(what, remedy="give the original set; targets says which label points to add")
    return splits
