"""Print the tables of docs/lab/memory.md from the lines of `bench.memory`.

    python -m bench.memory_table

A cell is the mean over seeds of P@1 ; PSP@5 ; C@5 on the test split. Of the default's memory the gain is in
brackets if the 95 % interval of a paired bootstrap over test points holds 0 for any seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser, read_json_lines
from bench.memory import BY_ITSELF, OUT
from bench.tables import FIGURES, table, three

Line = dict[str, Any]
Runs = dict[tuple[str, str, str, str], list[Line]]  # lines of all seeds, by set, system, targets and memory
SETS = ("man", "web", "docs", "wordnet", "library", "cooking", "cooking-3000", "packages")
SYSTEMS = ("astec", "decaf", "inceptionxml", "ngame", "renee", "parabel")
ALONE, WITH = "none", "memory"


def read_runs(path: Path) -> Runs:
    """Return the lines by run; of a run that is there twice the last."""
    last: dict[tuple[Any, ...], Line] = {}
    for line in read_json_lines(path):
        key = tuple(line[name] for name in ("set", "system", "targets", "memory"))
        last[(*key, line["seed"])] = line
    found: Runs = {}
    for key, line in last.items():
        found.setdefault(key[:4], []).append(line)
    return found


def pairs(runs: Runs) -> list[tuple[str, str]]:
    """Return the sets and systems that were measured, in the order of the tables."""
    known = {key[:2] for key in runs}
    return [(name, system) for name in SETS for system in SYSTEMS if (name, system) in known]


def mean(lines: Iterable[Line] | None, texts: str = "") -> dict[str, float] | None:
    """Return the mean of each figure over seeds, of all texts or of one kind."""
    values = [line[texts] if texts else line for line in lines or ()]
    if not values or any(each is None or FIGURES[0] not in each for each in values):
        return None
    return {name: float(np.mean([each[name] for each in values])) for name in FIGURES}


def worth_table(runs: Runs, texts: str = "") -> str:
    """Return what a memory adds to D and to the default, beside Z1 and G."""
    columns = (("D", ALONE), ("D", WITH), ("Z1", ALONE), ("G", ALONE), ("default", ALONE), ("default", WITH))
    rows = []
    for name, system in pairs(runs):
        cells = [three(mean(runs.get((name, system, *column)), texts)) for column in columns]
        if any(cells):
            gain = "" if texts else gains(runs.get((name, system, "default", WITH)))
            rows.append([f"`{name}`", f"`{system}`", *cells, *([] if texts else [gain])])
    head = ["D", "D, memory", "Z1", "G", "default", "default, memory"]
    return table(["set", "system", *head, *([] if texts else ["gain of the default: P@1 ; PSP@5"])], rows)


def gains(lines: list[Line] | None) -> str:
    """Return the mean gain in P@1 and PSP@5; in brackets if it may be chance."""
    cells = []
    for name in FIGURES[:2] if lines else ():
        each = np.array([line["gain"][name] for line in lines or ()])  # shape: (seeds, 3)
        value, low, high = each[:, 0].mean(), each[:, 1], each[:, 2]
        real = (low > 0).all() or (high < 0).all()
        cells.append(f"{value:+.1f}" if real else f"({value:+.1f})")
    return " ; ".join(cells)


def share_table(runs: Runs) -> str:
    """Return what a memory of D gains, as a share of what training on G gains."""
    rows = []
    for name, system in pairs(runs):
        of = [mean(runs.get((name, system, *each))) for each in (("D", ALONE), ("D", WITH), ("G", ALONE))]
        if any(each is None for each in of):
            continue
        d, memory, g = of
        assert d is not None and memory is not None and g is not None
        trained = {key: g[key] - d[key] for key in FIGURES}
        looked_up = {key: memory[key] - d[key] for key in FIGURES}
        shares = [
            f"{100 * looked_up[key] / trained[key]:.0f} %" if trained[key] > 1 else "–" for key in FIGURES
        ]
        rows.append(
            [f"`{name}`", f"`{system}`", three(trained, "+"), three(looked_up, "+"), " ; ".join(shares)]
        )
    return table(["set", "system", "training on G", "memory of D", "share"], rows)


def without_table(runs: Runs) -> str:
    """Return what is left of a memory of D without label keys, soft values or the model."""
    columns = [ALONE, "memory, points alone", "memory, labels as themselves", WITH, *BY_ITSELF]
    titles = ["D", "+ points", "+ points, labels as themselves", "+ the best on held-out points"]
    titles += ["no model: graph", "no model: points alone (kNN)", "no model: own labels (RAE-XMC)"]
    rows = []
    for name, system in pairs(runs):
        cells = [three(mean(runs.get((name, system, "D", column)))) for column in columns]
        if any(cells[1:]):
            rows.append([f"`{name}`", f"`{system}`", *cells])
    return table(["set", "system", *titles], rows)


def chosen_table(runs: Runs) -> str:
    """Return the weight of the memory and what label texts stand for, of each kind of targets."""
    kinds = ("D", "Z1", "G", "default")
    rows = []
    for name, system in pairs(runs):
        cells = [_chosen(runs.get((name, system, targets, WITH))) for targets in kinds]
        rows.append([f"`{name}`", f"`{system}`", *cells])
    return table(["set", "system", *kinds], rows)


def _chosen(lines: list[Line] | None) -> str:
    """Return weight, temperature and values of label keys, of each seed that differs."""
    found = []
    for line in lines or ():
        chosen = line["chosen"]
        words = f"{chosen['weight']:.2g} (t {chosen['temperature']:g}, {chosen['label_values']})"
        found.append("0" if not chosen["weight"] else words)
    return " / ".join(dict.fromkeys(found))


TABLES: dict[str, Callable[[Runs], str]] = {
    "All texts": worth_table,
    "New texts": lambda runs: worth_table(runs, "new_text"),
    "Memory of D against training on G": share_table,
    "Without its parts": without_table,
    "Fitted weights": chosen_table,
}


def main() -> None:
    """Print every table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--results", type=Path, default=OUT)
    runs = read_runs(parser.parse_args().results)
    for title, make in TABLES.items():
        print(f"### {title}\n\n{make(runs)}\n")


if __name__ == "__main__":
    main()
