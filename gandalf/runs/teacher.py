"""The label graph by any estimate, a trained siamese encoder's among them; others need no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, LabelGraph, label_graph


def any_label_graph(points: Dataset, options: GraphOptions, device: str = "cpu") -> LabelGraph:
    """The label graph of the training points; where a teacher makes it, its model is read first."""
    if options.targets != "teacher":
        return label_graph(points, options)
    if options.teacher is None:
        what = "targets of a teacher need a model whose encoder was trained on pairs"
        train = "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true"
        raise DataError(what, remedy=f"name its folder as the teacher; one is made by {train}")
    _, texts = points.need_texts("a teacher's targets")
    return label_graph(points, options, _vectors(options.teacher, texts, device))


def _vectors(folder: str, texts: Sequence[str], device: str) -> npt.NDArray[np.floating[Any]]:
    """The teacher's vectors of the label texts."""  # shape: (L, dim)
    from gandalf.model import load_model

    found: npt.NDArray[np.floating[Any]] = load_model(folder, device).vectors(texts).cpu().numpy()
    return found
