"""Pictures of a page: bars as high as their values, lines that stay inside, round ends of axes."""

from __future__ import annotations

import re

import pytest

from gandalf.lab import page as svg


@pytest.mark.parametrize(
    ("highest", "end"), [(0, 1), (0.31, 0.4), (1, 1), (1.01, 1.5), (62.6, 80), (99.9, 100)]
)
def test_round_ends_of_an_axis(highest, end):
    assert svg.nice_end(highest) == pytest.approx(end)


def test_bars_are_as_high_as_their_values():
    drawn = svg.bar_chart(
        [("a",), ("b",)], [svg.Series("one", 0, [10, 0]), svg.Series("two", 1, [5, 10])], "x"
    )
    heights = [float(each) for each in re.findall(r'<rect[^>]* height="([\d.]+)"', drawn)]
    assert heights == pytest.approx([heights[0], heights[0] / 2, 0, heights[0]], abs=0.1)
    assert heights[0] == pytest.approx(svg.HEIGHT - svg.TOP - svg.BOTTOM, abs=0.1)


def test_lines_stay_in_their_picture():
    axis = svg.Axis("x", 1.0)
    drawn = svg.line_chart([svg.Series("one", 0, [0, 1, 0.25], [0, 0.5, 1])], axis, axis, diagonal=True)
    places = [tuple(map(float, each.split(","))) for each in re.search(r'points="([^"]+)"', drawn)[1].split()]
    assert all(0 <= x <= svg.WIDTH and 0 <= y <= svg.HEIGHT for x, y in places)
    assert places[1][1] < places[2][1] < places[0][1]
    assert 'class="even"' in drawn


@pytest.mark.parametrize(
    ("values", "start", "end"),
    [([59.0, 69.4], 57.5, 70), ([-1.2, 0, 3.4], -2, 4), ([5.0, 5.0], 5.0, 5.001), ([0.0, 26.0], 0, 30)],
)
def test_an_axis_is_fitted_to_its_values(values, start, end):
    axis = svg.fitted("P@1", values)
    assert axis.start <= min(values) and axis.end >= max(values) and axis.start < axis.end
    assert (axis.start, axis.end) == (pytest.approx(start, abs=5e-3), pytest.approx(end, abs=5e-3))


def test_what_is_below_zero_is_drawn_below_the_line_of_zero():
    up = svg.fitted("gain", [-2.0, 0.0, 4.0])
    drawn = svg.line_chart([svg.Series("one", 0, [-2.0, 0.0, 4.0], [0, 1, 2])], svg.Axis("x", 2), up)
    heights = [float(y) for y in re.findall(r'<circle [^>]*cy="([0-9.]+)"', drawn)]
    assert heights[0] > heights[1] > heights[2]
    assert heights[0] - heights[1] == pytest.approx((heights[1] - heights[2]) / 2, abs=0.2)
    assert ">-2<" in drawn and ">4<" in drawn
