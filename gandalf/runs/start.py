"""Ways into a run: from Python, into a folder, with targets or the whole model to be chosen first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from gandalf.data.claim import remove
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import sync_folder, written
from gandalf.data.formats.table_options import OPTIONS, TableArguments
from gandalf.data.load import load
from gandalf.errors import DataError, argument
from gandalf.metrics.evaluate import Scores
from gandalf.model import Part, write_model
from gandalf.model.facts import TEXT_COLUMN
from gandalf.model.trees import Trees
from gandalf.model_folder import CHECKPOINTS, SEARCH, read_json
from gandalf.recipe import Recipe
from gandalf.runs.candidates import Teller
from gandalf.runs.checks import check_run
from gandalf.runs.folder import (
    CHOICE,
    RunPlace,
    by_first,
    claimed,
    first_model_names,
    is_finished,
    prepared_folder,
    remove_first_model,
)
from gandalf.runs.remember import train_with_memory
from gandalf.runs.search import search
from gandalf.runs.trees import beaten, yardsticks
from gandalf.runs.validation import Trained, test_scores
from gandalf.settings import from_dict, override, to_dict
from gandalf.systems import AUTO, default_system
from gandalf.systems import recipe as recipe_of
from gandalf.train.logs import Listener
from gandalf.train.machine_memory import peak_bytes


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run left in its folder, and the figures that stand in `metrics.json`."""

    trained: Trained
    scores: Scores | None  # on the test split
    metrics: dict[str, Any]
    notes: tuple[str, ...] = ()
    search: dict[str, Any] | None = None  # what was tried, and why this was chosen


@dataclass(frozen=True)
class Told:
    """Who is told of a run while it goes on."""

    choice: Callable[[dict[str, Any]], None] = lambda table: None  # the table that targets were chosen from
    search: Callable[[str], None] = lambda line: None  # what a search tries and finds


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
    trackers: Sequence[str] = (),
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
    With `out`, they also go to `trackers`: "tensorboard", "mlflow", "wandb".
    """
    splits = _as_splits(data, {name: changes.pop(name) for name in OPTIONS if name in changes})
    if recipe is None:
        recipe = default_system([*settings, *changes])
    start = recipe_of(recipe) if isinstance(recipe, str) else recipe
    asked = changed(start, *settings, **changes)
    if out is None and (resume or overwrite):
        raise DataError("without a folder there is nothing to resume or overwrite", remedy="name it: out=...")
    folder = None if out is None else Path(out)
    place = RunPlace(folder, resume, tell=tell, listeners=tuple(listeners), trackers=tuple(trackers))
    if out is not None:
        return train_to_folder(splits, asked, place, overwrite=overwrite).trained
    if asked.system == AUTO:
        return search(splits, asked, place).trained
    if asked.targets.targets == "auto":
        from gandalf.runs.choose import choose

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


def train_to_folder(
    splits: Splits, recipe: Recipe, place: RunPlace, *, overwrite: bool = False, told: Told | None = None
) -> Outcome:
    """Train by the recipe, choosing its targets first where it says `auto`, and leave a model folder."""
    folder = place.folder
    if folder is None:
        raise DataError("a run that is to leave a model needs a folder")
    with claimed(folder, resume=place.resume, overwrite=overwrite):
        if place.resume and is_finished(folder):
            what = "is finished, and there is nothing to resume"
            raise DataError(what, remedy="load it with load_model", file=folder)
        return train_claimed(splits, recipe, place, told or Told())


def train_claimed(splits: Splits, recipe: Recipe, place: RunPlace, told: Told) -> Outcome:
    """Train in a folder that is claimed already and holds no finished run, unless it may be removed.

    Of several ranks the first writes what is not checkpoints.
    """
    folder, ranks = place.folder, place.ranks
    assert folder is not None
    check_run(recipe, splits.train, ranks.world)
    place.say_empty(splits.train.texts or ())
    if recipe.system == AUTO:
        return _searched(splits, recipe, place, told)
    with by_first(ranks, lambda: prepared_folder(folder, recipe, fresh=not place.resume)):
        chosen, table = _chosen(splits, recipe, folder)
        if table is not None:
            told.choice(table)
        trained = train_with_memory(splits, chosen, place)
    if ranks.rank:
        return Outcome(trained, None, {})
    beside, notes = _yardsticks(trained, recipe.seed)
    more = {} if table is None else {"choice": table}
    return _finished(folder, trained, splits, more | beside, notes)


def _searched(splits: Splits, recipe: Recipe, place: RunPlace, told: Told) -> Outcome:
    """Search for the best model; the first usable one is in the folder while the search goes on."""
    folder = place.folder
    assert folder is not None
    with prepared_folder(folder, recipe, fresh=not place.resume):
        mark = folder / CHECKPOINTS / SEARCH
        mark.parent.mkdir(exist_ok=True)
        with written(mark) as file:
            json.dump({"asked": to_dict(recipe)}, file)
        found = search(splits, recipe, place, Teller(told.search, partial(_write_first, folder)))
    if isinstance(found.trained.model, Trees):  # its files have the names of the first model's
        remove_first_model(folder)
    outcome = _finished(folder, found.trained, splits, {"search": found.table}, found.notes)
    if not isinstance(found.trained.model, Trees):
        for name in first_model_names(folder):
            remove(folder / name)
    return replace(outcome, search=found.table)


def _write_first(folder: Path, part: Part) -> None:
    remove_first_model(folder)
    write_model(part, folder)


def _finished(
    folder: Path, trained: Trained, splits: Splits, more: dict[str, Any], notes: tuple[str, ...]
) -> Outcome:
    """Score the model on the test split, write it, and remove what only an unfinished run needs."""
    scores, failed = _scores(trained, splits)
    if splits.text_column is not None:
        trained.model.config[TEXT_COLUMN] = splits.text_column  # where `gandalf predict` looks for texts
    metrics = _metrics(trained, scores) | more
    stale = () if isinstance(trained.model, Trees) else first_model_names(folder)
    write_model(trained.model, folder, metrics=metrics, stale=stale)
    sync_folder(folder, spare=(CHECKPOINTS,))
    remove(folder / CHECKPOINTS)  # only now: until the model is on the disk, they are all there is
    return Outcome(trained, scores, metrics, (*notes, *failed))


def _yardsticks(trained: Trained, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what cheap models reach on the same held-out points, and a note where they are ahead."""
    if trained.held is None:
        return {}, ()
    rivals, notes = yardsticks([trained.held.splits], seed)
    behind = beaten(trained.held.evaluated(), rivals)
    found = {"baselines": [each.as_dict() for each in rivals]}
    return found, (*notes, *([] if behind is None else [behind]))


