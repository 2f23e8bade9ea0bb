"""Which of several models is the best on held-out points, by more than noise."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import Part, Scores
from gandalf.recipe import Judged, Validation

FEW = 100  # held-out points: a share with fewer decides nothing, and all points decide instead
TEXTS: dict[Judged, str] = {"new": "new texts", "label": "texts of labels", "all": "all texts"}

Model = TypeVar("Model", bound=Hashable)


def judged(scores: Scores, texts: Judged) -> Part:
    """The part of the points that decides, or all where it is too small to decide anything."""
    part = {"new": scores.new_text, "label": scores.label_text, "all": scores.filtered}[texts]
    return scores.filtered if part is None or part.points < FEW else part


@dataclass(frozen=True)
class Judge:
    """By which figure and on which of the held-out points models are compared."""

    metric: str
    texts: Judged
    points: int

    @staticmethod
    def of(scores: Scores, options: Validation) -> Judge:
        """All points decide where there are too few of those that are to."""
        part = judged(scores, options.texts)
        return Judge(options.metric, "all" if part is scores.filtered else options.texts, part.points)

    @property
    def by(self) -> str:
        """What decides, in words."""
        return f"{self.metric} on {TEXTS[self.texts]}"

    def difference(self, one: Scores, other: Scores) -> Difference:
        """One minus other, and how far that may be noise."""
        found = compare(one, other)
        part = {"new": found.new_text, "label": found.label_text, "all": found.every}[self.texts]
        assert part is not None
        return part[self.metric]

    def best(self, scores: Mapping[Model, Scores], start: Model) -> Model:
        """The model that beats the one to start from by more than noise, and most so; else that one.

        Held-out points are few, and whatever came first on them would else be luck.
        """
        found = {each: self.difference(scores[each], scores[start]) for each in scores if each != start}
        better = {each: gain.difference for each, gain in found.items() if gain.low > 0}
        return max(better, key=better.__getitem__, default=start)
