"""Label graph of a run, by any kind of targets; only a teacher's targets need PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.kind import LabelGraph
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.recipe import Targets


def graph_options(targets: Targets, seed: int) -> GraphOptions:
    """Return the options of a run's graph; `none` and `auto` have no graph."""
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


TRAIN = "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true"


def any_label_graph(points: Dataset, options: GraphOptions, device: str = "cpu") -> LabelGraph:
    """Build the label graph of the training points; for teacher targets, read the teacher first."""
    if options.needs != "vectors":
        return label_graph(points, options)
    folder = check_teacher(options.teacher)
    _, texts = points.need_texts("a teacher's targets")
    return label_graph(points, options, _vectors(folder, texts, device))


def check_teacher(folder: str | None) -> str:
    """Return the teacher's folder; refuse an encoder that never learnt to put a text near its labels'.

    A pre-trained transformer passes: its makers may have taught it that.
    """
    if folder is None:
        what = "targets of a teacher need a model whose encoder was trained on pairs"
        raise DataError(what, remedy=f"name its folder as the teacher; one is made by {TRAIN}")
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
    raise DataError(what, remedy=f"name {other} as the teacher; one is made by {TRAIN}", file=folder)


def _vectors(folder: str, texts: Sequence[str], device: str) -> npt.NDArray[np.floating[Any]]:
    """Return the teacher's vectors of the label texts."""  # shape: (L, dim)
    from gandalf.model import load_network

    found: npt.NDArray[np.floating[Any]] = load_network(folder, device).vectors(texts).cpu().numpy()
    return found


def _is_pretrained(kind: str) -> bool:
    from gandalf.nets.encoders import encoder_kind

    return encoder_kind(kind).pretrained
