"""Fill templates of pages, and draw charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template


def filled(template: str, slots: Mapping[str, str]) -> str:
    """Return the template with its slots filled: a page that needs no other file."""
    folder = resources.files("gandalf.lab")
    style = (folder / "page.css").read_text("utf-8").rstrip()
    return Template((folder / template).read_text("utf-8")).substitute(slots, style=style)


WIDTH, HEIGHT = 360.0, 240.0  # about a phone's width, where letters keep their size
LEFT, RIGHT, TOP, BOTTOM = 34.0, 14.0, 14.0, 42.0
ROOM_FOR_NUMBER = 20.0  # of a bar's width
STEPS = 5  # of an axis, about


@dataclass(frozen=True)
class Series:
    """Values of one style; for lines also where they stand, and how much each weighs (0 to 1)."""

    name: str
    style: int  # which of the classes s0, s1, ...
    up: Sequence[float]
    across: Sequence[float] = ()
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class Axis:
    """What an axis measures, and from where to where."""

    title: str
    end: float
    start: float = 0.0


def fitted(title: str, values: Sequence[float]) -> Axis:
    """Return an axis from the round number below the values to the one above them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    step = _step(max(high - low, 1e-3 * max(abs(high), abs(low), 1e-3)))
    first = math.floor(low / step + 1e-6)
    return Axis(title, step * max(math.ceil(high / step - 1e-6), first + 1), step * first)


def nice_end(highest: float) -> float:
    """Return the least round number at or above the highest value."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= highest * 0.9999)


def bar_chart(groups: Sequence[Sequence[str]], series: Sequence[Series], title: str) -> str:
    """Draw a bar of each series in each group; a group's name may have several lines."""
    axis = Axis(title, nice_end(max((max(each.up, default=0.0) for each in series), default=0.0)))
    marks = [*_scale(axis)]
    slot = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    width = 0.84 * slot / max(len(series), 1)
    for at, lines in enumerate(groups):
        start = LEFT + slot * at + 0.08 * slot
        marks += [
            _bar(start + width * n, width, each.up[at], axis, each.style) for n, each in enumerate(series)
        ]
        marks += [
            _text(start + 0.42 * slot, HEIGHT - BOTTOM + 15 + 12 * n, line, "middle")
            for n, line in enumerate(lines)
        ]
    said = "; ".join(
        f"{', '.join(lines)}: " + ", ".join(f"{each.name} {each.up[at]:.1f}" for each in series)
        for at, lines in enumerate(groups)
    )
    return _picture(marks, f"{title}. {said}")


def line_chart(series: Sequence[Series], across: Axis, up: Axis, *, diagonal: bool = False) -> str:
    """Draw a line with dots for each series; `diagonal` adds the line of equal values."""
    marks = [*_scale(up), *_across(across)]
    if diagonal:
        ends = (_x(0, across), _y(0, up), _x(across.end, across), _y(up.end, up))
        marks.append('<line class="even" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends))
    for each in series:
        places = [(_x(a, across), _y(u, up)) for a, u in zip(each.across, each.up, strict=True)]  # in pixels
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks.append(f'<polyline class="line s{each.style}" points="{drawn}"/>')
        sizes = [2.5 if each.weights is None else 2 + 9 * math.sqrt(w) for w in each.weights or each.up]
        marks += [
            f'<circle class="dot s{each.style}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/>'
            for (x, y), size in zip(places, sizes, strict=True)
        ]
    said = "; ".join(
        f"{each.name}: " + ", ".join(f"{u:.3g} at {a:.3g}" for a, u in zip(each.across, each.up, strict=True))
        for each in series
    )
    return _picture(marks, f"{up.title} against {across.title}. {said}")


def legend(series: Sequence[Series]) -> str:
    """Return the list of names and colours."""
    items = (f'<li><i class="s{each.style}"></i>{escape(each.name)}</li>' for each in series)
    return f'<ul class="legend">{"".join(items)}</ul>'


def framed(chart: str, caption: str, names: str) -> str:
    """Return a chart with its legend and caption."""
    return f"<figure>{names}{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _picture(marks: Sequence[str], said: str) -> str:
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(said)}">{"".join(marks)}</svg>'


def _scale(axis: Axis) -> Iterator[str]:
    """Yield the lines, numbers and title of the upward axis."""
    for value in _ticks(axis):
        y = _y(value, axis)
        yield f'<line class="grid" x1="{LEFT:g}" y1="{y:.1f}" x2="{WIDTH - RIGHT:g}" y2="{y:.1f}"/>'
        yield _text(LEFT - 5, y + 4, f"{value:g}", "end")
    yield _text(LEFT, TOP - 5, axis.title, "start", "title")


def _across(axis: Axis) -> Iterator[str]:
    for value in _ticks(axis):
        yield _text(_x(value, axis), HEIGHT - BOTTOM + 15, f"{value:,g}", "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 32, axis.title, "middle", "title")


def _ticks(axis: Axis) -> list[float]:
    step = _step(axis.end - axis.start)
    first, last = math.ceil(axis.start / step - 1e-6), math.floor(axis.end / step + 1e-6)
    return [step * n for n in range(first, last + 1)]


def _step(span: float) -> float:
    """Return a round distance between ticks."""
    rough = span / STEPS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.9999)


def _bar(x: float, width: float, value: float, axis: Axis, style: int) -> str:
    y = _y(value, axis)
    shape = (
        f'<rect class="bar s{style}" x="{x:.1f}" y="{y:.1f}" width="{0.9 * width:.1f}" '
        f'height="{_y(0, axis) - y:.1f}"/>'
    )
    if width < ROOM_FOR_NUMBER:
        return shape
    return shape + _text(x + 0.45 * width, y - 3, f"{value:.1f}", "middle", "value")


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _x(value: float, axis: Axis) -> float:
    return LEFT + 6 + (WIDTH - LEFT - RIGHT - 12) * _share(value, axis)


def _y(value: float, axis: Axis) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(value, axis)


def _share(value: float, axis: Axis) -> float:
    return (value - axis.start) / (axis.end - axis.start)
