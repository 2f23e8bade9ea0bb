"""Build the label graph of a run or of a trained model; only a teacher's targets need PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.graph.kind import LabelGraph
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.recipe import Recipe, Targets
from gandalf.settings import from_dict

if TYPE_CHECKING:
    from gandalf.model import Part
    from gandalf.predict.explain import Background


def graph_options(targets: Targets, seed: int) -> GraphOptions:
    """Return the options of a run's graph; refuse the targets `none` and `auto`, which have no graph."""
    if targets.targets in ("none", "auto"):
        raise DataError(f"there is no label graph of {targets.targets} targets")
    return GraphOptions(
        targets=targets.targets,
        delta=targets.delta,
        top_k=targets.top_k,
        scale=targets.scale,
        strength=targets.strength,
        shared_text=targets.shared_text,
        seed=seed,
        teacher=targets.teacher,
    )


TRAIN_TEACHER = "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true"


def any_label_graph(points: Dataset, options: GraphOptions, device: str = "cpu") -> LabelGraph:
    """Build the label graph of the training points; for teacher targets, read the teacher first."""
    if options.needs != "vectors":
        return label_graph(points, options)
    folder = check_teacher(options.teacher)
    _, texts = points.need_texts("a teacher's targets")
    return label_graph(points, options, _teacher_vectors(folder, texts, device))


def check_teacher(folder: str | None) -> str:
    """Return the teacher's folder; refuse an encoder that never learnt to put a text near its labels'.

    A pre-trained transformer passes: its makers may have taught it that.
    """
    if folder is None:
        what = "targets of a teacher need a model whose encoder was trained on pairs"
        raise DataError(what, remedy=f"name its folder as the teacher; one is made by {TRAIN_TEACHER}")
    from gandalf.model.facts import read_facts

    config = read_facts(Path(folder)).config
    try:
        pairs, encoder = config["recipe"]["siamese"]["kind"] != "none", config["recipe"]["encoder"]
        untouched = encoder["frozen"] and encoder["from_model"] is None
        if pairs or (_is_pretrained(encoder["kind"]) and untouched):
            return folder
    except (KeyError, TypeError):
        return folder  # not made by a run of ours, so the folder need not tell
    what = "was trained without pairs (its siamese.kind is none), so its encoder cannot be a teacher"
    begun = encoder["from_model"]
    other = "another model" if begun is None else f"{begun}, with whose encoder it began, or another model"
    raise DataError(what, remedy=f"name {other} as the teacher; one is made by {TRAIN_TEACHER}", file=folder)


def _teacher_vectors(folder: str, texts: Sequence[str], device: str) -> npt.NDArray[np.floating[Any]]:
    """Return the teacher's vectors of the label texts."""  # shape: (L, dim)
    from gandalf.model import load_network

    found: npt.NDArray[np.floating[Any]] = load_network(folder, device).vectors(texts).cpu().numpy()
    return found


def _is_pretrained(kind: str) -> bool:
    from gandalf.nets.encoders import encoder_kind

    return encoder_kind(kind).pretrained


def background_of(model: Part, splits: Splits) -> Background:
    """Return the points that the model was trained on and the graph of its recipe, made from all points.

    A run holds some points out, so its own graph may differ a little. A model without label points, or
    without a readable recipe, is explained by the graph of the default recipe.
    """
    from gandalf.predict.explain import background

    if splits.origin is not None:
        raise DataError(f"{splits.name!r} is an augmented set", remedy="give the original set")
    targets, seed = _targets_of(model)
    graph = any_label_graph(splits.train, graph_options(targets, seed))
    return background(model, splits.train, graph.matrix)


def _targets_of(model: Part) -> tuple[Targets, int]:
    try:
        recipe = from_dict(Recipe, model.config["recipe"])
    except (KeyError, TypeError, DataError):
        return Targets(), 0
    known = recipe.targets if recipe.targets.targets not in ("none", "auto") else Targets()
    return known, recipe.seed
