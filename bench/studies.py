"""The studies: lists of training runs, each a short list of differences from a system's recipe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import product

from gandalf import systems
from gandalf.lab.studies import StudyScope, entries
from gandalf.lab.variants import (
    OWN_BASELINE,
    VARIANTS,
    Run,
    of_variant,
    on_validation,
    variant_name,
)
from gandalf.lab.variants import seeded as with_seeds
from gandalf.settings import override
from gandalf.systems import recipe

__all__ = ["OWN_BASELINE", "RUN_LISTS", "VARIANTS", "Run", "variant_name"]

MAN, WEB = "man", "LF-WebSeeAlsoTitles-6K"  # man: bundled, LF-ManSeeAlso-9K
DOCS, WORDNET = "LF-DocsSeeAlsoTitles-79K", "LF-WordNetRelated-64K"
SETS = (MAN, WEB, DOCS, WORDNET)
SYSTEMS = ("astec", "inceptionxml")
SEEDS = (0, 1, 2)
EVERY_SYSTEM = systems.NETWORKS


# What a system needs on a data set, as --set takes it; nothing: the system's own recipe. All titles are
# short: 16 words are enough of them, and 24 of a transformer's tokens.
RECIPES: dict[tuple[str, str], tuple[str, ...]] = {
    ("inceptionxml", MAN): ("text.max_length=16",),
    ("inceptionxml", WEB): ("text.max_length=16",),
    ("inceptionxml", DOCS): ("text.max_length=16", "training.epochs=15"),
    ("inceptionxml", WORDNET): ("text.max_length=16", "training.epochs=15"),
    ("inceptionxml-lf", MAN): ("text.max_length=16",),
    ("inceptionxml-lf", WEB): ("text.max_length=16",),
    ("inceptionxml-lf", DOCS): ("text.max_length=16", "training.epochs=15"),
    **{key: ("text.max_length=24",) for key in product(("ngame", "renee"), (MAN, WEB, DOCS))},
}
# Runs until commit 0f17dd6, when no rate followed the batch: what they said themselves, of batches of 1,024.
FORMER: dict[tuple[str, str], tuple[str, ...]] = {("renee", DOCS): ("head.rate=400",)}


def variant(name: str, system: str, data: str, *settings: str) -> Run:
    """The variant of that name, with the recipe of its system on the data and settings of its own."""
    return of_variant(VARIANTS[name], system, data, *RECIPES.get((system, data), ()), *settings)


def seeded(runs: list[Run], seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    """Return every run with each seed, seed by seed: a study that is cut short has whole tables."""
    return with_seeds(runs, seeds)


def keys_of(runs: Iterable[Run], stored: Collection[str]) -> set[str]:
    """Return the keys by which lines of the runs are stored: their own, else that of former code."""

    def key(run: Run) -> str:
        former = replace(run, settings=(*run.settings, *FORMER.get((run.system, run.data), ())))
        return former.key if former.key in stored and run.key not in stored else run.key

    return {key(run) for run in runs}


def main_study() -> list[Run]:
    """All variants of both systems on all sets, on the test split, at equal steps."""
    runs = seeded([variant(name, system, data) for data, system, name in product(SETS, SYSTEMS, VARIANTS)])
    return [run for run in runs if run.seed in seeds_of(run)]


def seeds_of(run: Run) -> tuple[int, ...]:
    """The paper's controls once, to see what they are; all others with every seed."""
    return SEEDS if run.keep == "both" else SEEDS[:1]


def systems_study() -> list[Run]:
    """Every system by itself, with the paper's label points and with ours; those of other studies count."""
    runs = []
    for data, seeds in ((MAN, SEEDS), (WEB, SEEDS), (DOCS, SEEDS[:1])):
        wanted = [
            variant(name, system, data)
            for system in EVERY_SYSTEM
            for name in (OWN_BASELINE.get(system, "D"), "G", "default")
        ]
        runs += seeded(wanted, seeds)
    return runs


def auto() -> list[Run]:
    """Targets chosen on held-out training points, with the recipe of the default else."""
    runs = [
        Run(data, system, "auto", "both", ("targets.label_epochs=0.7", *RECIPES.get((system, data), ())))
        for data, system in product(SETS, SYSTEMS)
    ]
    # Five trials of InceptionXML on a large set cost as much as all variants: one seed of those has to do.
    slow = {("inceptionxml", data) for data in (DOCS, WORDNET)}
    return [run for run in seeded(runs) if run.seed == 0 or (run.system, run.data) not in slow]


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


def convergence() -> list[Run]:
    """Once and twice the steps: what tells a plateau. `gandalf reproduce convergence` finds them done."""
    rows = ("D x 1", "D x 2", "G x 1", "G x 2")
    runs = []
    for data, seeds in ((MAN, SEEDS), (WEB, SEEDS), (DOCS, SEEDS[:1])):
        for system in EVERY_SYSTEM:
            asked = StudyScope(data, (system,), seeds, 0, 0, RECIPES.get((system, data), ()))
            runs += [each.run for each in entries(("convergence",), asked) if each.row in rows]
    return runs


def epochs(system: str, data: str) -> float:
    """How long the recipe of the system trains on the data."""
    return override(recipe(system), RECIPES.get((system, data), ())).training.epochs


# What can be done to label points, one thing at a time: smaller soft targets, less weight, only early on.
CHANGES: dict[str, tuple[str, ...]] = {
    "as they are": (),
    "targets x 0.6": ("targets.scale=0.6",),
    "targets x 0.3": ("targets.scale=0.3",),
    "weight 0.3": ("targets.label_weight=0.3",),
    "first 70 % of the steps": ("targets.label_epochs=0.7",),
}


def who_gains() -> list[Run]:
    """What can be done to label points, for texts that are labels' and for new ones."""
    runs = []
    for data, seeds in ((MAN, SEEDS), (WEB, SEEDS), (DOCS, SEEDS[:1])):
        changed = product(("G", "shrunk", "calibrated"), CHANGES.values())
        variants = [("D", ()), ("Z1", ()), ("Z1", CHANGES["weight 0.3"]), *changed]
        runs += seeded([variant(name, "astec", data, *settings) for name, settings in variants], seeds)
    names = ("D", "Z1", "G", "shrunk", "calibrated")
    runs += [variant(name, "inceptionxml", data) for data, name in product((MAN, WEB), names)]
    runs += [variant("shrunk", "inceptionxml", data, "targets.scale=0.3") for data in (MAN, WEB)]
    return on_validation(runs)


RUN_LISTS: dict[str, Callable[[], list[Run]]] = {
    "main": main_study,
    "systems": systems_study,
    "auto": auto,
    "who_gains": who_gains,
    "plateau": plateau,
    "convergence": convergence,
}
