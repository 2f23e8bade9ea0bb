"""docs/lab/report.md, the verdicts on the paper's claims, and the whole report in bench/results/report.md.

    python -m bench.report_page

The whole report is what `gandalf report bench/results/engine -o bench/results/report.md` writes.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from bench.command import argument_parser
from bench.engine import ENGINE
from bench.machine import RESULTS
from bench.results_page import DOCS
from gandalf.data.files import written
from gandalf.lab.claims import Verdict, verdicts
from gandalf.lab.evidence import MARKS
from gandalf.lab.results import BOTH, OF_SEEDS, Results
from gandalf.lab.study_pages import markdown, table_text
from gandalf.lab.study_report import RULE_OF_VERDICTS, sections
from gandalf.lab.study_tables import length_table, verdict_table

TITLE = """\
# The paper's claims, judged

Written by `python -m bench.report_page` from the lines in `bench/results/engine/`; not by hand. The numbers
behind each verdict, what it rests on, and all tables: [report.md](../../bench/results/report.md). In words:
[verdicts.md](../lab/verdicts.md#what-the-claims-came-to).

Rows D (renee: Z1), G and default of inceptionxml, siamesexml, ngame and renee on Man and Web are of the
present parts, and of the first two on Docs, seed 0. All other rows of these systems and of inceptionxml-lf,
and all their lengths, are of [former parts](../reference/systems.md#former-parts).
"""
CONTROL = "LF-WordNetRelated-64K"  # two systems without evidence of a plateau: nothing is judged there


def answer(found: list[Verdict]) -> str:
    """Return three sentences: of all texts, of new texts, and what the verdicts rest on."""
    judged = [each for each in found if each.says not in ("not tested", "reduced")]
    by_part = {part: Counter(each.says for each in judged if each.part == part) for part in ("all", "new")}
    marks = Counter(each.basis.mark for each in judged)
    return (
        f"**The verdicts on the claims, on three sets: {_told(by_part['all'])} on all test texts, and "
        f"{_told(by_part['new'])} on texts that are no label's.** "
        f"Of these {len(judged)} verdicts {marks[MARKS[BOTH]]} rest on intervals over "
        f"test points and seeds throughout, {marks[MARKS[OF_SEEDS]]} at least in part on those over seeds "
        "alone, and the others at least in part on means without an interval."
    )


def _told(counts: Counter[str]) -> str:
    parts = [f'{counts[says]} "{says}"' for says in ("holds", "holds partly", "fails")]
    return f"{', '.join(parts[:2])} and {parts[2]}"


def short_report(results: Results) -> str:
    """Return the page of verdicts."""
    found = [each for each in verdicts(results) if each.data != CONTROL]
    places = [place for place in results.study("convergence") if "?" not in place.data]
    return "\n".join(
        [
            TITLE,
            f"{answer(found)}\n",
            f"{RULE_OF_VERDICTS}\n",
            f"{table_text(verdict_table(found))}\n",
            "## At equal steps, and each at its own best length\n",
            f"{table_text(length_table(results, places))}\n",
        ]
    )


def main() -> None:
    """Write both pages."""
    argument_parser(__doc__).parse_args()
    results = Results.read(Path(os.path.relpath(ENGINE)))  # the page names the folder as a person types it
    whole = markdown(sections(results), "Label points on Man, Web, Docs and WordNet")
    for path, text in ((RESULTS / "report.md", whole), (DOCS / "report.md", short_report(results))):
        with written(path) as file:
            file.write(text)
        print(path)


if __name__ == "__main__":
    main()
