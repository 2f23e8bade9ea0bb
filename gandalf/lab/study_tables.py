"""Show studies as tables, the best figures bold and marked where a difference may be chance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.sentences import counted
from gandalf.lab.blocks import Cell, TableBlock, number, words
from gandalf.lab.claims import Verdict
from gandalf.lab.convergence import Lengths, plateau
from gandalf.lab.results import PARTS, Contrast, ResultPlace, Results, RunLines, Sample, figure
from gandalf.lab.store import Line
from gandalf.lab.studies import STUDIES
from gandalf.lab.variants import OWN_BASELINE

FIGURES: dict[str, tuple[str, str]] = {
    **{f"{family}@{k}": (f"{family}@{k}", "all") for family in ("P", "PSP") for k in (1, 3, 5)},
    "P@1 new text": ("P@1", "new"),
    "PSP@5 new text": ("PSP@5", "new"),
}
COVERAGE = {f"C@{k}": (f"C@{k}", "all") for k in (1, 3, 5)}
OF_STUDY: dict[str, dict[str, tuple[str, str]]] = {"coverage": COVERAGE}
CHANCE = "≈"  # beside a figure


def study_table(results: Results, study: str, place: ResultPlace) -> TableBlock:
    """Return the table of a study at a place."""
    rows, shown = results.study(study)[place], OF_STUDY.get(study, FIGURES)
    base = next(iter(rows))
    cells: dict[str, list[Cell]] = {row: [words(row)] for row in rows}
    for name, part in shown.values():
        for row, cell in _column(results, rows, base, name, part).items():
            cells[row].append(cell)
    device = Counter(line["device"] for lines in rows.values() for line in lines).most_common(1)[0][0]
    for row, lines in rows.items():
        cells[row] += [*_cost([line for line in lines if line["device"] == device]), number(len(lines), "d")]
    head = ("", *shown, "seconds", "peak MB", "ms a query", "seeds")
    below = [
        _of_paper(row, found, shown) for row, found in published(_name(rows), study, place.system).items()
    ]
    return TableBlock(head, (*map(tuple, cells.values()), *below), caption(results, study, place))


def _column(results: Results, rows: RunLines, base: str, name: str, part: str) -> dict[str, Cell]:
    column = figure(name, PARTS[part])
    samples = {row: Sample.of(lines, column) for row, lines in rows.items()}
    means = {row: sample.mean for row, sample in samples.items()}
    known = [value for value in means.values() if not np.isnan(value)]
    best = f"{max(known):.2f}" if known else ""
    found = {}
    for row, sample in samples.items():
        cell = number(sample.mean)
        spread = "" if np.isnan(sample.deviation) else f" ± {sample.deviation:.2f}"
        chance = row != base and not np.isnan(means[row]) and not _real(results, rows, row, base, name, part)
        text = cell.text + spread
        found[row] = replace(cell, text=text, best=cell.text == best, chance=chance)
    return found


def _real(results: Results, rows: RunLines, row: str, base: str, name: str, part: str) -> bool:
    """Return True if the difference to the first row exceeds chance, or if chance is unknown."""
    found = results.contrast(rows[row], rows[base], name, part)
    return found.real or not found.by


def _cost(lines: list[Line]) -> list[Cell]:
    """Return the time and memory of runs on one kind of device; dashes without runs."""
    latencies = [line["latency_ms"] for line in lines if line.get("latency_ms") is not None]
    seconds, memory = [line["seconds"] for line in lines], [line["peak_memory"] for line in lines]
    return [
        number(float(np.mean(seconds)) if seconds else None, ",.1f"),
        number(max(memory) / 2**20 if memory else None, ",.0f"),
        number(min(latencies) if latencies else None),
    ]


def _of_paper(row: str, found: Mapping[str, float], shown: Mapping[str, tuple[str, str]]) -> tuple[Cell, ...]:
    figures = [number(found.get(name) if part == "all" else None) for name, part in shown.values()]
    return (words(f"paper: {row}"), *figures, *(number(None) for _ in range(4)))


def _name(rows: RunLines) -> str:
    return str(next(iter(rows.values()))[0]["name"])


def caption(results: Results, study: str, place: ResultPlace) -> str:
    """Return the encoder, length, seeds and evidence of a plateau."""
    rows = results.study(study)[place]
    lines = [line for of_row in rows.values() for line in of_row]
    recipe = lines[0]["recipe"]
    length = "" if recipe["training"].get("steps") else f"Epochs: {_spread(_epochs(lines), '.3g')}, "
    steps = _spread([line["steps"] for line in lines])
    encoder = encoder_of(recipe) or place.system
    seeds = len({line["run"]["seed"] for line in lines})
    return (
        f"{place.title}. Encoder: {encoder}. {length}steps: {steps}. "
        f"Seeds: {seeds}. {_upper(str(plateau(results, place)))}."
    )


def encoder_of(recipe: Mapping[str, Any]) -> str:
    """Return the encoder's kind, and its size or its transformer; nothing without an encoder."""
    encoder = recipe.get("encoder")
    if not encoder:
        return ""
    if encoder["kind"] == "transformer":
        return f"transformer {Path(encoder.get('model') or 'by default').name}"
    return f"{encoder['kind']}, {encoder['dim']}-d"