def _chosen(splits: Splits, recipe: Recipe, folder: Path) -> tuple[Recipe, Any]:
    """The recipe with its targets chosen, and the table they were chosen from; once for a run."""
    if recipe.targets.targets != "auto":
        return recipe, None
    path, asked = folder / CHECKPOINTS / CHOICE, to_dict(recipe)
    if path.is_file():
        made = read_json(path)
        if made.get("asked") == json.loads(json.dumps(asked)):
            return from_dict(Recipe, made["recipe"], file=path), made["table"]
    from gandalf.runs.choose import choose

    choice = choose(splits, recipe)
    path.parent.mkdir(exist_ok=True)
    with written(path) as file:
        json.dump({"asked": asked, "recipe": to_dict(choice.recipe), "table": choice.table}, file)
    return choice.recipe, choice.table


def _scores(trained: Trained, splits: Splits) -> tuple[Scores | None, tuple[str, ...]]:
    """Figures on the test split; what is wrong with that must not cost a trained model."""
    try:
        return test_scores(trained.model, splits), ()
    except (DataError, MemoryError, torch.OutOfMemoryError) as error:
        why = str(error) if isinstance(error, DataError) else "there was not enough memory to predict it"
        return None, (f"no figures on the test split: {why}",)


def _metrics(trained: Trained, scores: Scores | None) -> dict[str, Any]:
    """Test figures as `gandalf evaluate --json` prints them, and the course of the training beside them."""
    training = {
        "points": trained.points,
        "label_points": trained.label_points,
        "labels": trained.model.num_labels,
        "steps": trained.steps,
        "seconds": round(trained.seconds, 3),
        "peak_memory_bytes": peak_bytes(trained.model.device),
        "targets": trained.details,
    }
    return {
        **({} if scores is None else scores.as_dict()),
        "validation": trained.history,
        "training": training,
        **({} if trained.memory is None else {"memory": trained.memory}),
    }
