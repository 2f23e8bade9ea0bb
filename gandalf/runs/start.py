"""Start a run: from Python or into a folder; choose its targets or the whole model first if asked to."""

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
from gandalf.runs.checks import check_run
from gandalf.runs.folder import (
    CHOICE,
    RunPlace,
    claimed,
    first_model_names,
    is_finished,
    on_first_rank,
    prepared_folder,
    remove_first_model,
)
from gandalf.runs.remember import train_with_memory
from gandalf.runs.search import search
from gandalf.runs.trees import note_if_behind, score_baselines
from gandalf.runs.validation import Trained, test_scores
from gandalf.settings import from_dict, override, to_dict
from gandalf.systems import AUTO, default_system
from gandalf.systems import recipe as recipe_of
from gandalf.train.logs import Listener
from gandalf.train.machine_memory import peak_bytes


@dataclass(frozen=True, eq=False)
class Outcome:
    """A trained model, its figures, and what `metrics.json` holds."""

    trained: Trained
    scores: Scores | None  # on the test split
    metrics: dict[str, Any]
    notes: tuple[str, ...] = ()
    search: dict[str, Any] | None = None  # the table of a search


FULL_NAMES = {"targets": "targets.targets"}  # where the short name is also a table of settings
_NOT_FINITE = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}  # as JSON and as settings write them


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
    wanted = changed(start, *settings, **changes)
    if out is None and (resume or overwrite):
        raise DataError("without a folder there is nothing to resume or overwrite", remedy="name it: out=...")
    folder = None if out is None else Path(out)
    place = RunPlace(folder, resume, tell=tell, listeners=tuple(listeners), trackers=tuple(trackers))
    if out is not None:
        return train_to_folder(splits, wanted, place, overwrite=overwrite).trained
    if wanted.system == AUTO:
        return search(splits, wanted, place).trained
    if wanted.targets.targets == "auto":
        from gandalf.runs.choose import choose

        wanted = choose(splits, wanted).recipe
    return train_with_memory(splits, wanted, place)


def changed(recipe: Recipe, *settings: str, **changes: object) -> Recipe:
    """Return the recipe after changes: first the keywords, then the settings written as `key=value`."""
    given = [f"{FULL_NAMES.get(name, name)}={_as_setting(value)}" for name, value in changes.items()]
    return override(recipe, [*given, *settings])


def _as_setting(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | Path):
        return str(value)
    text = json.dumps(value, default=_plain_number)
    return _NOT_FINITE.get(text, text)


def _plain_number(value: Any) -> Any:  # noqa: ANN401  a number of NumPy or PyTorch, which JSON does not know
    if hasattr(value, "item"):
        return value.item()
    raise DataError(f"a setting cannot be {value!r:.60}")


def _as_splits(data: Any, table: dict[str, Any]) -> Splits:  # noqa: ANN401  what `gandalf.load` takes
    if not isinstance(data, Splits | Dataset):
        splits = load(data, **cast(TableArguments, table))
    elif table:
        option, kind = argument(next(iter(table))), type(data).__name__
        what = f"{option} says how data is read, and a {kind} is read already"
        raise DataError(what, remedy="give it to gandalf.load")
    else:
        splits = Splits(train=data) if isinstance(data, Dataset) else data
    if splits.origin is not None:
        what = f"the data set is already augmented, from {splits.origin.name}"
        raise DataError(what, remedy="give the original set; targets says which label points to add")
    return splits


def train_to_folder(splits: Splits, recipe: Recipe, place: RunPlace, *, overwrite: bool = False) -> Outcome:
    """Train by the recipe and write a model folder; choose targets first if they are `auto`."""
    folder = place.folder
    if folder is None:
        raise DataError("a run that is to leave a model needs a folder")
    with claimed(folder, resume=place.resume, overwrite=overwrite):
        if place.resume and is_finished(folder):
            what = "is finished, and there is nothing to resume"
            raise DataError(what, remedy="load it with load_model", file=folder)
        return train_claimed(splits, recipe, place)


