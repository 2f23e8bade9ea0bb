"""Measure label points that stay to the end of training with their own label alone (`targets.own_weight`).

    python -m bench.last_phase man,web,cooking,packages
    python -m bench.last_phase --table

A tenth of the training points, at most 3,000, is kept from every model and scored. The table holds what each
weight moves against weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser, read_json_lines
from bench.machine import DATA_ROOT, RESULTS
from bench.tables import FIGURES, figures, table, three
from bench.training import Line, add_missing, open_without_test, score, trained

OUT = RESULTS / "last_phase.jsonl"
KEY = ("set", "system", "seed")
OWN_WEIGHTS = (0.0, 0.1, 0.3, 1.0)
WITHOUT = "default, 0"


def measure(name: str, system: str, seed: int, *, weights: tuple[float, ...], root: Path) -> Iterator[Line]:
    """Train with each weight, and yield a line for each."""
    splits = open_without_test(name, root)
    for weight in weights:
        model = trained(splits, system, f"targets.own_weight={weight:g}", f"seed={seed}")
        about = {"set": name, "system": system, "seed": seed, "on": "held", "variant": f"default, {weight:g}"}
        yield {**about, "figures": figures(score(model, splits))}


def moves(lines: list[Line]) -> str:
    """Return what each weight moves against weight 0: the mean over runs, and how many rise and fall."""
    runs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        runs.setdefault(tuple(line[name] for name in KEY), {})[line["variant"]] = line["figures"]
    rows = []
    for variant in dict.fromkeys(name for run in runs.values() for name in run if name != WITHOUT):
        both = [(run[variant], run[WITHOUT]) for run in runs.values() if variant in run and WITHOUT in run]
        if both:
            gaps = [np.array([one[name] - other[name] for one, other in both]) for name in FIGURES]
            cells = [f"{gap.mean():+.1f} ({(gap > 0).sum()} / {(gap < 0).sum()})" for gap in gaps]
            rows.append([variant.removeprefix("default, "), str(len(both)), *cells])
    return table(["own weight", "runs", *FIGURES], rows)


def main() -> None:
    """Measure what is not stored, or print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets", nargs="?", default="man")
    parser.add_argument("--systems", default="astec")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--weights", type=float, nargs="+", default=OWN_WEIGHTS)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    if chosen.table:
        print(moves(read_json_lines(chosen.out)))
        return
    keys = product(chosen.sets.split(","), chosen.systems.split(","), chosen.seeds)
    work = partial(measure, weights=tuple(chosen.weights), root=chosen.data_root)
    for line in add_missing(chosen.out, KEY, keys, work):
        print(*(line[name] for name in (*KEY, "variant")), three(line["figures"]), flush=True)


if __name__ == "__main__":
    main()
