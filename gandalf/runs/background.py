"""The training data behind a model, for explanations: a model folder holds none of it."""

from __future__ import annotations

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.predict.explain import Background, background
from gandalf.recipe import Recipe, Targets
from gandalf.runs.prepare import graph_options
from gandalf.runs.teacher import any_label_graph
from gandalf.settings import from_dict


def background_of(model: Part, splits: Splits) -> Background:
    """Return the points that the model was trained on and the graph of its recipe, made from all points.

    A run holds some points out, so its own graph may differ a little. A model without label points, or
    of unknown making, is explained by the graph of the default recipe.
    """
    if splits.origin is not None:
        raise DataError(f"{splits.name!r} is an augmented set", remedy="give the original set")
    targets, seed = _recipe(model)
    graph = any_label_graph(splits.train, graph_options(targets, seed))
    return background(model, splits.train, graph.matrix)


def _recipe(model: Part) -> tuple[Targets, int]:
    try:
        recipe = from_dict(Recipe, model.config["recipe"])
    except (KeyError, TypeError, DataError):
        return Targets(), 0
    known = recipe.targets if recipe.targets.targets not in ("none", "auto") else Targets()
    return known, recipe.seed
