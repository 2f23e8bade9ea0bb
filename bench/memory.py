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
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from bench.command import argument_parser
from bench.default_sets import open_default_set
from bench.machine import DATA_ROOT, RESULTS
from bench.tables import FIGURES, figures, three
from bench.training import Line, add_missing, score, trained
from gandalf import GraphOptions, Splits, label_graph
from gandalf.lab.variants import VARIANTS
from gandalf.memory.keys import keys_of
from gandalf.memory.memory import LABEL, POINT, EntryGroup, Memory, Record, Voting
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import Scores
from gandalf.model import ModelWithMemory, Part
from gandalf.model.with_memory import as_queries
from gandalf.runs.remember import LABEL_VALUES, LabelValues, MemoryOptions, remember

OUT = RESULTS / "memory.jsonl"
KEY = ("set", "system", "targets", "seed")
TARGETS = {**{name: VARIANTS[name].as_settings() for name in ("D", "Z1", "G")}, "default": ()}
DUAL = "dual"  # a dual encoder without a classifier
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


def measure(name: str, system: str, targets: str, seed: int, *, root: Path) -> Iterator[Line]:
    """Yield a line for the model alone, and one for each memory of it."""
    splits = open_default_set(name, root)
    about: Line = dict(zip(KEY, (name, system, targets, seed), strict=True))
    started = time.perf_counter()
    model = trained(splits, *_system(system, targets), f"seed={seed}")
    alone = score(model, splits)
    yield {**about, "memory": "none", **figures(alone), "seconds": round(time.perf_counter() - started, 1)}
    for row, values in KEPT.items() if targets == "D" else [("memory", LABEL_VALUES)]:
        started = time.perf_counter()
        found = remember(model, splits, MemoryOptions(label_values=values))
        seconds = round(time.perf_counter() - started, 1)
        chosen = {"chosen": found.trials[0].as_dict(), "seen": found.seen, "seconds": seconds}
        yield {**about, "memory": row, **_scored(found.model, splits, alone), **chosen}
    for row, label_values in BY_ITSELF.items() if targets == "D" else ():
        memory = whole_memory(model, splits, label_values)
        yield {**about, "memory": row, **_scored(ModelWithMemory(model, memory, 1.0), splits, alone)}


def _system(system: str, targets: str) -> tuple[str, ...]:
    """Return the system and the settings of its targets."""
    settings = [each for each in TARGETS[targets] if system not in OF_TREES or "label_epochs" not in each]
    return ("siamesexml", *settings, "siamese.alone=true") if system == DUAL else (system, *settings)


def _scored(model: Part, splits: Splits, alone: Scores) -> Line:
    scores = score(model, splits)
    return {**figures(scores), "gain": gains(scores, alone)}


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
    return Memory((EntryGroup(keys, stacked, tuple(records)),), Voting(TEMPERATURE))


def gains(scores: Scores, alone: Scores) -> dict[str, list[float]]:
    """Return the difference to the model alone, with its 95 % interval over test points; C@5 is no mean."""
    found = compare(scores, alone)
    each = {name: (found[name].difference, found[name].low, found[name].high) for name in FIGURES[:2]}
    return {name: [round(value, 2) for value in values] for name, values in each.items()}


def main() -> None:
    """Measure what is asked for and not stored."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets", nargs="?", default="man")
    parser.add_argument("--systems", default="astec,parabel")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    lists = (each.split(",") for each in (chosen.sets, chosen.systems, chosen.targets))
    work = partial(measure, root=chosen.data_root)
    for line in add_missing(chosen.out, KEY, product(*lists, chosen.seeds), work):
        told: dict[str, Any] = {name: line[name] for name in ("gain", "chosen") if name in line}
        print(*(line[name] for name in KEY), line["memory"], three(line), told, flush=True)


if __name__ == "__main__":
    main()
