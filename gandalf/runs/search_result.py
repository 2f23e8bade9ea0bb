"""Report a search: the candidates that were tried, the model that was chosen, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gandalf.metrics.evaluate import Scores
from gandalf.runs.baselines import Baseline
from gandalf.runs.mix_weights import FittedMix
from gandalf.runs.remember import MemoryTrial
from gandalf.runs.validation import DECIDING, Trained, key_figures, objective


@dataclass
class TriedCandidate:
    """A candidate with its figures on the held-out points, or a note why there are none."""

    name: str
    scores: Scores | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        return {
            "name": self.name,
            **({} if self.scores is None else key_figures(self.scores)),
            "seconds": round(self.seconds, 3),
            "weight": self.weight,
            "note": self.note,
        }


@dataclass
class SearchResult:
    """The chosen model, why it was chosen, and the candidates and baselines that it was compared with."""

    trained: Trained
    tried: list[TriedCandidate]
    baselines: Sequence[Baseline]
    scores: Scores | None  # of the chosen model on the held-out points
    why: str
    minutes: float
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """The whole comparison, for `metrics.json`."""
        return {
            "chosen": {} if self.scores is None else key_figures(self.scores),
            "why": self.why,
            "minutes": self.minutes,
            "held_out_points": 0 if self.scores is None else self.scores.filtered.points,
            "tried": [each.as_dict() for each in self.tried],
            "baselines": [each.as_dict() for each in self.baselines],
            "notes": list(self.notes),
        }


def why_chosen(mix: FittedMix, tried: Sequence[TriedCandidate]) -> str:
    """Return in a sentence why a mix, or one part alone, was chosen."""
    single = {row.name: row.scores for row in tried if row.scores is not None}
    best = max(single, key=lambda name: objective(single[name]))
    if len(single) == 1:
        return f"{best} alone: no other part was trained"
    if len(mix.names) == 1:
        return f"{mix.names[0]} alone: no mix is better on held-out points by more than a fifth of a point"
    gains = _gains_in_words(mix.scores, single[best])
    return f"{_mix_in_words(mix.shares)}: {gains} against {best} alone, on held-out points"


def why_of_few(shares: Mapping[str, float], held: int, points: int | None) -> str:
    """Return how a mix was made if `held` points are too few to choose by.

    `points` is the number of held-out points of all repeated trials; None if these are too few, too.
    """
    found = f"{_mix_in_words(shares)}, learnt from all points"
    if points is None:
        return f"{found}; the {held} that can be held out are too few to choose by"
    return f"{found}; chosen by repeated trials with {points} held-out points in all"


def why_memory(chosen: MemoryTrial, before: Scores) -> str:
    """Return in a phrase what a memory changes."""
    gains = _gains_in_words(chosen.fitted.scores, before)
    return f"a memory of {chosen.weight:.0%}: {gains} against the same without it"


def _mix_in_words(shares: Mapping[str, float]) -> str:
    words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{next(iter(shares))} alone" if len(shares) == 1 else f"a mix of {words}"


def _gains_in_words(after: Scores, before: Scores) -> str:
    return ", ".join(f"{name} {after[name] - before[name]:+.1f}" for name in DECIDING)
