"""The report as one HTML file that needs nothing else: its tables sort by a few lines of script inside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gandalf.lab.blocks import Answers, Block, Cell, Picture, Section, TableBlock
from gandalf.lab.page import filled
from gandalf.lab.study_report import READING, ROWS
from gandalf.lab.study_tables import CHANCE

TEMPLATE = "study_page.html"
SAID = ("holds", "holds partly", "fails", "reduced", "not tested")  # verdicts, which have colours


def study_page(sections: Sequence[Section], title: str, made_by: str) -> str:
    """The whole page."""
    links = "".join(f'<a href="#{each.name}">{escape(each.title)}</a> ' for each in sections)
    slots = {
        "title": escape(title),
        "reading": escape(READING),
        "rows": escape(ROWS),
        "links": links,
        "sections": "\n".join(map(_section, sections)),
        "made": escape(f"Made by {made_by}."),
    }
    return filled(TEMPLATE, slots)


def _section(section: Section) -> str:
    body: list[str] = []
    figures: list[str] = []
    for block in [*section.blocks, ""]:
        if isinstance(block, Picture):
            figures.append(_picture(block))
            continue
        if figures:
            body.append(f'<div class="pair">{"".join(figures)}</div>')
            figures = []
        body.append(_block(block))
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{"".join(body)}</section>'


def _block(block: Block) -> str:
    if isinstance(block, TableBlock):
        return _table(block)
    if isinstance(block, Answers):
        return _answers(block)
    if isinstance(block, Picture):
        return _picture(block)
    if block.startswith("```"):
        return f"<pre>{escape(block.strip('`').strip())}</pre>"
    return f"<p>{escape(block)}</p>" if block else ""


def _picture(picture: Picture) -> str:
    return f"<figure>{picture.legend}{picture.svg}<figcaption>{escape(picture.caption)}</figcaption></figure>"


def _table(table: TableBlock) -> str:
    caption = f"<caption><span>{escape(table.caption)}</span></caption>" if table.caption else ""
    first = table.rows[0] if table.rows else ()
    kinds = [' class="word"' if isinstance(cell.order, str) else "" for cell in first] or [""] * len(
        table.head
    )
    head = "".join(
        f'<th scope="col"{kind}><button>{escape(name) or "&nbsp;"}</button></th>'
        for name, kind in zip(table.head, kinds, strict=True)
    )
    rows = "".join(f"<tr>{_first(row[0])}{''.join(map(_cell, row[1:]))}</tr>" for row in table.rows)
    kind = ' class="wordy"' if "numbers" in table.head else ""
    whole = f"<table{kind}>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll">{whole}</div>'


def _first(cell: Cell) -> str:
    return f'<th scope="row" data-order="{escape(str(cell.order))}">{escape(cell.text)}</th>'


def _cell(cell: Cell) -> str:
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


def _answers(answers: Answers) -> str:
    lists = "".join(
        f"<div><h4>{escape(name)}</h4><ol>"
        + "".join(
            f'<li class="{"right" if right else "wrong"}">{escape(text)}</li>' for text, right in labels
        )
        + "</ol></div>"
        for name, labels in answers.of
    )
    return f'<div class="query"><h3>{escape(answers.query)}</h3><div class="answers">{lists}</div></div>'
