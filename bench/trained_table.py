"""How long each system was trained on each set, and what tells that this was enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.former import marked
from bench.tables import Line, table
from gandalf.lab.convergence import plateau
from gandalf.lab.results import Results
from gandalf.lab.study_tables import encoder_of

Evidence = Mapping[tuple[str, str], str]  # by the names of data set and system

INTRODUCTION = """\
## How they were trained

At a plateau: twice the steps move P@1 of D and of G on held-out training points by less than a point, up or
down; all else is called reduced ([verdicts.md]({docs}lab/verdicts.md#who-is-at-a-plateau)). Steps
are those of all stages together.
"""
UNKNOWN = "reduced: not run"


def evidence(folder: Path) -> Evidence:
    """What the stored runs of the convergence study say."""
    found = Results.read(folder)
    return {
        (next(iter(rows.values()))[0]["name"], place.system): marked(
            str(plateau(found, place)), (line for lines in rows.values() for line in lines)
        )
        for place, rows in found.study("convergence").items()
    }


def trained_section(lines: list[Line], known: Evidence, docs: str = "../") -> str:
    """A row for each system on each set; `docs` leads from the page to the other pages."""
    places = {(line["name"], line["run"]["system"]): line for line in lines}
    rows = [
        [f"{data}, {system}", *_length(line), known.get((data, system), UNKNOWN)]
        for (data, system), line in sorted(places.items())
    ]
    return (
        f"{INTRODUCTION.format(docs=docs)}\n{table(['', 'encoder', 'epochs', 'steps', 'evidence'], rows)}\n"
    )


def _length(line: Line) -> list[str]:
    recipe = line["recipe"]
    return [encoder_of(recipe) or "–", f"{recipe['training']['epochs']:g}", f"{line['steps']:,}"]
