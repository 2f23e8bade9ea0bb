"""What `gandalf train` will take on a data set, for `gandalf check`: the plan that the run itself makes."""

from __future__ import annotations

from dataclasses import replace

from gandalf.data.dataset import Splits
from gandalf.data.forecast import Cost, Forecast
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.runs.budget import START_SECONDS, Size, search_minutes, speed
from gandalf.runs.cost import H200, cost, here
from gandalf.runs.plan import resolved, resolved_device
from gandalf.systems import frozen
from gandalf.systems import recipe as recipe_of

SYSTEM = "astec"
_TRAINING = "training"  # how rows and assumptions begin that a run's own plan replaces


def with_runs(found: Forecast, splits: Splits) -> Forecast:
    """Return the forecast with the costs of a run as the run itself plans them."""
    runs, said = _runs(splits)
    kept = [each for each in found.costs if not each.step.startswith(_TRAINING)]
    graph = [each for each in kept if each.step == "graph"]
    others = [each for each in kept if each.step != "graph"]
    assumptions = [each for each in found.assumptions if not each.startswith(_TRAINING)]
    return replace(found, costs=(*graph, *runs, *others), assumptions=(said, *assumptions))


def _runs(splits: Splits) -> tuple[list[Cost], str]:
    """Return costs of the search and of one system, and what they rest on."""
    size, recipe = Size.of(splits.train), recipe_of(SYSTEM)
    texts = [*(splits.train.texts or ()), *splits.train.all_label_texts]
    words = len({word for text in texts for word in split_words(text)})
    one, there = (cost(recipe, size, words, machine) for machine in (here(), H200))
    most = max(one.memory, _memory(frozen(), size, words))
    minutes = search_minutes(None, size, speed(resolved_device("auto")))
    rows = [
        Cost("train DATA OUT", 60 * minutes, most, "at most: it tries several models in this time"),
        Cost(f"train --system {SYSTEM}", one.seconds + START_SECONDS, one.memory),
        Cost(f"train --system {SYSTEM}, one H200", there.seconds + START_SECONDS, there.memory),
    ]
    ready = resolved(recipe, size.points, size.labels)
    epochs, batch = recipe.training.epochs, ready.training.batch
    said = (
        f"train: the run's own plan; {SYSTEM} makes {one.steps:,} updates ({epochs:g} epochs, batch {batch})"
    )
    return rows, said


def _memory(recipe: Recipe, size: Size, words: int) -> int:
    """Return what a part of the search takes; 0 where its transformer is not installed."""
    try:
        return cost(recipe, size, words, here()).memory
    except DataError:
        return 0
