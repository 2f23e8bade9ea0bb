"""The studies: lists of training runs, each a short list of differences from a system's recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from gandalf.settings import override
from gandalf.systems import recipe

MAN, WEB = "man", "LF-WebSeeAlsoTitles-6K"  # man: bundled, LF-ManSeeAlso-9K
DOCS, WORDNET = "LF-DocsSeeAlsoTitles-79K", "LF-WordNetRelated-64K"
SETS = (MAN, WEB, DOCS, WORDNET)
SYSTEMS = ("astec", "inceptionxml")
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Run:
    """A training run; two that are equal give the same figures."""

    data: str  # bundled name, folder in the root of the data, or path
    system: str
    targets: str = "none"
    keep: str = "both"
    settings: tuple[str, ...] = ()  # as --set takes them; they have the last word
    seed: int = 0
    split: Literal["validation", "test"] = "test"  # scored on

    @property
    def key(self) -> str:
        """What results are found by."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Run:
        """The run that a line of results tells of."""
        return Run(**{**stored, "settings": tuple(stored.get("settings", ()))})

    def __str__(self) -> str:
        words = (self.data, self.system, self.targets, self.keep, *self.settings, f"seed {self.seed}")
        return f"{' '.join(words)} ({self.split})"


# Label points by their names in the paper: targets, and which points are kept.
VARIANTS = {
    "D": ("none", "both"),
    "Z": ("ratio", "labels"),
    "U(G,N)": ("ratio", "uniform"),
    "Z1": ("self", "both"),
    "G": ("ratio", "both"),
    "shrunk": ("shrunk", "both"),
    "calibrated": ("calibrated", "both"),
}

# What a system needs on a data set, as --set takes it; nothing: the system's own recipe.
RECIPES: dict[tuple[str, str], tuple[str, ...]] = {}


def variant(name: str, system: str, data: str, *settings: str) -> Run:
    """The variant of that name, with the recipe of its system on the data and settings of its own."""
    targets, keep = VARIANTS[name]
    return Run(data, system, targets, keep, (*RECIPES.get((system, data), ()), *settings))


def seeded(runs: list[Run], seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    """Every run with each of the seeds, seed by seed: a study that is cut short has whole tables."""
    return [replace(run, seed=seed) for seed, run in product(seeds, runs)]


def on_validation(runs: list[Run]) -> list[Run]:
    """The same runs on training points alone, scored on a share of them."""
    return [replace(run, split="validation") for run in runs]


def main_study() -> list[Run]:
    """All variants of both systems on all sets, on the test split, at equal steps."""
    return seeded([variant(name, system, data) for data, system, name in product(SETS, SYSTEMS, VARIANTS)])


def plateau() -> list[Run]:
    """Whether half or twice the steps would change who wins: then the study is not at its plateau."""
    return on_validation(
        seeded(
            [
                variant(name, system, data, f"training.epochs={times * epochs(system, data):g}")
                for data, system, times in product(SETS, SYSTEMS, (0.5, 1.0, 2.0))
                for name in ("D", "Z1", "G", "calibrated")
            ]
        )
    )


def epochs(system: str, data: str) -> float:
    """How long the recipe of the system trains on the data."""
    return override(recipe(system), RECIPES.get((system, data), ())).training.epochs


def who_gains() -> list[Run]:
    """Scale, weight and order of the label points, for texts that are labels' and for new ones."""
    sets, names = (MAN, WEB), ("G", "calibrated")
    base = [variant(name, system, data) for data, system, name in product(sets, SYSTEMS, ("D", "Z1"))]
    changed = [
        variant(name, system, data, *settings)
        for data, system, name in product(sets, SYSTEMS, names)
        for settings in label_point_settings((0.3, 1.0), (0.3, 1.0), (0.5, 1.0))
    ]
    return on_validation(seeded([*base, *changed]))


def label_point_settings(
    scales: tuple[float, ...], weights: tuple[float, ...], shares: tuple[float, ...]
) -> list[tuple[str, ...]]:
    """Settings of every combination of scale, weight, and share of the updates that meet label points."""
    return [
        (f"targets.scale={scale:g}", f"targets.label_weight={weight:g}", f"targets.label_epochs={share:g}")
        for scale, weight, share in product(scales, weights, shares)
    ]


STUDIES: dict[str, Callable[[], list[Run]]] = {
    "main": main_study,
    "who_gains": who_gains,
    "plateau": plateau,
}