def train_claimed(splits: Splits, recipe: Recipe, place: RunPlace) -> Outcome:
    """Train into a folder that is claimed already; remove what a former run left there, unless it is resumed.

    Of several ranks, rank 0 writes everything but the other ranks' checkpoints.
    """
    folder, ranks = place.folder, place.ranks
    assert folder is not None
    check_run(recipe, splits.train, ranks.world)
    place.tell_empty(splits.train.texts or ())
    if recipe.system == AUTO:
        return _search_in(folder, splits, recipe, place)
    with on_first_rank(ranks, lambda: prepared_folder(folder, recipe, fresh=not place.resume)):
        chosen, table = _with_chosen_targets(splits, recipe, folder)
        if table is not None:
            place.tell_targets(table)
        trained = train_with_memory(splits, chosen, place)
    if ranks.rank:
        return Outcome(trained, None, {})
    baselines, notes = _compare_with_baselines(trained, recipe.seed)
    choice = {} if table is None else {"choice": table}
    return _finish(folder, trained, splits, choice | baselines, notes)


def _search_in(folder: Path, splits: Splits, recipe: Recipe, place: RunPlace) -> Outcome:
    """Search for the best model; while the search goes on, the folder holds the first usable model."""
    with prepared_folder(folder, recipe, fresh=not place.resume):
        mark = folder / CHECKPOINTS / SEARCH
        mark.parent.mkdir(exist_ok=True)
        with written(mark) as file:
            json.dump({"asked": to_dict(recipe)}, file)
        place = replace(place, take_first_model=partial(_write_first_model, folder))
        found = search(splits, recipe, place)
    if isinstance(found.trained.model, Trees):  # its files have the same names as the first model's
        remove_first_model(folder)
    outcome = _finish(folder, found.trained, splits, {"search": found.table}, found.notes)
    if not isinstance(found.trained.model, Trees):
        for name in first_model_names(folder):
            remove(folder / name)
    return replace(outcome, search=found.table)


def _write_first_model(folder: Path, part: Part) -> None:
    remove_first_model(folder)
    write_model(part, folder)


def _finish(
    folder: Path, trained: Trained, splits: Splits, more: dict[str, Any], notes: tuple[str, ...]
) -> Outcome:
    """Score the model on the test split, write it, and remove what only an unfinished run needs."""
    scores, failed = _test_scores(trained, splits)
    if splits.text_column is not None:
        trained.model.config[TEXT_COLUMN] = splits.text_column  # where `gandalf predict` looks for texts
    metrics = _metrics(trained, scores) | more
    stale = () if isinstance(trained.model, Trees) else first_model_names(folder)
    write_model(trained.model, folder, metrics=metrics, stale=stale)
    sync_folder(folder, spare=(CHECKPOINTS,))
    remove(folder / CHECKPOINTS)  # only now that the model is on the disk
    return Outcome(trained, scores, metrics, (*notes, *failed))


def _compare_with_baselines(trained: Trained, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the baselines' figures on the same held-out points, and a note if a baseline is ahead."""
    if trained.held is None:
        return {}, ()
    baselines, notes = score_baselines([trained.held.splits], seed)
    behind = note_if_behind(trained.held.evaluated(), baselines)
    found = {"baselines": [each.as_dict() for each in baselines]}
    return found, (*notes, *([] if behind is None else [behind]))


def _with_chosen_targets(splits: Splits, recipe: Recipe, folder: Path) -> tuple[Recipe, Any]:
    """Return the recipe with chosen targets and the table of the choice; a resumed run keeps its choice."""
    if recipe.targets.targets != "auto":
        return recipe, None
    path, asked = folder / CHECKPOINTS / CHOICE, to_dict(recipe)
    if path.is_file():
        kept = read_json(path)
        if kept.get("asked") == json.loads(json.dumps(asked)):
            return from_dict(Recipe, kept["recipe"], file=path), kept["table"]
    from gandalf.runs.choose import choose

    choice = choose(splits, recipe)
    path.parent.mkdir(exist_ok=True)
    with written(path) as file:
        json.dump({"asked": asked, "recipe": to_dict(choice.recipe), "table": choice.table}, file)
    return choice.recipe, choice.table


def _test_scores(trained: Trained, splits: Splits) -> tuple[Scores | None, tuple[str, ...]]:
    """Return the figures on the test split; return a note if it fails, so that the model is still written."""
    try:
        return test_scores(trained.model, splits), ()
    except (DataError, MemoryError, torch.OutOfMemoryError) as error:
        why = str(error) if isinstance(error, DataError) else "there was not enough memory to predict it"
        return None, (f"no figures on the test split: {why}",)


def _metrics(trained: Trained, scores: Scores | None) -> dict[str, Any]:
    """Return test figures as `gandalf evaluate --json` prints them, and the course of the training."""
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
