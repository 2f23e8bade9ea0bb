"""Measure lengths of a training on held-out training points, and print the means over seeds.

    python -m bench.lengths run packages:2500,cooking:3000 --systems astec decaf --epochs 3 5 8 15
    python -m bench.lengths table

SET:POINTS is a set of `bench/default_sets.py` and how many of its training points are drawn. A fifth of these
is held out and asked for; the test split is not looked at. Lines are appended to bench/results/lengths.jsonl.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from bench.command import argument_parser, read_json_lines
from bench.default_sets import draw_sample, of_training_points, open_default_set
from bench.machine import DATA_ROOT, RESULTS
from bench.tables import FIGURES, table, three
from bench.training import Line, score, trained
from gandalf.lab.store import append

OUT = RESULTS / "lengths.jsonl"


def measured(chosen: argparse.Namespace) -> Iterator[Line]:
    """Train for each number of epochs on all points that are not asked for, and score those that are."""
    for words in chosen.sets.split(","):
        name, _, number = words.partition(":")
        whole = open_default_set(name, chosen.data_root)
        splits = of_training_points(draw_sample(whole, int(number)) if number else whole)
        for seed, system, epochs in product(chosen.seeds, chosen.systems, chosen.epochs):
            settings = (f"training.epochs={epochs}", "validation.share=0", f"seed={seed}")
            scores = score(trained(splits, system, *settings), splits)
            about = {"set": name, "points": len(splits.train), "system": system}
            rounded = {figure: round(scores[figure], 2) for figure in FIGURES}
            yield {**about, "epochs": epochs, "seed": seed, **rounded}


def length_table(lines: list[Line]) -> str:
    """Return the mean over seeds of each set, system and length."""
    found = defaultdict(list)
    for line in lines:
        found[line["set"], line["points"], line["system"], line["epochs"]].append(line)
    means = {
        key: {name: float(np.mean([line[name] for line in seeds])) for name in FIGURES}
        for key, seeds in found.items()
    }
    head = ["set", "training points", "system", "epochs", "seeds", " ; ".join(FIGURES)]
    return table(head, [[*map(str, key), str(len(found[key])), three(each)] for key, each in means.items()])


def main() -> None:
    """Run what is asked for, or print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("sets", metavar="SET[:POINTS][,...]", nargs="?", default="packages:2500")
    parser.add_argument("--systems", nargs="+", default=["astec"])
    parser.add_argument("--epochs", type=float, nargs="+", default=[3.0, 5.0, 8.0, 15.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    if chosen.what == "run":
        for line in measured(chosen):
            append(chosen.out, line)
    print(length_table(read_json_lines(chosen.out)))


if __name__ == "__main__":
    main()