def _epochs(lines: list[Line]) -> list[float]:
    return [line["recipe"]["training"]["epochs"] for line in lines]


def _spread(values: Sequence[float], form: str = ",") -> str:
    """Return a number, or the least and the greatest of several."""
    least, most = min(values), max(values)
    return f"{least:{form}}" if least == most else f"{least:{form}} to {most:{form}}"


def bin_table(results: Results, place: ResultPlace) -> TableBlock:
    """Return the table of what bins of labels from head to tail add to P@5."""
    rows, head, cells = results.study("bins")[place], [""], []
    for row, lines in rows.items():
        bins = [line["figures"]["bins"] for line in lines]
        parts = np.mean([[each["contribution"] for each in one] for one in bins], axis=0)
        cells.append((words(row), *(number(part) for part in parts.tolist()), number(float(parts.sum()))))
        head = ["", *(f"{each['labels']:,} x {each['mean_frequency']:.1f}" for each in bins[0]), "P@5"]
    about = "Columns: labels of each bin, head first, and their mean training points. "
    return TableBlock(tuple(head), tuple(cells), about + caption(results, "bins", place))


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def cost_table(results: Results, place: ResultPlace) -> TableBlock:
    """Return the table of time, memory and latency with and without label points."""
    rows = results.study("cost")[place]
    cells = []
    for row, lines in rows.items():
        line = lines[0]
        epoch = line["seconds"] / max(line["recipe"]["training"]["epochs"], 1e-9)
        memory, latency = line["peak_memory"] / 2**20, line.get("latency_ms")
        cells.append((words(row), number(epoch), number(memory, ",.0f"), number(latency)))
    return TableBlock(
        ("", "seconds an epoch", "peak MB", "ms a query"), tuple(cells), caption(results, "cost", place)
    )


def graph_table(results: Results, data: str) -> TableBlock | None:
    """Return the table of seconds that each label graph takes."""
    found = results.facts.get(data, {}).get("graph_seconds")
    if not found:
        return None
    labels = results.facts[data]["labels"]
    rows = tuple((words(name), number(seconds, ".3f")) for name, seconds in found.items())
    return TableBlock(
        ("label graph", "seconds"), rows, f"{data}: {labels:,} labels, once for a training set."
    )


def density_table(results: Results, system: str, data: str) -> TableBlock:
    """Return the table of gains on thinned and drawn sets beside their densities."""
    rows = []
    for place, found in results.study("density").items():
        if place.system != system or not {"D", "G"} <= found.keys() or not _belongs(place.data, data):
            continue
        fact = results.facts.get(place.data, {})
        p1 = {row: Sample.of(lines, figure("P@1")).mean for row, lines in found.items()}
        gain = 100 * (p1["G"] - p1["D"]) / p1["D"] if p1["D"] else None
        densities = (fact.get("points_per_label"), fact.get("labels_per_point"))
        cells = (number(p1["D"]), number(p1["G"]), number(p1.get("default")), number(gain, "+.1f"))
        rows.append((words(place.data), *(number(each) for each in densities), *cells))
    head = ("", "points per label", "labels per point", "D", "G", "default", "gain of G, %")
    return TableBlock(head, tuple(rows), f"{system}: P@1 of thinned and drawn sets, one seed each.")


