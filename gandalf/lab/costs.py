"""What the runs of a plan cost, also of a benchmark that is not at hand: its shape is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import parse_qsl

from gandalf.data.dataset import Splits
from gandalf.data.synthetic import synthetic
from gandalf.lab.benchmarks import BENCHMARKS
from gandalf.lab.estimate import passes
from gandalf.lab.sets import SYNTHETIC
from gandalf.lab.variants import Run, recipe_of
from gandalf.recipe import Baselines, Recipe, Targets
from gandalf.runs.cost import H200, Cost, Machine, Size, cost, here

SMALLER = 1_000  # times, of a set that stands for a benchmark


@dataclass(frozen=True)
class SystemCost:
    """The runs of one system that are left: how many, the costliest of them, and all together."""

    system: str
    runs: int
    largest: tuple[Cost, Cost]  # here, and on one H200
    seconds: tuple[float, float]  # of all of them, likewise


def stand_in(name: str) -> Splits:
    """Return a small drawn set under the name of a benchmark, of its shape."""
    shape = BENCHMARKS[name]
    drawn = synthetic(
        shape.points // SMALLER, shape.labels // SMALLER, labels_per_point=shape.labels_per_point
    )
    return replace(drawn.splits, name=name)


def costs(runs: Iterable[Run], splits: Splits) -> list[SystemCost]:
    """Return what the runs cost, system by system."""
    size, words = _size(splits)
    by_system: dict[str, list[Run]] = {}
    for run in runs:
        by_system.setdefault(run.system, []).append(run)
    return [_of_system(system, every, size, words) for system, every in by_system.items()]


def _of_system(system: str, runs: list[Run], size: Size, words: int) -> SystemCost:
    machines = (here(), H200)
    every = [[_of_run(run, size, words, machine) for run in runs] for machine in machines]
    largest = [max(found, key=lambda each: (each.seconds, each.memory)) for found in every]
    seconds = [sum(each.seconds for each in found) for found in every]
    return SystemCost(system, len(runs), (largest[0], largest[1]), (seconds[0], seconds[1]))


def _of_run(run: Run, size: Size, words: int, machine: Machine) -> Cost:
    found = _cost(_plain(recipe_of(replace(run, targets="none"))), _thinned(run.data, size), words, machine)
    return replace(found, seconds=found.seconds * passes(run.targets))


@lru_cache(maxsize=1024)  # rows of a study cost alike
def _cost(recipe: Recipe, size: Size, words: int, machine: Machine) -> Cost:
    return cost(recipe, size, words, machine)


def _plain(recipe: Recipe) -> Recipe:
    """Return the recipe without what its cost does not depend on."""
    return replace(recipe, seed=0, targets=Targets(), baselines=Baselines())


def _size(splits: Splits) -> tuple[Size, int]:
    """Return the size of a set and about how many words it has."""
    shape = BENCHMARKS.get(splits.name)
    if shape is not None:
        return Size(shape.points, shape.labels), shape.words
    texts = (*(splits.train.texts or ()), *(splits.train.label_texts or ()))
    return Size.of(splits.train), len({word for text in texts for word in text.lower().split()})


def _thinned(data: str, size: Size) -> Size:
    """Return the size of a set that is thinned or drawn, as its name says."""
    base, _, query = data.partition("?")
    options = dict(parse_qsl(query))
    if base == SYNTHETIC:
        return Size(int(options["points"]), int(options["labels"]))
    return replace(size, points=max(1, round(size.points * float(options.get("points", 1.0)))))
