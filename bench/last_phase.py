"""Compare a system's default with D, Z1 and G, and with label points that stay to the end.

    python -m bench.last_phase man,web,cooking,packages                # on training points that are kept back
    python -m bench.last_phase man,web,cooking,packages --on test      # what docs/lab/memory.md shows
    python -m bench.last_phase --table --on test

In the last phase of training label points leave, or stay with their own label alone (`targets.own_weight`).
The weight is chosen by `--on held`: a tenth of the training points, at most 3,000, is kept from every model.
Each default is set beside D, Z1 and G by P@1, PSP@5 and C@5, on all texts, on texts that are a label's and on
new texts: 27 comparisons a set. C@5 is no mean over points, so it has no interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.command import argument_parser, keys_of_lines, read_json_lines
from bench.default import FIGURES, figures
from bench.default_sets import open_default_set
from bench.engine import SHARED
from bench.machine import RESULTS, machine
from bench.memory import TARGETS, figure_cell, score
from bench.memory_search import MOST, SEED, SHARE
from gandalf import Splits
from gandalf.data.holdout import holdout
from gandalf.lab.store import append
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import Scores
from gandalf.runs.session import train
from gandalf.settings import override
from gandalf.systems import recipe

OUT = RESULTS / "last_phase.jsonl"
RIVALS = ("D", "Z1", "G")
WITHOUT = "default, 0"
OWN_WEIGHTS = (0.0, 0.1, 0.3, 1.0)
TEXTS = ("all", "label_text", "new_text")
Line = dict[str, Any]


def splits_of(name: str, on: Literal["held", "test"], root: Path) -> Splits:
    """Return the set, with kept training points in place of its test split unless that is asked for."""
    whole = open_default_set(name, root)
    if on == "test":
        return whole
    parts = holdout(whole.train, SHARE, SEED, at_most=MOST)
    return Splits(train=parts.rest, test=parts.held, name=whole.name)


def variants(weights: Iterable[float]) -> dict[str, tuple[str, ...]]:
    """Return the settings of D, Z1 and G, then of the default with each own weight."""
    defaults = {f"default, {weight:g}": (f"targets.own_weight={weight:g}",) for weight in weights}
    return {name: TARGETS[name] for name in RIVALS} | defaults


def measure(about: Line, tried: dict[str, tuple[str, ...]], splits: Splits) -> Iterator[Line]:
    """Train every variant, and yield a line for each with its comparisons."""
    system, seed = about["system"], about["seed"]
    scores: dict[str, Scores] = {}
    for variant, settings in tried.items():
        asked = override(recipe(system), [*settings, f"seed={seed}"])
        scores[variant] = score(train(Splits(train=splits.train, name=splits.name), asked).model, splits)
        line = {**about, "variant": variant, "figures": figures(scores[variant])}
        if variant not in RIVALS:
            line["against"] = {rival: differences(scores[variant], scores[rival]) for rival in RIVALS}
        print(*about.values(), variant, *(round(scores[variant][each], 1) for each in FIGURES), flush=True)
        yield line


def differences(first: Scores, second: Scores) -> dict[str, dict[str, list[float]]]:
    """Return first minus second by kind of text and figure, with its interval if it has one."""
    intervals, ours, theirs = compare(first, second), figures(first), figures(second)
    found = {}
    for kind in TEXTS:
        by_name = {"all": intervals.every}.get(kind) or getattr(intervals, kind, None)
        one, two = ((each if kind == "all" else each[kind]) for each in (ours, theirs))
        if by_name is None or one is None or "C@5" not in one:
            continue
        means = {
            name: (by_name[name].difference, by_name[name].low, by_name[name].high) for name in FIGURES[:2]
        }
        each = {**means, "C@5": (one["C@5"] - two["C@5"],)}
        found[kind] = {name: [round(value, 2) for value in values] for name, values in each.items()}
    return found


def table(lines: list[Line], on: str) -> str:
    """Return a row for each default: its figures, and how it compares."""
    rows = ["| set | system | own weight | P@1 ; PSP@5 ; C@5 | new texts | ahead | level | behind |"]
    rows.append("|---|---|---:|---:|---:|---:|---:|---|")
    for line in lines:
        if line["on"] != on or "against" not in line:
            continue
        ahead, level, behind = judged(line["against"])
        cells = (figure_cell(line["figures"]), figure_cell(line["figures"].get("new_text")), ahead, level)
        weight = line["variant"].removeprefix("default, ")
        row = (line["set"], line["system"], weight, *cells, "; ".join(behind) or "none")
        rows.append("| " + " | ".join(str(each) for each in row) + " |")
    return "\n".join(rows)


def moves(lines: list[Line], on: str) -> str:
    """Return what each own weight moves against weight 0: the mean over runs, and how many rise and fall."""
    runs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        if line["on"] == on:
            key = tuple(line[name] for name in ("set", "system", "seed"))
            runs.setdefault(key, {})[line["variant"]] = line["figures"]
    rows = ["| own weight | runs | P@1 | PSP@5 | C@5 |", "|---:|---:|---:|---:|---:|"]
    for variant in dict.fromkeys(name for run in runs.values() for name in run if name.startswith("default")):
        both = [(run[variant], run[WITHOUT]) for run in runs.values() if variant in run and WITHOUT in run]
        if variant != WITHOUT and both:
            gaps = {name: np.array([one[name] - two[name] for one, two in both]) for name in FIGURES}
            cells = [f"{gap.mean():+.1f} ({(gap > 0).sum()} / {(gap < 0).sum()})" for gap in gaps.values()]
            weight = variant.removeprefix("default, ")
            rows.append(f"| {weight} | {len(both)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def judged(against: dict[str, Any]) -> tuple[int, int, list[str]]:
    """Return how often a default is ahead and level, and where it is behind by more than chance."""
    ahead, level, behind = 0, 0, []
    for rival, kinds in against.items():
        for (kind, by_name), name in product(kinds.items(), FIGURES):
            value, low, high = by_name[name] if len(by_name[name]) == 3 else by_name[name] * 3
            ahead, level = ahead + (low > 0), level + (low <= 0 <= high)
            if high < 0:
                behind.append(f"{rival} {name} {kind.replace('_', ' ')} {value:+.1f}")
    return ahead, level, behind


def main() -> int:
    """Measure what is asked for, or print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets", nargs="?", default="man")
    parser.add_argument("--systems", default="astec")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--weights", type=float, nargs="+", default=OWN_WEIGHTS)
    parser.add_argument("--on", choices=("held", "test"), default="held")
    parser.add_argument("--data-root", type=Path, default=SHARED)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    lines = read_json_lines(chosen.out)
    if chosen.table:
        print(f"{table(lines, chosen.on)}\n\n{moves(lines, chosen.on)}")
        return 0
    done = keys_of_lines(lines, "set", "system", "seed", "on")
    here, tried = machine(), variants(chosen.weights)
    for name, system, seed in product(chosen.sets.split(","), chosen.systems.split(","), chosen.seeds):
        if (name, system, seed, chosen.on) in done:
            continue
        about = {"set": name, "system": system, "seed": seed, "on": chosen.on}
        for line in measure(about, tried, splits_of(name, chosen.on, chosen.data_root)):
            append(chosen.out, {**line, "machine": here})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
