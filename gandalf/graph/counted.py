"""Training points as estimates see them: through sums over points, wherever the points are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.graph.cooccurrence import Keep, conditional_graph
from gandalf.graph.estimates import Shrunk
from gandalf.graph.matched_pairs import Matches, match
from gandalf.graph.shrinkage import fit_shrunk


class Counted(Protocol):
    """What an estimate needs of the points: each is a sum over them, or is made of such sums."""

    @property
    def num_labels(self) -> int:
        """Number of labels L."""

    @property
    def has_texts(self) -> bool:
        """Whether points and labels have texts to be matched by."""

    def shrunk(self, seed: int) -> Shrunk:
        """The shrunk estimate with the strength that best predicts held-out co-occurrences."""

    def matches(self, seed: int) -> Matches:
        """Labels whose text is the text of points, and the pairs that can be observed on them."""

    def graph(self, keep: Keep, matches: Matches | None = None) -> csr_array:
        """The label graph of an estimate; given `matches`, own points are left out of each label's counts."""


@dataclass(frozen=True)
class InMemory:
    """Points that this process holds."""

    points: Dataset
    threads: int | None = None

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        return self.points.num_labels

    @property
    def has_texts(self) -> bool:
        """Whether points and labels have texts to be matched by."""
        return self.points.texts is not None and self.points.label_texts is not None

    def shrunk(self, seed: int) -> Shrunk:
        """The shrunk estimate with the strength that best predicts held-out co-occurrences."""
        return fit_shrunk(self.points.targets, seed=seed)

    def matches(self, seed: int) -> Matches:
        """Labels whose text is the text of points, and the pairs that can be observed on them."""
        return match(self.points, seed=seed)

    def graph(self, keep: Keep, matches: Matches | None = None) -> csr_array:
        """The label graph of an estimate; given `matches`, own points are left out of each label's counts."""
        own = None if matches is None else matches.own
        return conditional_graph(
            self.points.targets,
            keep.estimate,
            delta=keep.delta,
            top_k=keep.top_k,
            own=own,
            threads=self.threads,
        )
