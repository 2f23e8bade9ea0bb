"""Forecast how long runs take, and what they cost on a machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import parse_qsl

from gandalf.data.dataset import Splits
from gandalf.data.synthetic import synthetic
from gandalf.lab.benchmarks import BENCHMARKS
from gandalf.lab.sets import SYNTHETIC
from gandalf.lab.store import Line
from gandalf.lab.variants import Run, recipe_of
from gandalf.recipe import Baselines, Recipe, Targets
from gandalf.runs.choose import CANDIDATES, SHORT
from gandalf.runs.cost import H200, Cost, Machine, Size, cost, this_machine
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import resolved
from gandalf.runs.prepare import epoch_steps
from gandalf.runs.session import run_training

PROBE = 8  # steps
SCORING = 1.3  # what label points and scoring add to a training


@dataclass
class Pace:
    """Seconds a step by system and settings, measured where no run like it is stored."""

    splits: Splits
    machine: str
    known: dict[tuple[str, ...], float] = field(default_factory=dict)

    def learn(self, lines: Iterable[Line]) -> None:
        """Learn seconds a step from stored runs on this machine."""
        for line in lines:
            if line.get("machine", {}).get("cpu") == self.machine and line["steps"]:
                self.known[kind(Run.of(line["run"]))] = (
                    line["wall"] / line["steps"] / passes(line["run"]["targets"])
                )

    def seconds(self, run: Run) -> float:
        """Return the seconds that the run is expected to take."""
        if kind(run) not in self.known:
            self.known[kind(run)] = SCORING * self._probe(run)
        return self.known[kind(run)] * steps(run, self.splits) * passes(run.targets)

    def _probe(self, run: Run) -> float:
        probe = recipe_of(replace(run, targets="none", keep="both"))
        short = replace(
            probe,
            training=replace(probe.training, steps=PROBE),
            siamese=replace(probe.siamese, pair_epochs=1e-6),
            baselines=replace(probe.baselines, synonyms=0, mix="none"),
        )
        run_training(
            replace(self.splits, test=None),
            replace(short, training=replace(short.training, steps=2)),
            RunPlace(),
        )
        started = time.perf_counter()
        done = run_training(replace(self.splits, test=None), short, RunPlace())
        return min(done.seconds, time.perf_counter() - started) / max(done.steps, 1)


def kind(run: Run) -> tuple[str, ...]:
    """Return the system and the settings on which the time of a step depends."""
    dims = [
        each for each in run.settings if each.startswith(("encoder.", "text.", "training.batch", "head."))
    ]
    return (run.system, *dims)


def steps(run: Run, splits: Splits) -> int:
    """Return the updates of the run's classifier; a pair stage doubles them."""
    recipe = resolved(
        recipe_of(replace(run, targets="none", keep="both")), len(splits.train), splits.train.num_labels
    )
    own = recipe.training.steps or max(
        1, round(recipe.training.epochs * epoch_steps(splits.train, recipe.training.batch))
    )
    return own if recipe.siamese.kind == "none" else 2 * own


def passes(targets: str) -> float:
    """Return how many trainings a run takes: `auto` first tries its candidates."""
    return 1 + SHORT * (len(CANDIDATES) + 1) if targets == "auto" else 1.0


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
    machines = (this_machine(), H200)
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
