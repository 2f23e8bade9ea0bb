"""The demonstration as one HTML file that needs nothing else: no scripts, no requests."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gandalf.data.formats.texts import clean
from gandalf.data.sentences import counted
from gandalf.graph.postulate import Diagnosis
from gandalf.lab.comparison import (
    MARKS,
    OURS,
    TOLD,
    Answer,
    SideBySide,
    figure_groups,
    ours_against_others,
    sentence,
    span,
)
from gandalf.lab.page import Axis, Series, bar_chart, filled, framed, legend, line_chart, nice_end

TEMPLATE = "demo_page.html"
STYLES = {"calibrated": 1, "ratio": 2, "shrunk": 3}  # of estimates: as the variants that train with them


def demo_page(found: SideBySide, commands: Sequence[str], made_by: str) -> str:
    """Return the whole page; `commands` repeat the demonstration and go on from it."""
    recipe = found.recipe
    slots = {
        "title": escape(f"What label texts are worth on {clean(found.data)}"),
        "lead": "".join(f"<li>{escape(sentence(each))}.</li>" for each in ours_against_others(found)),
        "done": _done(found),
        "variants": _variants(found),
        "legend": legend([Series(entry.name, at, ()) for at, entry in enumerate(found.entries)]),
        "kinds": _kinds(found),
        "bins": _bins(found),
        "verdicts": _verdicts(found),
        "table": _table(found),
        "rule": escape(_sentence(found.questions.rule)),
        "queries": "\n".join(_query(found, number) for number in found.questions.numbers),
        "curves": _curves(found),
        "reliability": _reliability(found.diagnosis),
        "verdict": escape(found.diagnosis.verdict),
        "saved": escape(f"Saved is the model {found.saved}: {found.why}. The test split had no say."),
        "commands": escape("\n".join(commands)),
        "made": escape(f"Made by {made_by}, seed {recipe['seed']}. All figures are in results.json."),
    }
    return filled(TEMPLATE, slots)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _done(found: SideBySide) -> str:
    held = found.entries[0].held
    apart = ""
    if held is not None:
        apart = f" {counted(found.held_out, 'training point was', 'training points were')} held out by all;"
        apart += f" scored are the {held.filtered.points:,} with a label that can be asked for."
    return escape(
        f"The same model ({found.recipe['system']}) was trained {len(found.entries)} times on "
        f"{found.points:,} texts with {found.labels:,} labels, for {found.entries[0].steps:,} updates each. "
        f"What differs is what is done with the labels’ own texts.{apart}"
    )


def _variants(found: SideBySide) -> str:
    return "".join(
        f'<dt><i class="s{number}"></i>{escape(entry.name)}</dt><dd>{escape(entry.variant.what)}</dd>'
        for number, entry in enumerate(found.entries)
    )


def _kinds(found: SideBySide) -> str:
    first = found.entries[0].scores
    kinds = {"label_text": "text is a label's", "new_text": "new text", "filtered": "all"}
    shown = {kind: getattr(first, kind) for kind in kinds}
    shown = {kind: part for kind, part in shown.items() if part is not None and part.points}
    series = [
        Series(entry.name, at, [getattr(entry.scores, kind).values["P@1"] for kind in shown])
        for at, entry in enumerate(found.entries)
    ]
    groups = [(kinds[kind], f"{part.points:,} texts") for kind, part in shown.items()]
    return bar_chart(groups, series, "P@1")


def _bins(found: SideBySide) -> str:
    bins = found.entries[0].scores.bins
    ends = {1: "1, head", len(bins): f"{len(bins)}, tail"}
    groups = [(ends.get(n, str(n)), f"{each.labels:,}") for n, each in enumerate(bins, start=1)]
    series = [
        Series(entry.name, at, [each.contribution for each in entry.scores.bins])
        for at, entry in enumerate(found.entries)
    ]
    return bar_chart(groups, series, "part of P@5")


def _verdicts(found: SideBySide) -> str:
    rows = [
        f'<tr><th scope="row">{escape(f"{OURS} − {each.other}, {each.texts}")}</th>'
        + "".join(
            f"<td{' class=real' if one.real else ''}>{one.difference:+.1f} <span>{span(one)}</span></td>"
            for one in (each.differences[name] for name in TOLD)
        )
        + "</tr>"
        for each in ours_against_others(found)
    ]
    caption = "Differences in points, 95 % intervals over resampled test texts; bold: more than chance."
    return _html_table(caption, ["", *TOLD], "<tbody>" + "".join(rows) + "</tbody>")


def _table(found: SideBySide) -> str:
    bodies = []
    width = len(found.entries) + 1
    for section in figure_groups(found):
        rows = [f'<tr><th scope="rowgroup" colspan="{width}">{escape(_upper(section.title))}</th></tr>']
        for row in section.rows:
            cells = (
                f"<td{' class=best' if best else ''}>{escape(cell)}</td>"
                for cell, best in zip(row.cells, row.best, strict=True)
            )
            rows.append(f'<tr><th scope="row">{escape(row.name)}</th>{"".join(cells)}</tr>')
        bodies.append(f"<tbody>{''.join(rows)}</tbody>")
    caption = "The test split in percent, its filter applied; the highest of a row stands out."
    return _html_table(caption, ["", *(entry.name for entry in found.entries)], "".join(bodies))


def _html_table(caption: str, headings: Sequence[str], body: str) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' if each else "<td></td>" for each in headings)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>{body}</table>"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _query(found: SideBySide, number: int) -> str:
    lists = "".join(
        f"<div><h4>{escape(entry.name)}</h4><ol>{''.join(map(_answer, entry.answers[number]))}</ol></div>"
        for entry in found.entries
    )
    text = escape(clean(found.questions.texts[number]))
    return f'<section class="query"><h3>{text}</h3><div class="answers">{lists}</div></section>'


def _answer(answer: Answer) -> str:
    kind = ' class="right"' if answer.right else ""
    return (
        f"<li{kind}>{MARKS[answer.right]}{escape(clean(answer.label))} "
        f'<span class="p">{answer.probability:.2f}</span></li>'
    )


def _curves(found: SideBySide) -> str:
    series = [
        Series(e.name, at, [each["value"] for each in e.history], [each["step"] for each in e.history])
        for at, e in enumerate(found.entries)
        if e.history
    ]
    if not series:
        return ""
    metric = str(found.recipe["validation"]["metric"])
    highest = nice_end(max(max(each.up) for each in series))
    chart = line_chart(series, Axis("updates", found.entries[0].steps), Axis(metric, highest))
    caption = f"{metric} while training, on the held-out training points that decide which model is saved."
    return framed(chart, caption, legend(series))


def _reliability(found: Diagnosis) -> str:
    series = [
        Series(
            one.name,
            STYLES.get(one.name, 0),
            [row.observed for row in one.reliability],
            [row.estimate for row in one.reliability],
            [row.pairs / max(found.pairs, 1) for row in one.reliability],
        )
        for one in found.estimates
        if one.mean_estimate > 0
    ]
    if not series:
        return ""
    chart = line_chart(series, Axis("estimated target", 1.0), Axis("observed target", 1.0), diagonal=True)
    caption = (
        "Are the label texts’ targets true? On labels whose text is a training text, held out: reliable "
        "targets lie on the diagonal, and large dots stand for many pairs."
    )
    return framed(chart, caption, legend(series))
