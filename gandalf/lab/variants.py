"""Describe a training run by its differences from a system's recipe, and name the paper's variants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from gandalf.recipe import Recipe
from gandalf.settings import override
from gandalf.systems import recipe


@dataclass(frozen=True)
class Run:
    """A training run; two that are equal give the same figures on the same data."""

    data: str  # bundled name, folder in the root of the data, or path
    system: str
    targets: str = "none"
    keep: str = "both"
    settings: tuple[str, ...] = ()  # as --set takes them; they have the last word
    seed: int = 0
    split: Literal["validation", "test"] = "test"  # scored on

    @property
    def key(self) -> str:
        """Return the hash by which results of the run are found."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Run:
        """Return the run of a stored line."""
        return Run(**{**stored, "settings": tuple(stored.get("settings", ()))})

    def __str__(self) -> str:
        words = (self.data, self.system, self.targets, self.keep, *self.settings, f"seed {self.seed}")
        return f"{' '.join(words)} ({self.split})"


class Variant(NamedTuple):
    """Targets of label points, which points are kept, and what else there is to say of them."""

    targets: str
    keep: str = "both"
    settings: tuple[str, ...] = ("targets.label_epochs=1",)  # as in the paper: to the last step

    def as_settings(self) -> tuple[str, ...]:
        """Return the variant as `--set` takes it, without the points that are kept."""
        return (f"targets.targets={self.targets}", *self.settings)


# Label points by their names in the paper, the better estimates in their place, and our own recipe.
VARIANTS = {
    "D": Variant("none"),
    "Z": Variant("ratio", "labels"),
    "U(G,N)": Variant("ratio", "uniform"),
    "Z1": Variant("self"),
    "G": Variant("ratio"),
    "shrunk": Variant("shrunk"),
    "calibrated": Variant("calibrated"),
    "default": Variant("shrunk", settings=("targets.label_epochs=0.7",)),
}

SAID_BY_ROWS = (
    *("system", "seed", "targets.targets", "targets.keep", "targets.label_epochs", "targets.delta"),
    *("targets.share", "targets.order", "validation.share"),
)
OWN_BASELINE = {"renee": "Z1"}  # of a system whose published rows have label points; of the others D


def of_variant(variant: Variant, system: str, data: str, *settings: str) -> Run:
    """Return a run of the variant, with more settings."""
    targets, keep, own = variant
    return Run(data, system, targets, keep, (*own, *settings))


def variant_name(run: Run) -> str | None:
    """Return the name of the run's variant, or None."""
    for name, (targets, keep, settings) in VARIANTS.items():
        if (run.targets, run.keep) == (targets, keep) and set(settings) <= set(run.settings):
            return name
    return None


def settings_of(given: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """Return the settings of a file as `--set` takes them, without those that a study's rows set."""
    found: list[str] = []
    for name, value in given.items():
        if isinstance(value, Mapping):
            found += settings_of(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" not in SAID_BY_ROWS:
            found.append(f"{prefix}{name}={value if isinstance(value, str) else json.dumps(value)}")
    return tuple(found)


@lru_cache(maxsize=1024)  # rows of several studies are one run
def recipe_of(run: Run) -> Recipe:
    """Return the recipe of the run's system with the run's settings."""
    changes = (f"seed={run.seed}", f"targets.targets={run.targets}", f"targets.keep={run.keep}")
    return override(recipe(run.system), (*changes, "validation.share=0", *run.settings))
