"""The label graph by any estimate, a trained siamese encoder's among them; others need no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, LabelGraph, label_graph

TRAIN = "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true"


def any_label_graph(points: Dataset, options: GraphOptions, device: str = "cpu") -> LabelGraph:
    """The label graph of the training points; where a teacher makes it, its model is read first."""
    if options.targets != "teacher":
        return label_graph(points, options)
    folder = sound_teacher(options.teacher)
    _, texts = points.need_texts("a teacher's targets")
    return label_graph(points, options, _vectors(folder, texts, device))


def sound_teacher(folder: str | None) -> str:
    """The teacher's folder; refused where nothing has taught its encoder to put a text near its labels'.

    A pre-trained transformer as it comes may have learnt that from those who made it, and passes.
    """
    if folder is None:
        what = "targets of a teacher need a model whose encoder was trained on pairs"
        raise DataError(what, remedy=f"name its folder as the teacher; one is made by {TRAIN}")
    from gandalf.model.layout import read_facts

    config = read_facts(Path(folder)).config
    try:
        pairs, encoder = config["recipe"]["siamese"]["kind"] != "none", config["recipe"]["encoder"]
        untouched = encoder["frozen"] and encoder["from_model"] is None
        if pairs or (encoder["kind"] == "transformer" and untouched):
            return folder
    except (KeyError, TypeError):
        return folder  # made by other hands than a run's, which need not tell how
    what = "was trained without pairs (its siamese.kind is none), so its encoder cannot be a teacher"
    begun = encoder["from_model"]
    other = "another model" if begun is None else f"{begun}, with whose encoder it began, or another model"
    raise DataError(what, remedy=f"name {other} as the teacher; one is made by {TRAIN}", file=folder)


def _vectors(folder: str, texts: Sequence[str], device: str) -> npt.NDArray[np.floating[Any]]:
    """The teacher's vectors of the label texts."""  # shape: (L, dim)
    from gandalf.model import load_network

    found: npt.NDArray[np.floating[Any]] = load_network(folder, device).vectors(texts).cpu().numpy()
    return found
