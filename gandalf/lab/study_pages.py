"""Write a report as one HTML page, as Markdown, and its runs as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape

from gandalf.lab.blocks import Answers, Block, Cell, Picture, Section, TableBlock
from gandalf.lab.page import filled, framed
from gandalf.lab.results import Results
from gandalf.lab.study_report import READING, ROWS
from gandalf.lab.study_tables import CHANCE

TEMPLATE = "study_page.html"
SAID = ("holds", "holds partly", "fails", "reduced", "not tested")  # verdicts, which have colours


def study_page(sections: Sequence[Section], title: str, made_by: str) -> str:
    """Return the whole page."""
    links = "".join(f'<a href="#{each.name}">{escape(each.title)}</a> ' for each in sections)
    slots = {
        "title": escape(title),
        "reading": escape(READING),
        "rows": escape(ROWS),
        "links": links,
        "sections": "\n".join(map(_html_section, sections)),
        "made": escape(f"Made by {made_by}."),
    }
    return filled(TEMPLATE, slots)


def _html_section(section: Section) -> str:
    body: list[str] = []
    figures: list[str] = []
    for block in [*section.blocks, ""]:
        if isinstance(block, Picture):
            figures.append(framed(block.svg, block.caption, block.legend))
            continue
        if figures:
            body.append(f'<div class="pair">{"".join(figures)}</div>')
            figures = []
        body.append(_html_block(block))
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{"".join(body)}</section>'


def _html_block(block: Block) -> str:
    if isinstance(block, TableBlock):
        return _html_table(block)
    if isinstance(block, Answers):
        return _html_answers(block)
    if isinstance(block, Picture):
        return framed(block.svg, block.caption, block.legend)
    if block.startswith("```"):
        return f"<pre>{escape(block.strip('`').strip())}</pre>"
    return f"<p>{escape(block)}</p>" if block else ""


def _html_table(table: TableBlock) -> str:
    caption = f"<caption><span>{escape(table.caption)}</span></caption>" if table.caption else ""
    first = table.rows[0] if table.rows else ()
    kinds = [' class="word"' if isinstance(cell.order, str) else "" for cell in first] or [""] * len(
        table.head
    )
    head = "".join(
        f'<th scope="col"{kind}><button>{escape(name) or "&nbsp;"}</button></th>'
        for name, kind in zip(table.head, kinds, strict=True)
    )
    rows = "".join(f"<tr>{_html_first(row[0])}{''.join(map(_html_cell, row[1:]))}</tr>" for row in table.rows)
    kind = ' class="wordy"' if "numbers" in table.head else ""
    whole = f"<table{kind}>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll">{whole}</div>'


def _html_first(cell: Cell) -> str:
    return f'<th scope="row" data-order="{escape(str(cell.order))}">{escape(cell.text)}</th>'


def _html_cell(cell: Cell) -> str:
    said = cell.text.replace(" ", "-") if cell.text in SAID else ""
    kinds = [name for name, is_so in (("best", cell.best), ("word", isinstance(cell.order, str))) if is_so]
    kinds += [said] if said else []
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    if cell.bar is not None:
        kind = f' class="barred" style="--bar: {cell.bar:.3f}"'
    mark = f'<abbr title="may be chance">{CHANCE}</abbr>' if cell.chance else ""
    note = f" <small>{escape(cell.note)}</small>" if cell.note else ""
    text = f"{escape(cell.text)}{mark}{note}"
    if cell.more:
        text = f"<details><summary>{text}</summary>{escape(cell.more)}</details>"
    return f'<td{kind} data-order="{escape(str(cell.order))}">{text}</td>'


def _html_answers(answers: Answers) -> str:
    lists = "".join(
        f"<div><h4>{escape(name)}</h4><ol>"
        + "".join(
            f'<li class="{"right" if right else "wrong"}">{escape(text)}</li>' for text, right in labels
        )
        + "</ol></div>"
        for name, labels in answers.of
    )
    return f'<div class="query"><h3>{escape(answers.query)}</h3><div class="answers">{lists}</div></div>'


FIGURES = tuple(f"{family}@{k}" for family in ("P", "PSP", "C") for k in (1, 3, 5))
PARTS = {"": None, " label text": "label_text", " new text": "new_text"}


def markdown(sections: Sequence[Section], title: str) -> str:
    """Return the report in Markdown, without pictures."""
    parts = [f"# {title}\n", f"{READING}\n", f"{ROWS}\n"]
    for section in sections:
        parts.append(f"## {section.title}\n")
        parts += [text for block in section.blocks if (text := _markdown_block(block))]
    return "\n".join(parts)


def _markdown_block(block: Block) -> str:
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
    """Return a table in Markdown, under its caption."""
    caption = f"{table.caption}\n\n" if table.caption else ""
    marks = ["---" if at == 0 or _holds_words(table, at) else "---:" for at in range(len(table.head))]
    rows = ["| " + " | ".join(_escaped(_markdown_cell(cell)) for cell in row) + " |" for row in table.rows]
    head = [f"| {' | '.join(table.head)} |", f"| {' | '.join(marks)} |"]
    return caption + "\n".join([*head, *rows])


def _holds_words(table: TableBlock, column: int) -> bool:
    """Return True if a column holds words, which are sorted as such."""
    return any(isinstance(row[column].order, str) for row in table.rows)


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    text = f"{text} ({cell.note})" if cell.note else text
    text = f"{text}: {cell.more}" if cell.more else text
    return f"{text} {CHANCE}" if cell.chance else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


CSV_HEAD = ("study", "row", "data", "name", "system", "seed", "split", "settings")  # then figures and costs


def runs_csv(results: Results) -> str:
    """Return a line of CSV for every run of every study."""
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
