"""What a run gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gandalf.model import Part


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run gives: the model and the course of its training."""

    model: Part
    history: list[dict[str, Any]]  # of the validations
    seconds: float
    steps: int
    details: dict[str, Any] = field(default_factory=dict)  # of the label graph
    points: int = 0  # training points that were trained on
    label_points: int = 0
    taken_over: dict[str, Any] | None = None  # of a first stage that another run had made

    @property
    def kept(self) -> dict[str, Any] | None:
        """The validation of the weights that were kept: the best where there is patience, else the last."""
        last = [
            each for each in self.history if "stage" not in each
        ]  # of earlier stages no weights were kept
        if not last:
            return None
        patience = self.model.config["validation"]["patience"]
        return max(last, key=lambda each: float(each["value"])) if patience else last[-1]