def _belongs(data: str, whole: str) -> bool:
    return data.partition("?")[0] in (whole, "synthetic")


def verdict_table(found: list[Verdict]) -> TableBlock:
    """Return a row for each claim, a column for each data set and kind of text."""
    said = {(each.claim, each.data, each.part): each for each in found}
    places = list(dict.fromkeys((each.data, each.part) for each in found))
    titles = [data if part == "all" else f"{data}, new texts" for data, part in places]
    rows = tuple(
        (words(claim), words(text), *(_said(said.get((claim, *place))) for place in places))
        for claim, text in dict.fromkeys((each.claim, each.words) for each in found)
    )
    return TableBlock(("", "claim", *titles), rows)


def _said(verdict: Verdict | None) -> Cell:
    """Return a cell with a verdict and the kind of its intervals."""
    if verdict is None:
        return words("–")
    tested = verdict.says != "not tested" and bool(verdict.findings)
    return replace(words(verdict.says), note=verdict.basis.mark if tested else "")


def numbers_table(found: list[Verdict]) -> TableBlock:
    """Return the numbers and the basis of every verdict."""
    rows = tuple(
        (
            words(each.claim),
            words(each.data),
            words({"all": "all", "new": "new texts"}[each.part]),
            words(each.says),
            words(str(each.basis)),
            Cell(each.count, each.count, more=each.numbers),
        )
        for each in found
        if each.findings
    )
    head = ("", "data", "texts", "verdict", "rests on", "numbers")
    return TableBlock(head, rows, "The numbers behind the verdicts, and what each rests on.")


def missing(results: Results) -> Iterator[str]:
    """Yield a sentence for each study that is not complete."""
    for study in STUDIES:
        wanted = results.planned(study)
        made = len({entry.run.key for entry in results.plan if entry.study == study} & results.lines.keys())
        if wanted > made:
            left = wanted - made
            verb = "is" if left == 1 else "are"
            yield f"{study}: {left} of {counted(wanted, 'run')} {verb} still to be made"


UNMEASURED = "not measured"
HEAD = ("", "row", "best length", "at equal steps", "each at its own best length")
CAPTION = (
    "P@1 on held-out training points, a row minus its system's baseline: at the recipe's length, and each at "
    "the best of the lengths that both were run at (row, baseline; times the recipe's). In brackets the 95 % "
    "interval. Lengths are chosen on the points that are shown, for both rows alike. On the test split other "
    f"lengths than the recipe's are {UNMEASURED}."
)
ROWS = ("G", "default")


def length_table(results: Results, places: list[ResultPlace]) -> TableBlock:
    """Return a line for each system and row; a row that was not run says so."""
    lines = [_line(Lengths.of(results, place), place, row) for place in places for row in ROWS]
    return TableBlock(HEAD, tuple(lines), CAPTION)


def _line(lengths: Lengths, place: ResultPlace, row: str) -> tuple[Cell, ...]:
    base = OWN_BASELINE.get(place.system, "D")
    here, there = lengths.best(row, base), lengths.best(base, row)
    best = UNMEASURED if here is None or there is None else f"{here:g}, {there:g}"
    title = words(f"{place.data}, {place.system}")
    contrasts = (lengths.equal(row, base), lengths.own(row, base))
    return (title, words(f"{row} − {base}"), words(best), *map(_difference, contrasts))


def _difference(found: Contrast | None) -> Cell:
    if found is None:
        return words(UNMEASURED)
    sure = f" ({found.low:+.1f} to {found.high:+.1f})" if found.by else ""
    return words(f"{found.difference:+.1f}{sure}")


FILE = "paper.json"


@lru_cache(maxsize=1)
def _figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.files("gandalf.lab") / FILE).read_text("utf-8"))
    return found


def published(data: str, study: str, system: str) -> dict[str, dict[str, float]]:
    """Return the rows of the paper's table of a study, in percent; none for other sets."""
    found: dict[str, dict[str, float]] = _figures().get(data, {}).get(study, {}).get(system, {})
    return found


def sets() -> tuple[str, ...]:
    """Return the names of the paper's data sets."""
    return tuple(_figures())
