"""Build the report as sections, for HTML and Markdown alike."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gandalf.data.sentences import weighted_count
from gandalf.lab.blocks import Block, Section, TableBlock, number, words
from gandalf.lab.claims import verdicts
from gandalf.lab.convergence import TOLERANCE
from gandalf.lab.evidence import MARGIN
from gandalf.lab.results import Results
from gandalf.lab.store import Line
from gandalf.lab.studies import STUDIES
from gandalf.lab.study_figures import RULE, answers, density_picture, pictures
from gandalf.lab.study_tables import (
    CHANCE,
    bin_table,
    cost_table,
    density_table,
    graph_table,
    length_table,
    missing,
    numbers_table,
    study_table,
    verdict_table,
)

READING = (
    "Figures are percentages on the test split, its filter applied; mean over seeds ± standard deviation. "
    "All rows take equal steps unless they say otherwise. Bold: the best of a column. "
    f"{CHANCE}: the difference to the table's first row may be chance, by a paired bootstrap over test "
    "points where predictions were kept, and by the spread between seeds. New text: test points whose "
    "text is no label's. Seconds and memory are those of training, "
    "where several runs may have shared the processor or GPU."
)
ROWS = (
    "D: training points alone. Z: label points alone. U(G,N): as many as D has, drawn from both. Z1: D and "
    "label points whose one target is the label itself. G: D and Z, Gandalf as in the paper. shrunk, "
    "calibrated: better estimates as targets. default: what gandalf train does. auto: chosen on a share of "
    "the training points."
)
RULE_OF_VERDICTS = (
    "A claim holds where every figure that it is about says so by more than chance, partly where some "
    "do. Chance is the draw of test points and of seeds; in brackets stands what the intervals of a "
    "verdict are over, the least of them: 'seeds alone' says nothing of other test points. One seed "
    "without kept predictions tells nothing. 'At least as good' asks for an interval that rules out a "
    f"loss of {MARGIN:g} point. A system supports a claim only if it was trained to a plateau: twice the "
    f"steps move P@1 on held-out training points by less than {TOLERANCE:g} point, up or down. All else "
    "is called reduced."
)


def sections(results: Results) -> list[Section]:
    """Return the claims, every study with results, and the commands that repeat them."""
    said = verdicts(results)
    found = [
        Section("The paper's claims", [RULE_OF_VERDICTS, verdict_table(said), numbers_table(said)], "claims")
    ]
    found += [part for study in STUDIES for part in _study(results, study)]
    return [*found, _again(results)]


def _study(results: Results, study: str) -> Iterator[Section]:
    blocks = list(SPECIAL.get(study, _tables)(results, study))
    if blocks:
        about = STUDIES[study]
        yield Section(about.title, [about.asks, *blocks], study)


def _tables(results: Results, study: str) -> Iterator[Block]:
    for place in results.study(study):
        yield study_table(results, study, place)
        yield from pictures(results, study, place)


def _cost(results: Results, study: str) -> Iterator[Block]:
    for place in results.study(study):
        yield cost_table(results, place)
    for data in dict.fromkeys(place.data for place in results.study(study)):
        table = graph_table(results, data)
        if table is not None:
            yield table


def _convergence(results: Results, study: str) -> Iterator[Block]:
    places = list(results.study(study))
    if places:
        yield length_table(results, places)
    yield from _tables(results, study)


def _bins(results: Results, study: str) -> Iterator[Block]:
    for place in results.study(study):
        yield bin_table(results, place)
        yield from pictures(results, study, place)


def _density(results: Results, study: str) -> Iterator[Block]:
    places = results.study(study)
    whole = dict.fromkeys(place.data for place in places if "?" not in place.data)
    for data in whole:
        for system in dict.fromkeys(place.system for place in places if place.data == data):
            yield density_table(results, system, data)
            picture = density_picture(results, system, data)
            if picture is not None:
                yield picture


def _qualitative(results: Results, study: str) -> Iterator[Block]:
    found = list(answers(results))
    if found:
        yield f"Queries: {RULE}. Wrong labels are grey."
        yield from found


def _neighbours(results: Results, study: str) -> Iterator[Block]:
    for data, fact in results.facts.items():
        for label in fact.get("neighbours", ()):
            rows = tuple(
                (
                    words(each["text"]),
                    replace(number(each["target"]), bar=each["target"]),
                    number(each["together"], "g"),
                    number(each["frequency"], "g"),
                )
                for each in label["neighbours"]
            )
            head = ("neighbour", "target", "together", "its points")
            yield TableBlock(
                head, rows, f"{data}: {label['text']} ({weighted_count(label['frequency'], 'point')})"
            )


SPECIAL = {
    "convergence": _convergence,
    "bins": _bins,
    "cost": _cost,
    "density": _density,
    "qualitative": _qualitative,
    "neighbours": _neighbours,
}


def _again(results: Results) -> Section:
    """Return the commands that make these results, the runs missing, and the machines."""
    lines = list(missing(results))
    commands = "\n".join(_commands(results))
    found = Counter(_machine(line) for line in results.lines.values())
    rows = tuple((words(what), number(runs, "d")) for what, runs in found.items())
    blocks: list[Block] = [*lines, f"```\n{commands}\n```"]
    if rows:
        blocks.append(TableBlock(("made with", "runs"), rows))
    return Section("Make it again", blocks, "again")


def _machine(line: Line) -> str:
    """Return the processors and versions of a run."""
    had = line.get("machine", {})
    gpu = f"{had['gpu']}, " if line["device"] == "cuda" and "gpu" in had else ""
    others = [f"{name} {value}" for name, value in had.items() if name not in ("cpu", "cores", "gpu")]
    return f"{gpu}{had.get('cpu', 'unknown')}, {had.get('cores', '?')} cores, {', '.join(others)}"


def _commands(results: Results) -> Iterator[str]:
    asked: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    seeds = 1 + max(entry.run.seed for entry in results.plan)
    for entry in results.plan:
        data = entry.run.data.partition("?")[0]
        if data != "synthetic":
            asked.setdefault((data, entry.base), {})[entry.run.system] = None
    studies = [study for study in STUDIES if results.study(study)]
    for (data, base), systems in asked.items():
        source = results.facts.get(data, {}).get("source", data)
        sets = [word for each in base for word in ("--set", each)]
        for study in ["all"] if len(studies) > 8 else studies:
            words_ = [
                "gandalf",
                "reproduce",
                study,
                source,
                "--systems",
                ",".join(systems),
                "--seeds",
                str(seeds),
            ]
            yield shlex.join([*words_, "--out", str(results.folder), *sets])
    yield shlex.join(["gandalf", "report", str(results.folder), "-o", "report.html"])
