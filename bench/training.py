"""Train a system of ours with some settings, score it, and store the lines of runs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.command import read_json_lines
from bench.default_sets import open_default_set
from bench.machine import machine
from gandalf import Splits
from gandalf.data.holdout import hold_out_points
from gandalf.lab.store import append
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.metrics.predictions import need_test_points
from gandalf.model import Part
from gandalf.predict.predictor import Predictor
from gandalf.runs.session import run_training
from gandalf.settings import override
from gandalf.systems import recipe

SHARE, MOST, SEED = 0.1, 3_000, 77  # training points that are kept from every model; not a seed of any run
Line = dict[str, Any]


def trained(splits: Splits, system: str, *settings: str) -> Part:
    """Train the system on the training points, without the test split."""
    return run_training(
        Splits(train=splits.train, name=splits.name), override(recipe(system), settings)
    ).model


def score(model: Part, splits: Splits) -> Scores:
    """Return the scores on the test split."""
    test = need_test_points(splits)
    texts, _ = test.need_texts("scoring a model")
    return evaluate(Predictor(model).best(texts, 5, test.exclude), splits)


def open_without_test(name: str, root: Path) -> Splits:
    """Return a set with some of its training points in place of its test split."""
    whole = open_default_set(name, root)
    parts = hold_out_points(whole.train, SHARE, SEED, at_most=MOST)
    return Splits(train=parts.rest, test=parts.held, name=whole.name)


def add_missing(
    out: Path,
    names: tuple[str, ...],
    keys: Iterable[tuple[Any, ...]],
    measure: Callable[..., Iterable[Line]],
) -> Iterator[Line]:
    """Append the lines of every key that is not stored, and yield them; `names` are the fields of a key."""
    done = {tuple(line[name] for name in names) for line in read_json_lines(out)}
    about = machine()
    for key in keys:
        for line in measure(*key) if key not in done else ():
            append(out, {**line, "machine": about})
            yield line
