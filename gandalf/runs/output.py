"""A run in a folder: what is there while it trains, and the model that it leaves there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from gandalf.data.claim import LOCK, is_leftover, remove
from gandalf.data.dataset import Splits
from gandalf.data.files import sync_folder, written
from gandalf.errors import DataError, argument
from gandalf.memory.files import ARRAYS as MEMORY_ARRAYS
from gandalf.memory.files import RECORDS as MEMORY_RECORDS
from gandalf.metrics.evaluate import Scores
from gandalf.model import Part, write_model
from gandalf.model.layout import CARD, CONFIG, FORMAT, LABELS, METRICS, RECIPE, TEXT_COLUMN, WEIGHTS
from gandalf.model.trees import Trees
from gandalf.recipe import Recipe
from gandalf.runs.checks import check_points, check_ranks, check_recipe
from gandalf.runs.claim import alone_in, by_first
from gandalf.runs.place import CHECKPOINTS, Place
from gandalf.runs.remember import train_with_memory
from gandalf.runs.search import MARK as SEARCH
from gandalf.runs.search import search
from gandalf.runs.testing import test_scores
from gandalf.runs.trained import Trained
from gandalf.runs.tried import Teller
from gandalf.runs.yardsticks import beaten, yardsticks
from gandalf.settings import as_toml, changes, from_dict, read_toml, to_dict, updated
from gandalf.systems import AUTO
from gandalf.systems import recipe as recipe_of
from gandalf.text import subwords, words
from gandalf.train.logs import EVENTS, LOG
from gandalf.train.machine_memory import peak_bytes
from gandalf.wide.folder import PARTS, read_json
from gandalf.wide.wide_model import SETTINGS
from gandalf.wide.wide_model import WORDS as TREE_WORDS

CHOICE = "choice.json"  # beside the checkpoints
MARK = "# The recipe of this run of gandalf train."
OWN = {
    *(RECIPE, LOG, CHECKPOINTS),
    *(CONFIG, WEIGHTS, LABELS, METRICS, CARD, words.FILE, subwords.FILE, subwords.TOKENIZER),
    *(TREE_WORDS, SETTINGS, PARTS),
    *(MEMORY_ARRAYS, MEMORY_RECORDS),
}
_TREE = re.compile(r"tree\d+\.cbor")

State = Literal["new", "unfinished", "finished", "foreign"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run left in its folder, and the figures that stand in `metrics.json`."""

    trained: Trained
    scores: Scores | None  # on the test split
    metrics: dict[str, Any]
    notes: tuple[str, ...] = ()
    search: dict[str, Any] | None = None  # what was tried, and why this was chosen


def state_of(folder: Path) -> State:
    """Whether the folder is free for a run, or holds one, finished or not, or something else."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file where a folder is to be written", remedy="choose another OUT", file=folder)
    names = _names(folder)
    if all(is_leftover(name) for name in names):
        return "new"
    searching = (folder / CHECKPOINTS / SEARCH).is_file()  # what is there is only the first usable model
    if CONFIG in names and not searching and read_json(folder / CONFIG).get("format") == FORMAT:
        return "finished"
    if RECIPE in names and (folder / RECIPE).read_bytes().startswith(MARK.encode()):
        return "unfinished"
    return "foreign"


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished run; what one that was killed at its very end left is removed."""
    if state_of(folder) != "finished":
        return False
    remove(folder / CHECKPOINTS)
    return True


def refuse_other_settings(folder: Path, recipe: Recipe) -> None:
    """Refuse to call a finished run done where other settings are asked for."""
    path = folder / RECIPE
    if not path.is_file():
        return  # a model without its recipe, such as one made in Python
    given = read_toml(path)
    before = updated(recipe_of(str(given.get("system", Recipe().system))), given, file=path)
    if changed := changes(to_dict(before), to_dict(recipe)):
        raise _other_run(folder, f"settings: {changed}")


