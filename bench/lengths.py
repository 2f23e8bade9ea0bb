"""Measure lengths of a training on held-out training points, and print the means over seeds.

    python -m bench.lengths run packages:2500,cooking:3000 --systems astec decaf --epochs 3 5 8 15
    python -m bench.lengths table

SET:POINTS is a set of `bench/default_sets.py` and how many of its training points are drawn. A fifth of these
is held out and asked for; the test split is not looked at. Lines are appended to bench/results/lengths.jsonl.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser
from bench.default import FIGURES
from bench.default_sets import draw_sample, of_training_points, open_default_set
from bench.engine import SHARED
from bench.machine import RESULTS
from bench.tables import table
from gandalf import Splits, train
from gandalf.lab.store import append
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.predictions import test_points
from gandalf.predict.predictor import Predictor

OUT = RESULTS / "lengths.jsonl"


def opened(words: str, root: Path) -> tuple[str, Splits]:
    """Return name and data of `SET:POINTS`; without POINTS all training points are drawn from."""
    name, _, number = words.partition(":")
    whole = open_default_set(name, root)
    return name, of_training_points(draw_sample(whole, int(number)) if number else whole)


def measured(name: str, splits: Splits, system: str, epochs: float, seed: int) -> dict[str, Any]:
    """Train for so many epochs on all points that are not asked for, and score those that are."""
    settings = (f"training.epochs={epochs}", "validation.share=0")
    model = train(replace(splits, test=None), system, *settings, seed=seed).model
    asked = test_points(splits)
    texts, _ = asked.need_texts("lengths")
    scores = evaluate(Predictor(model).predict(texts, 20, asked.exclude), splits)
    about = {"set": name, "points": len(splits.train), "system": system, "epochs": epochs, "seed": seed}
    return about | {figure: round(scores[figure], 2) for figure in FIGURES}


def length_table(lines: list[dict[str, Any]]) -> str:
    """Return the mean over seeds of each set, system and length."""
    found = defaultdict(list)
    for line in lines:
        found[line["set"], line["points"], line["system"], line["epochs"]].append(line)
    head = ["set", "training points", "system", "epochs", "seeds", " ; ".join(FIGURES)]
    return table(head, [[*map(str, key), str(len(seeds)), _means(seeds)] for key, seeds in found.items()])


def _means(lines: list[dict[str, Any]]) -> str:
    return " ; ".join(f"{np.mean([line[figure] for line in lines]):.1f}" for figure in FIGURES)


def runs(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the lines that are asked for, seed by seed."""
    for words in chosen.sets.split(","):
        name, splits = opened(words, chosen.data_root)
        for seed in chosen.seeds:
            for system in chosen.systems:
                for epochs in chosen.epochs:
                    yield measured(name, splits, system, epochs, seed)


def main() -> None:
    """Run what is asked for, or print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("sets", metavar="SET[:POINTS][,...]", nargs="?", default="packages:2500")
    parser.add_argument("--systems", nargs="+", default=["astec"])
    parser.add_argument("--epochs", type=float, nargs="+", default=[3.0, 5.0, 8.0, 15.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data-root", type=Path, default=SHARED)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    if chosen.what == "run":
        for line in runs(chosen):
            append(chosen.out, line)
    print(length_table([json.loads(line) for line in chosen.out.read_text("utf-8").splitlines()]))


if __name__ == "__main__":
    main()
