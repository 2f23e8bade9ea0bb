"""Measure what a memory adds to trained models: D, Z1, G and the default, without and with one.

    python -m bench.memory man,web,cooking,packages --systems astec,parabel
    python -m bench.memory_table                         # the tables of docs/lab/memory.md

Every model is trained once. A memory is then fitted on the points that it held out, and both are scored on
the test split. For D the memory is also fitted without label keys, and with label keys that stand for their
own label alone. The same three memories answer by themselves, without the model: training points alone are
nearest neighbours, training points and own labels are what RAE-XMC looks up. `dual` is its kind of encoder:
`siamesexml` after its first stage, whose label rows are label texts. Lines are appended to OUT; a model whose
lines are there is not trained again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from bench.command import argument_parser, keys_of_lines, read_json_lines
from bench.default import FIGURES, figures
from bench.default_sets import open_default_set
from bench.engine import SHARED
from bench.machine import RESULTS, machine
from gandalf import GraphOptions, Splits, label_graph
from gandalf.lab.store import append
from gandalf.memory.keys import keys_of
from gandalf.memory.memory import LABEL, POINT, Block, Memory, Record, Voting
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.metrics.predictions import test_points
from gandalf.model import ModelWithMemory, Part
from gandalf.model.with_memory import as_queries
from gandalf.predict.predictor import Predictor
from gandalf.runs.remember import LABEL_VALUES, LabelValues, MemoryOptions, remember
from gandalf.runs.session import train
from gandalf.settings import override
from gandalf.systems import recipe

OUT = RESULTS / "memory.jsonl"
TARGETS = {
    "D": ("targets.targets=none",),
    "Z1": ("targets.targets=self", "targets.label_epochs=1"),
    "G": ("targets.targets=ratio", "targets.label_epochs=1"),
    "default": (),
}
DUAL = "dual"  # a dual encoder without a classifier
DUAL_SETTINGS = ("siamese.alone=true",)
OF_TREES = ("parabel", "linear")  # they know no phases, so label_epochs says nothing about them
# What is tried of a memory, by the name of its row.
KEPT: dict[str, tuple[LabelValues, ...]] = {
    "memory": LABEL_VALUES,
    "memory, points alone": ("none",),
    "memory, labels as themselves": ("own",),
}
# What answers without the model, by the name of its row: what label texts stand for.
BY_ITSELF: dict[str, LabelValues] = {
    "by itself": "graph",
    "by itself, points alone (kNN)": "none",
    "by itself, labels as themselves (RAE-XMC)": "own",
}
TEMPERATURE = 0.04  # of a memory that answers by itself, as RAE-XMC has it
Line = dict[str, Any]


def measure(name: str, system: str, targets: str, seed: int, root: Path) -> Iterator[Line]:
    """Yield a line for the model alone, and one for each memory of it."""
    splits = open_default_set(name, root)
    settings = [each for each in TARGETS[targets] if system not in OF_TREES or "label_epochs" not in each]
    started = time.perf_counter()
    if system == DUAL:
        settings = [*settings, *DUAL_SETTINGS]
    asked = override(recipe("siamesexml" if system == DUAL else system), [*settings, f"seed={seed}"])
    model = train(Splits(train=splits.train, name=splits.name), asked)
    about: Line = {"set": name, "system": system, "targets": targets, "seed": seed}
    alone = score(model.model, splits)
    yield {**about, "memory": "none", **figures(alone), "seconds": round(time.perf_counter() - started, 1)}
    for row, values in KEPT.items() if targets == "D" else [("memory", LABEL_VALUES)]:
        started = time.perf_counter()
        found = remember(model.model, splits, MemoryOptions(label_values=values))
        seconds = round(time.perf_counter() - started, 1)
        scores = score(found.model, splits)
        chosen = {"chosen": found.trials[0].as_dict(), "seen": found.seen, "seconds": seconds}
        yield {**about, "memory": row, **figures(scores), **chosen, "gain": gains(scores, alone)}
    for row, label_values in BY_ITSELF.items() if targets == "D" else ():
        memory = whole_memory(model.model, splits, label_values)
        scores = score(ModelWithMemory(model.model, memory, 1.0), splits)
        yield {**about, "memory": row, **figures(scores), "gain": gains(scores, alone)}


def whole_memory(model: Part, splits: Splits, label_values: LabelValues) -> Memory:
    """Return a memory of all training points and label texts whose votes are never in doubt."""
    points, labels = splits.train.need_texts("measuring a memory")
    texts, values = list(points), [splits.train.targets]
    records = [Record(text, POINT) for text in points]
    if label_values != "none":
        texts += labels
        own = label_graph(splits.train, GraphOptions(targets="shrunk" if label_values == "graph" else "self"))
        values.append(own.matrix)
        records += [Record(text, LABEL) for text in labels]
    stacked = csr_array(vstack(values, format="csr").astype(np.float32))
    keys = keys_of(as_queries(model.unit_vectors(texts)))
    return Memory((Block(keys, stacked, tuple(records)),), Voting(TEMPERATURE))


def score(model: Part, splits: Splits) -> Scores:
    """Return the scores on the test split."""
    test = test_points(splits)
    texts, _ = test.need_texts("measuring a memory")
    return evaluate(Predictor(model).best(texts, 5, test.exclude), splits)


def gains(scores: Scores, alone: Scores) -> dict[str, list[float]]:
    """Return the difference to the model alone, with its 95 % interval over test points; C@5 is no mean."""
    found = compare(scores, alone)
    each = {name: (found[name].difference, found[name].low, found[name].high) for name in FIGURES[:2]}
    return {name: [round(value, 2) for value in values] for name, values in each.items()}


def figure_cell(values: dict[str, Any] | None) -> str:
    """Return P@1 ; PSP@5 ; C@5 of a part of the points; nothing where the part is empty."""
    return "" if not values or "P@1" not in values else " ; ".join(f"{values[name]:.1f}" for name in FIGURES)


def _gain(line: Line) -> str:
    """Return differences; one that the bootstrap calls chance is in brackets."""
    if "gain" not in line:
        return ""
    cells = []
    for name in FIGURES[:2]:
        value, low, high = line["gain"][name]
        cells.append(f"({value:+.1f})" if low <= 0 <= high else f"{value:+.1f}")
    return " ; ".join(cells)


def _chosen(line: Line) -> str:
    if "chosen" not in line:
        return ""
    chosen = line["chosen"]
    return f"weight {chosen['weight']:g}, t {chosen['temperature']:g}, {chosen['label_values']}"


def main() -> int:
    """Measure what is asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets", nargs="?", default="man")
    parser.add_argument("--systems", default="astec,parabel")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data-root", type=Path, default=SHARED)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    lines = read_json_lines(chosen.out)
    done = keys_of_lines(lines, "set", "system", "targets", "seed")
    options = (chosen.sets.split(","), chosen.systems.split(","), chosen.targets.split(","), chosen.seeds)
    here = machine()
    for key in product(*options):
        for line in measure(*key, chosen.data_root) if key not in done else ():
            append(chosen.out, {**line, "machine": here})
            print(*key, line["memory"], figure_cell(line), _gain(line), _chosen(line), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
