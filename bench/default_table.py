"""Print the tables of docs/lab/default.md from the lines that `bench.default` has kept.

    python -m bench.default_table
    python -m bench.default_table --row decaf     # judge another row by the rule
    python -m bench.default_table --write         # put the tables into docs/lab/default.md

Figures are means over seeds. Intervals are a paired bootstrap over test points of the mean over seeds; they
do not hold the spread between seeds. Needs the data sets, for their truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.command import argument_parser
from bench.default import OUT, Line, read_places, read_results, scores_of
from bench.default_rows import LINEAR, MOST_LABELS, ROWS
from bench.default_sets import DERIVED, NUMBERS, SAMPLED, open_default_set
from bench.machine import DATA_ROOT, replaced
from bench.tables import FIGURES, Compared, Sample, figure, table, three, verdict_counts
from gandalf import DataError, Splits
from gandalf.lab.results import mean_scores
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import Scores

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "default.md"
MARK = "DEFAULT_TABLES"  # around the tables of the page
JUDGED = ("P@1", "PSP@5")  # figures of the rule
FEWEST = 100  # test points of each kind of text that a set needs for figures of the two kinds apart
SAME = 1e-6  # percent points by which a figure may differ from the one that its places give
BEFORE = "astec"  # the default before this one
DERIVED_ROWS = ("popularity", "sklearn", "omikuji", "omikuji+labels")  # linear rows of the derived sets
PARTS = {"label text": "label_text", "new text": "new_text"}

KINDS: dict[str, tuple[str, ...]] = {
    "Item to item": ("man", "web", "docs", "wordnet"),
    "Tags and subjects": ("library", "cooking", "packages"),
    **{f"Samples of {name}": tuple(f"{name}-{number}" for number in NUMBERS) for name in SAMPLED},
    "Single label, graded targets": ("packages-single", "cooking-graded"),
    "Other regimes, of training points alone": tuple(DERIVED),
}
ORDER = [name for names in KINDS.values() for name in names]
Rows = dict[str, dict[str, list[Line]]]  # by set and row, a line for each seed


def grouped(lines: Sequence[Line]) -> Rows:
    """Return the lines of each set and row, in the order of the tables."""
    found: Rows = {name: {row: [] for row in ROWS} for name in ORDER}
    for line in lines:
        found[line["set"]][line["row"]].append(line)
    filled = {name: {row: seeds for row, seeds in rows.items() if seeds} for name, rows in found.items()}
    return {name: rows for name, rows in filled.items() if rows}


# ---- figures


def kind_tables(results: Rows) -> Iterator[str]:
    """Yield the tables of each kind of set: all texts and, where there are both, the two kinds apart."""
    for title, names in KINDS.items():
        sets = [name for name in names if name in results]
        if not sets:
            continue
        yield f"### {title}"
        yield _sizes(results, sets)
        yield figure_table(results, {_code(name): (name, None) for name in sets})
        both = [name for name in sets if _has_both(results[name])]
        if both:
            yield "Texts that are a label's text (`label text`) and others (`new text`) apart:"
            yield figure_table(
                results,
                {f"{_code(name)} {kind}": (name, part) for name in both for kind, part in PARTS.items()},
            )


def figure_table(results: Rows, columns: Mapping[str, tuple[str, str | None]]) -> str:
    """Return P@1 ; PSP@5 ; C@5 of each row on sets or parts of sets; of whole sets the seconds too."""
    names = {name for name, _ in columns.values()}
    rows = [row for row in ROWS if any(row in results[name] for name in names)]
    cells = [[_cell(results[name].get(row), part) for name, part in columns.values()] for row in rows]
    return table(["", *columns], [[ROWS[row].title, *each] for row, each in zip(rows, cells, strict=True)])


def _cell(lines: list[Line] | None, part: str | None) -> str:
    if not lines:
        return ""
    shown = three({name: Sample.of(lines, figure(name, part)).mean for name in FIGURES})
    if part is not None:
        return shown
    seconds, cpu = (np.mean([line[name] for line in lines]) for name in ("seconds", "cpu_seconds"))
    return f"{shown} ({_seconds(seconds)}, {_seconds(cpu)})"


def _seconds(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _has_both(rows: dict[str, list[Line]]) -> bool:
    line = next(iter(rows.values()))[0]
    parts = [line["figures"][part] for part in PARTS.values()]
    return all(part is not None and part["points"] >= FEWEST for part in parts)


def _sizes(results: Rows, sets: Sequence[str]) -> str:
    """Return the sizes of the sets in words."""
    told = []
    for name in sets:
        line = next(iter(results[name].values()))[0]
        sizes = (line["points"], line["labels"], line["figures"]["points"])
        told.append(f"{_code(name)} {sizes[0]:,} / {sizes[1]:,} / {sizes[2]:,}")
    return f"Training points / labels / test points: {', '.join(told)}."


def _code(name: str) -> str:
    return f"`{name}`"


# ---- the rule


def judge_row(results: Rows, row: str, others: Sequence[str], path: Path, root: Path) -> list[Compared]:
    """Compare the row with the best of the others on each set and figure."""
    found = []
    for name, rows in results.items():
        present = [other for other in others if other in rows and other != row]
        if row not in rows or not present:
            continue
        splits = open_default_set(name, root)
        own = stored_scores(rows[row], splits, path)
        for each in JUDGED:
            best = _best(rows, present, each)
            gap = compare(own, stored_scores(rows[best], splits, path))[each]
            found.append(Compared(name, best, each, gap.difference, gap.low, gap.high))
    return found


def _best(rows: dict[str, list[Line]], names: Sequence[str], name: str) -> str:
    """Return the row with the highest mean of a figure."""
    column = figure(name)
    return max(names, key=lambda row: Sample.of(rows[row], column).mean)


def stored_scores(lines: Sequence[Line], splits: Splits, path: Path) -> Scores:
    """Return the scores of a row, the mean over its seeds, from the places beside the lines."""
    every = [scores_of(read_places(path, line), splits) for line in lines]
    for line, scores in zip(lines, every, strict=True):
        values = scores.contributions.values()
        if any(abs(values[name] - line["figures"][name]) > SAME for name in JUDGED):
            what = f"the line of {line['row']} on {line['set']} was measured on other data"
            raise DataError(what, remedy="repeat the run with --again")
    return mean_scores(every)


def judgement_table(judged: Sequence[Compared]) -> str:
    """Return the differences with their intervals, a line for each set."""
    head = [
        "set",
        *(title for name in JUDGED for title in (f"best other row, {name}", f"{name}, difference")),
    ]
    lines = []
    for name in dict.fromkeys(each.data for each in judged):
        of_set = {each.figure: each for each in judged if each.data == name}
        cells = [cell for each in JUDGED for cell in (of_set[each].rival, _interval(of_set[each]))]
        lines.append([_code(name), *cells])
    return table(head, lines)


def _interval(judged: Compared) -> str:
    difference, _, interval = judged.shown.partition(" ")
    return f"**{difference}** {interval}" if judged.verdict == "behind" else judged.shown


def judgement_sentence(judged: Sequence[Compared], row: str, others: str) -> str:
    """Count where the rule "not worse by more than chance" holds and fails, and name the failures."""
    failed = [f"{_code(each.data)} ({each.figure})" for each in judged if each.verdict == "behind"]
    held = len(judged) - len(failed)
    return (
        f"The rule holds for `{row}` against {others} in {held} of {len(judged)} comparisons:"
        f" {verdict_counts(judged)}." + (f" It fails on {', '.join(failed)}." if failed else "")
    )


def judgements(results: Rows, row: str, path: Path, root: Path) -> Iterator[str]:
    """Yield the comparisons of the row with the linear rows and with the default before."""
    contests = {"the best linear row": LINEAR, f"`{BEFORE}`": (BEFORE,)}
    for words, others in contests.items():
        # A set on which only weak rows are measured yet would be an empty win.
        lacking = {name: rows for name, rows in results.items() if others == LINEAR and _lacks_rows(rows)}
        complete = {name: rows for name, rows in results.items() if name not in lacking}
        judged = judge_row(complete, row, others, path, root)
        if judged:
            yield f"### `{row}` minus {words}"
            yield judgement_sentence(judged, row, words)
            yield judgement_table(judged)
        unjudged = [_code(name) for name, rows in lacking.items() if row in rows]
        if unjudged:
            yield f"Not judged, since linear rows are missing: {', '.join(unjudged)}."


def _lacks_rows(rows: dict[str, list[Line]]) -> bool:
    """Return True if a linear row that the set allows is not measured."""
    line = next(iter(rows.values()))[0]
    needed = DERIVED_ROWS if line["set"] in DERIVED else LINEAR
    return any(name not in rows for name in needed if name != "sklearn" or line["labels"] <= MOST_LABELS)


# ---- the command


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argument_parser(__doc__)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=["default"], help="rows to judge")
    parser.add_argument("--results", type=Path, default=OUT, help="file that bench.default has written")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="folder that holds the data sets")
    parser.add_argument("--write", action="store_true", help=f"write into {PAGE.name}")
    chosen = parser.parse_args()
    results = grouped(list(read_results(chosen.results).values()))
    parts = [*kind_tables(results)]
    for row in chosen.row:
        parts += judgements(results, row, chosen.results, chosen.data_root)
    text = "\n\n".join(parts)
    if not chosen.write:
        print(text)
        return
    PAGE.write_text(replaced(PAGE.read_text("utf-8"), MARK, text), "utf-8")


if __name__ == "__main__":
    main()
