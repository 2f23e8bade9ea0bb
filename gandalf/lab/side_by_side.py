"""Models trained side by side on one data set, and how they came out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gandalf.graph.postulate import Diagnosis
from gandalf.metrics.bootstrap import Comparison
from gandalf.metrics.evaluate import Scores

OURS = "default"  # the variant that the others are compared with


@dataclass(frozen=True)
class Variant:
    """One way to treat the label texts: a recipe with some settings changed."""

    name: str
    what: str  # in a few words
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A label that a model gave to a query."""

    label: str
    probability: float
    right: bool | None  # None where nobody knows


@dataclass(frozen=True, eq=False)
class Entry:
    """A trained variant: its figures, the course of its training and its answers."""

    variant: Variant
    scores: Scores  # on the test split
    held: Scores | None  # on the training points held out for validation, where there are any
    history: list[dict[str, Any]]  # of the validations
    training: dict[str, Any]  # points, updates, seconds
    answers: tuple[tuple[Answer, ...], ...]  # of each query, best first

    @property
    def name(self) -> str:
        """The variant's."""
        return self.variant.name

    @property
    def steps(self) -> int:
        """Number of updates."""
        return int(self.training["steps"])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "what": self.variant.what,
            "settings": list(self.variant.settings),
            "test": self.scores.as_dict(),
            "held_out": None if self.held is None else self.held.as_dict(),
            "validation": self.history,
            "training": self.training,
        }


@dataclass(frozen=True)
class Questions:
    """What every model is asked, and by which rule."""

    texts: tuple[str, ...]
    rule: str

    @property
    def numbers(self) -> range:
        """Of the texts."""
        return range(len(self.texts))


@dataclass(frozen=True, eq=False)
class SideBySide:
    """All variants, what tells them apart, and which of them was saved."""

    data: str
    points: int
    held_out: int  # of them, for validation; those with a label that can be asked for are scored
    labels: int
    recipe: dict[str, Any]
    entries: tuple[Entry, ...]
    questions: Questions
    differences: dict[str, Comparison]  # ours minus the variant of that name, on the test split
    saved: str
    why: str
    diagnosis: Diagnosis

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "data": {
                "name": self.data,
                "points": self.points,
                "held_out": self.held_out,
                "labels": self.labels,
            },
            "recipe": self.recipe,
            "variants": {entry.name: entry.as_dict() for entry in self.entries},
            "differences": {f"{OURS} - {name}": each.as_dict() for name, each in self.differences.items()},
            "queries": {"rule": self.questions.rule, "asked": [*map(self._asked, self.questions.numbers)]},
            "saved": {"variant": self.saved, "why": self.why},
            "diagnosis": self.diagnosis.as_dict(),
        }

    def _asked(self, number: int) -> dict[str, Any]:
        answers = {entry.name: [asdict(each) for each in entry.answers[number]] for entry in self.entries}
        return {"text": self.questions.texts[number], "answers": answers}
