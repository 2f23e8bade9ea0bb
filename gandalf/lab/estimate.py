"""How long runs will take: by runs like them that are over, or by a few steps of one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gandalf.data.dataset import Splits
from gandalf.lab.store import Line
from gandalf.lab.variants import Run, recipe_of
from gandalf.runs.choose import CANDIDATES, SHORT
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import resolved
from gandalf.runs.prepare import epoch_steps
from gandalf.runs.session import train

PROBE = 8  # steps
SCORING = 1.3  # what label points and scoring add to a training


@dataclass
class Pace:
    """Seconds a step by system and settings, measured where no run like it is stored."""

    splits: Splits
    machine: str
    known: dict[tuple[str, ...], float] = field(default_factory=dict)

    def learn(self, lines: Iterable[Line]) -> None:
        """Take over what stored runs on this machine took."""
        for line in lines:
            if line.get("machine", {}).get("cpu") == self.machine and line["steps"]:
                self.known[kind(Run.of(line["run"]))] = (
                    line["wall"] / line["steps"] / passes(line["run"]["targets"])
                )

    def seconds(self, run: Run) -> float:
        """About how long the run will take."""
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
        train(
            replace(self.splits, test=None),
            replace(short, training=replace(short.training, steps=2)),
            RunPlace(),
        )
        started = time.perf_counter()
        done = train(replace(self.splits, test=None), short, RunPlace())
        return min(done.seconds, time.perf_counter() - started) / max(done.steps, 1)


def kind(run: Run) -> tuple[str, ...]:
    """What the time of a step depends on."""
    dims = [
        each for each in run.settings if each.startswith(("encoder.", "text.", "training.batch", "head."))
    ]
    return (run.system, *dims)


def steps(run: Run, splits: Splits) -> int:
    """Updates of the run's classifier; a pair stage before it counts as many again."""
    recipe = resolved(
        recipe_of(replace(run, targets="none", keep="both")), len(splits.train), splits.train.num_labels
    )
    own = recipe.training.steps or max(
        1, round(recipe.training.epochs * epoch_steps(splits.train, recipe.training.batch))
    )
    return own if recipe.siamese.kind == "none" else 2 * own


def passes(targets: str) -> float:
    """Trainings that a run consists of: `auto` tries its candidates first."""
    return 1 + SHORT * (len(CANDIDATES) + 1) if targets == "auto" else 1.0
