"""The report as Markdown, and its runs as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gandalf.lab.blocks import Answers, Block, Cell, Picture, Section, TableBlock
from gandalf.lab.results import Results
from gandalf.lab.study_report import READING, ROWS
from gandalf.lab.study_tables import CHANCE

FIGURES = tuple(f"{family}@{k}" for family in ("P", "PSP", "C") for k in (1, 3, 5))
PARTS = {"": None, " label text": "label_text", " new text": "new_text"}


def markdown(sections: Sequence[Section], title: str) -> str:
    """The report without its pictures."""
    parts = [f"# {title}\n", f"{READING}\n", f"{ROWS}\n"]
    for section in sections:
        parts.append(f"## {section.title}\n")
        parts += [text for block in section.blocks if (text := _block(block))]
    return "\n".join(parts)


def _block(block: Block) -> str:
    if isinstance(block, Picture):
        return ""
    if isinstance(block, TableBlock):
        return f"{table_text(block)}\n"
    if isinstance(block, Answers):
        lines = [f"**{block.query}**\n"]
        for name, labels in block.of:
            lines.append(
                f"- {name}: " + ", ".join(f"**{text}**" if right else text for text, right in labels)
            )
        return "\n".join(lines) + "\n"
    return f"{block}\n"


def table_text(table: TableBlock) -> str:
    """A table in Markdown, under its caption."""
    caption = f"{table.caption}\n\n" if table.caption else ""
    marks = ["---" if at == 0 or _holds_words(table, at) else "---:" for at in range(len(table.head))]
    rows = ["| " + " | ".join(_escaped(_cell(cell)) for cell in row) + " |" for row in table.rows]
    head = [f"| {' | '.join(table.head)} |", f"| {' | '.join(marks)} |"]
    return caption + "\n".join([*head, *rows])


def _holds_words(table: TableBlock, column: int) -> bool:
    """Whether a column is read rather than compared: it is sorted as words are."""
    return any(isinstance(row[column].order, str) for row in table.rows)


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    text = f"{text} ({cell.note})" if cell.note else text
    text = f"{text}: {cell.more}" if cell.more else text
    return f"{text} {CHANCE}" if cell.chance else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


CSV_HEAD = ("study", "row", "data", "name", "system", "seed", "split", "settings")  # then figures and costs


def runs_csv(results: Results) -> str:
    """One line for every run of every study."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    figures = [f"{name}{part}" for part in PARTS for name in FIGURES]
    writer.writerow([*CSV_HEAD, *figures, "steps", "seconds", "peak_memory", "latency_ms", "device", "key"])
    for entry in results.plan:
        line = results.lines.get(entry.run.key)
        if line is None:
            continue
        run = entry.run
        values = [
            (line["figures"] if key is None else line["figures"].get(key) or {}).get(name, "")
            for key in PARTS.values()
            for name in FIGURES
        ]
        cost = [line["steps"], line["seconds"], line["peak_memory"], line.get("latency_ms", "")]
        first = [entry.study, entry.row, run.data, line["name"], run.system, run.seed, run.split]
        writer.writerow([*first, " ".join(run.settings), *values, *cost, line["device"], entry.run.key])
    return file.getvalue()
