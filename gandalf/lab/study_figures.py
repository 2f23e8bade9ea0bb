"""Draw studies as bars and lines, with the figures in words for those who do not see them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gandalf.data.formats.texts import clean
from gandalf.lab.blocks import Answers, Picture
from gandalf.lab.page import Axis, Series, bar_chart, fitted, legend, line_chart, nice_end
from gandalf.lab.results import Column, ResultPlace, Results, RunLines, figure, mean
from gandalf.lab.sets import query_rows
from gandalf.lab.store import Line, read_predictions
from gandalf.lab.studies import SHARES, STUDIES
from gandalf.metrics.predictions import need_test_points

STYLES = 8  # colours that the page has
QUERIES, PLACES = 5, 5


def pictures(results: Results, study: str, place: ResultPlace) -> Iterator[Picture]:
    """Yield the pictures of a study at a place."""
    drawn = DRAW.get(STUDIES[study].figure)
    if drawn is not None:
        yield from drawn(results, place, results.study(study)[place])


def _series(rows: RunLines) -> list[tuple[str, int, list[Line]]]:
    return [(row, at % STYLES, lines) for at, (row, lines) in enumerate(rows.items())]


def _bars(rows: RunLines, columns: dict[str, Column], title: str, caption: str) -> Picture:
    """Draw a group of bars for each column, a bar for each row."""
    series = [
        Series(row, style, [_known(mean(lines, column)) for column in columns.values()])
        for row, style, lines in _series(rows)
    ]
    return Picture(bar_chart([(name,) for name in columns], series, title), caption, legend(series))


def _kinds(results: Results, place: ResultPlace, rows: RunLines) -> Iterator[Picture]:
    parts = {"all": None, "label's text": "label_text", "new text": "new_text"}
    for name in ("P@1", "PSP@5"):
        columns = {kind: figure(name, part) for kind, part in parts.items()}
        yield _bars(rows, columns, name, f"{place.title}: {name} by kind of test text.")


def _coverage(results: Results, place: ResultPlace, rows: RunLines) -> Iterator[Picture]:
    columns = {name: figure(name) for name in ("C@1", "C@3", "C@5")}
    caption = f"{place.title}: share of the test split's labels that are rightly predicted at least once."
    yield _bars(rows, columns, "coverage", caption)


def _bins(results: Results, place: ResultPlace, rows: RunLines) -> Iterator[Picture]:
    series, groups = [], []
    for row, style, lines in _series(rows):
        bins = [line["figures"]["bins"] for line in lines]
        parts = np.mean([[each["contribution"] for each in one] for one in bins], axis=0)
        series.append(Series(row, style, parts.tolist()))
        groups = [
            (str(n), f"{each['labels']:,}", f"{each['mean_frequency']:.1f}")
            for n, each in enumerate(bins[0], start=1)
        ]
    said = f"{place.title}: what labels from head (1) to tail add to P@5; below, labels and points of each."
    yield Picture(bar_chart(groups, series, "part of P@5"), said, legend(series))


def _shares(results: Results, place: ResultPlace, rows: RunLines) -> Iterator[Picture]:
    for name in ("P@1", "PSP@5"):
        series = []
        for style, order in enumerate(("random", "tail")):
            named = {0: "D", **{share: f"{order} {share} %" for share in SHARES}, 100: "G"}
            known = {share: mean(rows[row], figure(name)) for share, row in named.items() if row in rows}
            series.append(
                Series(f"{order} first" if style else order, 2 * style, [*known.values()], [*known])
            )
        up = fitted(name, [value for each in series for value in each.up])
        svg = line_chart(series, Axis("labels with a label point, %", 100.0), up)
        yield Picture(svg, f"{place.title}: {name} with fewer label points.", legend(series))


def _curves(results: Results, place: ResultPlace, rows: RunLines) -> Iterator[Picture]:
    once = {row: lines for row, lines in rows.items() if row.endswith(" x 1")}
    for name in ("P@1", "PSP@5"):
        series = []
        for row, style, lines in _series(once):
            course = [each for each in lines[0]["history"] if each.get(name) is not None]
            steps, values = [each["step"] for each in course], [each[name] for each in course]
            series.append(Series(row.removesuffix(" x 1"), style, values, steps))
        if any(each.up for each in series):
            far = max(max(each.across, default=1) for each in series)
            high = nice_end(max(max(each.up, default=0.0) for each in series))
            svg = line_chart(series, Axis("steps", nice_end(far)), Axis(name, high))
            said = f"{place.title}: {name} on held-out training points, first seed."
            yield Picture(svg, said, legend(series))


DRAW = {
    "P@1 and PSP@5": _kinds,
    "coverage": _coverage,
    "bins": _bins,
    "share": _shares,
    "curves": _curves,
}


def density_picture(results: Results, system: str, data: str) -> Picture | None:
    """Draw the relative gain of G against points per label."""
    found: dict[str, list[tuple[float, float]]] = {"points thinned": [], "pairs thinned": [], "drawn": []}
    for place, rows in results.study("density").items():
        base, _, query = place.data.partition("?")
        fact = results.facts.get(place.data)
        if (
            place.system != system
            or fact is None
            or base not in (data, "synthetic")
            or not {"D", "G"} <= rows.keys()
        ):
            continue
        p1 = {row: mean(rows[row], figure("P@1")) for row in ("D", "G")}
        gain = 100 * (p1["G"] - p1["D"]) / max(p1["D"], 1e-9)
        kind = "drawn" if base == "synthetic" else "pairs thinned" if "pairs" in query else "points thinned"
        found[kind].append((fact["points_per_label"], gain))
    series = [
        Series(kind, style, [gain for _, gain in sorted(of)], [at for at, _ in sorted(of)])
        for style, (kind, of) in enumerate(found.items())
        if of
    ]
    if not series:
        return None
    far = nice_end(max(max(each.across) for each in series))
    up = fitted("gain of G over D, % of P@1", [0.0, *(gain for each in series for gain in each.up)])
    svg = line_chart(series, Axis("points per label", far), up)
    return Picture(svg, f"{data}, {system}: gain of G against points per label.", legend(series))


RULE = "new texts of the test split, at equal distances from its first to its last"


def answers(results: Results) -> Iterator[Answers]:
    """Yield texts chosen by RULE, and each system's answers with and without label points."""
    by_data: dict[str, list[tuple[str, Line]]] = {}
    for place, rows in results.study("qualitative").items():
        named = [(f"{place.system}, {row}", lines[0]) for row, lines in rows.items()]
        by_data.setdefault(place.data, []).extend(named)
    for data, models in by_data.items():
        found = {name: read_predictions(results.folder, line) for name, line in models}
        kept = {name: ids for name, ids in found.items() if ids is not None}
        splits = results.splits(data) if kept else None
        if splits is None:
            continue
        test = need_test_points(splits)
        _, label_texts = test.need_texts("predictions side by side")
        for row in query_rows(test, QUERIES)[0].tolist():
            right = set(test.targets[[row]].indices.tolist())
            given = tuple(
                (
                    name,
                    tuple((clean(label_texts[i]), i in right) for i in ids[row, :PLACES].tolist() if i >= 0),
                )
                for name, ids in kept.items()
            )
            yield Answers(clean((test.texts or [""])[row]), given)


def _known(value: float) -> float:
    return 0.0 if np.isnan(value) else value
