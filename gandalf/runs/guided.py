"""Guidance by the label graph in a siamese stage: the graph that guides, and when its means are made anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.nets.encoders import encode_tokens
from gandalf.train.guidance import Guidance
from gandalf.train.loop import Training

GRAPH = "shrunk"  # targets of the graph that guides, whatever those of the label points are


def guidance(rest: Dataset, weight: float) -> Guidance | None:
    """Return the guidance by the graph of these training points; None without a weight."""
    return Guidance(label_graph(rest, GraphOptions(GRAPH)).matrix, weight) if weight else None


class RefreshMeans:
    """Hook that makes the means of neighbours anew from time to time."""

    def __init__(self, guide: Guidance, tokens: npt.NDArray[np.int32], every: int) -> None:
        self.guide, self.tokens, self.steps = guide, tokens, every

    def every(self, training: Training) -> int:
        """Return the number of steps between two refreshes."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make them; never end the training."""
        if training.step < training.steps:
            self.guide.refresh(encode_tokens(training.encoder, self.tokens))
        return False
