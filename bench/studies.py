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
    variant_name,
)

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
    """Return the variant of that name, with its system's recipe on the data and settings of its own."""
    return of_variant(VARIANTS[name], system, data, *RECIPES.get((system, data), ()), *settings)


def seeded(runs: list[Run], seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    """Return every run with each seed, seed by seed: a study that is cut short has whole tables."""
    return [replace(run, seed=seed) for seed, run in product(seeds, runs)]


def keys_of(runs: Iterable[Run], stored: Collection[str]) -> set[str]:
    """Return the keys by which lines of the runs are stored: their own, else that of former code."""

    def key(run: Run) -> str:
        former = replace(run, settings=(*run.settings, *FORMER.get((run.system, run.data), ())))
        return former.key if former.key in stored and run.key not in stored else run.key

    return {key(run) for run in runs}


def main_study() -> list[Run]:
    """Return all variants of both systems on all sets, on the test split, at equal steps."""
    runs = seeded([variant(name, system, data) for data, system, name in product(SETS, SYSTEMS, VARIANTS)])
    return [run for run in runs if run.seed in seeds_of(run)]


def seeds_of(run: Run) -> tuple[int, ...]:
    """Return one seed for the paper's controls, and every seed for all other rows."""
    return SEEDS if run.keep == "both" else SEEDS[:1]


def systems_study() -> list[Run]:
    """Return every system by itself, with the paper's label points and with ours."""
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
    """Return runs whose targets are chosen on held-out training points, otherwise by the default's recipe."""
    runs = [
        Run(data, system, "auto", "both", ("targets.label_epochs=0.7", *RECIPES.get((system, data), ())))
        for data, system in product(SETS, SYSTEMS)
    ]
    # Five trials of InceptionXML on a large set cost as much as all variants: one seed of those has to do.
    slow = {("inceptionxml", data) for data in (DOCS, WORDNET)}
    return [run for run in seeded(runs) if run.seed == 0 or (run.system, run.data) not in slow]


def convergence() -> list[Run]:
    """Return runs of once and twice the steps, which tell a plateau to `gandalf reproduce convergence`."""
    rows = ("D x 1", "D x 2", "G x 1", "G x 2")
    runs = []
    for data, seeds in ((MAN, SEEDS), (WEB, SEEDS), (DOCS, SEEDS[:1])):
        for system in EVERY_SYSTEM:
            asked = StudyScope(data, (system,), seeds, 0, 0, RECIPES.get((system, data), ()))
            runs += [each.run for each in entries(("convergence",), asked) if each.row in rows]
    return runs


# What can be done to label points, one thing at a time: smaller soft targets, less weight, only early on.
CHANGES: dict[str, tuple[str, ...]] = {
    "as they are": (),
    "targets x 0.6": ("targets.scale=0.6",),
    "targets x 0.3": ("targets.scale=0.3",),
    "weight 0.3": ("targets.label_weight=0.3",),
    "first 70 % of the steps": ("targets.label_epochs=0.7",),
}


def who_gains() -> list[Run]:
    """Return what can be done to label points, for label texts and for new texts."""
    runs = []
    for data, seeds in ((MAN, SEEDS), (WEB, SEEDS), (DOCS, SEEDS[:1])):
        changed = product(("G", "shrunk", "calibrated"), CHANGES.values())
        variants = [("D", ()), ("Z1", ()), ("Z1", CHANGES["weight 0.3"]), *changed]
        runs += seeded([variant(name, "astec", data, *settings) for name, settings in variants], seeds)
    names = ("D", "Z1", "G", "shrunk", "calibrated")
    runs += [variant(name, "inceptionxml", data) for data, name in product((MAN, WEB), names)]
    runs += [variant("shrunk", "inceptionxml", data, "targets.scale=0.3") for data in (MAN, WEB)]
    return [replace(run, split="validation") for run in runs]


RUN_LISTS: dict[str, Callable[[], list[Run]]] = {
    "main": main_study,
    "systems": systems_study,
    "auto": auto,
    "who_gains": who_gains,
    "convergence": convergence,
}