def refuse_other_data(folder: Path, splits: Splits) -> None:
    """Refuse to call a finished run done where other data are given, as far as name and size tell."""
    config = read_json(folder / CONFIG).get("config")
    before = config.get("data") if isinstance(config, dict) else None
    if isinstance(before, dict) and (changed := changes(before, splits.about)):
        raise _other_run(folder, f"data: {changed}")


def _other_run(folder: Path, differing: str) -> DataError:
    given, instead = argument("resume", True), argument("overwrite", True)
    remedy = f"choose another folder, or replace it with {instead} in place of {given}"
    return DataError(f"holds the finished run of other {differing}", remedy=remedy, file=folder)


def refuse_to_lose(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Never write over what another command or a person put there, nor over a run unless told to."""
    if resume and overwrite:
        raise DataError("a run cannot both be resumed and begin anew", remedy="leave out one of the two")
    state = state_of(folder)
    foreign = [name for name in _names(folder) if not _is_own(name)] if state != "new" else []
    if state == "foreign" or (overwrite and foreign):
        what = (
            f"holds {sorted(foreign or _names(folder))[0]}, which is not part of a run, and is not replaced"
        )
        raise DataError(what, remedy="choose another folder, or move that away", file=folder)
    if state == "unfinished" and not (resume or overwrite):
        remedy = f"go on with {argument('resume', True)}, or begin anew with {argument('overwrite', True)}"
        raise DataError("holds a run that is not finished", remedy=remedy, file=folder)
    if state == "finished" and not (resume or overwrite):
        remedy = f"choose another folder, or replace it with {argument('overwrite', True)}"
        raise DataError("holds a model already", remedy=remedy, file=folder)


@contextmanager
def claimed(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """The folder for one run alone, and sure to hold nothing that the run would lose."""
    with alone_in(folder):
        refuse_to_lose(folder, resume=resume, overwrite=overwrite)  # as the last run has left it
        yield


@dataclass(frozen=True)
class Told:
    """Who is told of a run while it goes on."""

    choice: Callable[[dict[str, Any]], None] = lambda table: None  # the table that targets were chosen from
    search: Callable[[str], None] = lambda line: None  # what a search tries and finds


def train_to_folder(
    splits: Splits, recipe: Recipe, place: Place, *, overwrite: bool = False, told: Told | None = None
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


def train_claimed(splits: Splits, recipe: Recipe, place: Place, told: Told) -> Outcome:
    """Train in a folder that is claimed already and holds no finished run, unless it may be removed.

    Of several ranks the first writes what is not checkpoints.
    """
    folder, ranks = place.folder, place.ranks
    assert folder is not None
    check_recipe(recipe)
    check_points(splits.train)
    place.say_empty(splits.train.texts or ())
    check_ranks(recipe, splits.train.num_labels, ranks.world)
    if recipe.system == AUTO:
        return _searched(splits, recipe, place, told)
    with by_first(ranks, lambda: _begun(folder, recipe, fresh=not place.resume)):
        chosen, table = _chosen(splits, recipe, folder)
        if table is not None:
            told.choice(table)
        trained = train_with_memory(splits, chosen, place)
    if ranks.rank:
        return Outcome(trained, None, {})
    beside, notes = _yardsticks(trained, recipe.seed)
    more = {} if table is None else {"choice": table}
    return _finished(folder, trained, splits, more | beside, notes)


def _searched(splits: Splits, recipe: Recipe, place: Place, told: Told) -> Outcome:
    """Search for the best model; the first usable one is in the folder while the search goes on."""
    folder = place.folder
    assert folder is not None
    with _begun(folder, recipe, fresh=not place.resume):
        mark = folder / CHECKPOINTS / SEARCH
        mark.parent.mkdir(exist_ok=True)
        with written(mark) as file:
            json.dump({"asked": to_dict(recipe)}, file)
        found = search(splits, recipe, place, Teller(told.search, partial(_write_first, folder)))
    if isinstance(found.trained.model, Trees):  # its files have the names of the first model's
        _remove_first(folder)
    outcome = _finished(folder, found.trained, splits, {"search": found.table}, found.notes)
    if not isinstance(found.trained.model, Trees):
        for name in _first_names(folder):
            remove(folder / name)
    return replace(outcome, search=found.table)


def _write_first(folder: Path, part: Part) -> None:
    _remove_first(folder)
    write_model(part, folder)


def _finished(
    folder: Path, trained: Trained, splits: Splits, more: dict[str, Any], notes: tuple[str, ...]
) -> Outcome:
    """Score the model on the test split, write it, and remove what only an unfinished run needs."""
    scores, failed = _scores(trained, splits)
    if splits.text_column is not None:
        trained.model.config[TEXT_COLUMN] = splits.text_column  # where `gandalf predict` looks for texts
    metrics = _metrics(trained, scores) | more
    stale = () if isinstance(trained.model, Trees) else _first_names(folder)
    write_model(trained.model, folder, metrics=metrics, stale=stale)
    sync_folder(folder, spare=(CHECKPOINTS,))
    remove(folder / CHECKPOINTS)  # only now: until the model is on the disk, they are all there is
    return Outcome(trained, scores, metrics, (*notes, *failed))


def _remove_first(folder: Path) -> None:
    """Remove the first usable model, `config.json` before the others: a kill leaves an unfinished run."""
    remove(folder / CONFIG)
    for name in _first_names(folder):
        remove(folder / name)


def _first_names(folder: Path) -> list[str]:
    """Return the files that only the first usable model of a search has."""
    return [name for name in _names(folder) if name in (TREE_WORDS, SETTINGS) or _TREE.fullmatch(name)]


def _yardsticks(trained: Trained, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what cheap models reach on the same held-out points, and a note where they are ahead."""
    if trained.held is None:
        return {}, ()
    rivals, notes = yardsticks([trained.held.splits], seed)
    behind = beaten(trained.held.evaluated(), rivals)
    found = {"baselines": [each.as_dict() for each in rivals]}
    return found, (*notes, *([] if behind is None else [behind]))


@contextmanager
def _begun(folder: Path, recipe: Recipe, fresh: bool) -> Iterator[None]:
    """The folder, ready for a run; if the body fails before any training, nothing is left in it."""
    try:
        # config.json first and the recipe last: whatever a kill leaves here is an unfinished run.
        for name in sorted(_names(folder), key=lambda name: (name != CONFIG, name == RECIPE)):
            if is_leftover(name) or (fresh and _is_own(name)):
                remove(folder / name)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=folder) from error
    with written(folder / RECIPE) as file:
        file.write(f"{MARK} Again: gandalf train DATA OUT --config {RECIPE}\n\n")
        file.write(as_toml(recipe, recipe_of(recipe.system)))
    try:
        yield
    except DataError:
        if _names(folder) == [RECIPE]:
            remove(folder / RECIPE)
        raise


def _chosen(splits: Splits, recipe: Recipe, folder: Path) -> tuple[Recipe, Any]:
    """The recipe with its targets chosen, and the table they were chosen from; once for a run."""
    if recipe.targets.targets != "auto":
        return recipe, None
    path, asked = folder / CHECKPOINTS / CHOICE, to_dict(recipe)
    if path.is_file():
        made = read_json(path)
        if made.get("asked") == json.loads(json.dumps(asked)):
            return from_dict(Recipe, made["recipe"], file=path), made["table"]
    from gandalf.runs.auto import choose

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


def _names(folder: Path) -> list[str]:
    """What is in the folder; the lock is nobody's, and goes with the run that took it."""
    return [path.name for path in folder.iterdir() if path.name != LOCK] if folder.is_dir() else []


def _is_own(name: str) -> bool:
    return name in OWN or is_leftover(name) or name.startswith(EVENTS) or bool(_TREE.fullmatch(name))
