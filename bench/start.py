"""Figures on held-out training points by the number of updates: does a short run lose what it starts with?

python -m bench.start man --steps 1 5 20 60
python -m bench.start DATA --points 3100 --steps 20 0 --set encoder.centred=false   # 0: the default length
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.command import argument_parser
from bench.default_sets import draw_points, keep_labels
from bench.tables import three
from gandalf.data.dataset import Splits
from gandalf.data.load import load
from gandalf.runs.session import run_training
from gandalf.runs.start import changed
from gandalf.systems import recipe

HELD = ("validation.share=0.2", "validation.texts=all")  # the test split is never looked at


def main() -> None:
    """Print a line for each number of updates, with the figures of the last weights, kept or not."""
    asked = _arguments()
    points = load(asked.data).train
    if asked.points:
        points = draw_points(points, asked.points, np.random.default_rng(asked.seed))
        points = keep_labels(points, np.flatnonzero(points.label_frequencies))
    print(f"{len(points):,} points, {points.num_labels:,} labels, {asked.system}, held out: 20 %")
    for number, steps in enumerate(asked.steps):
        length = (f"training.steps={steps}",) if steps else ()
        chosen = changed(recipe(asked.system), *HELD, *length, *asked.set, f"seed={asked.seed}")
        found = run_training(Splits(train=points, name=asked.data), chosen)
        if not number:
            print(_line("start", found.history[0]))
        print(_line(f"{found.steps:,} updates", found.history[-1], found.seconds))


def _line(name: str, found: dict[str, float], seconds: float | None = None) -> str:
    return f"{name}: {three(found)}" + ("" if seconds is None else f"  ({seconds:.0f} s)")


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("data")
    parser.add_argument("--points", type=int, default=0, help="Draw so many; 0: all.")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5, 20, 60, 0], help="0: the default.")
    parser.add_argument("--system", default="astec")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
