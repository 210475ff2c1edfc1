"""Charts are correct: what is drawn maps back to the data through the axis labels."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.reporting.svg import HEIGHT, WIDTH, Series, chart, compact, nice_ticks, percent

SVG = "{http://www.w3.org/2000/svg}"


def axis(svg: ET.Element, name: str, attribute: str) -> tuple[float, float]:
    """Slope and offset of an axis, from two of its ticks: position = slope * value + offset."""
    ticks = [
        (float(g.attrib["data-value"]), float(g.find(f"{SVG}line").attrib[attribute]))  # type: ignore[union-attr]
        for g in svg.iter(f"{SVG}g")
        if g.attrib.get("class") == name
    ]
    (a, place_a), (b, place_b) = ticks[0], ticks[-1]
    slope = (place_b - place_a) / (b - a)
    return slope, place_a - slope * a


def drawn(svg: ET.Element, name: str) -> list[tuple[float, float]]:
    group = next(g for g in svg.iter(f"{SVG}g") if g.attrib.get("data-name") == name)
    places = [
        tuple(map(float, p.split(","))) for line in group.iter(f"{SVG}polyline") for p in line.attrib["points"].split()
    ]
    if not places:
        places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in group.iter(f"{SVG}circle")]
    return places  # type: ignore[return-value]


values = st.floats(-1e6, 1e6).map(lambda v: round(v, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(values, min_size=2, max_size=30), st.booleans())
def test_points_map_back_to_the_data_through_the_ticks(ys: list[float], zero: bool) -> None:
    points = [(float(10 * n), y) for n, y in enumerate(ys)]
    svg = ET.fromstring(chart("t", [Series("a", points)], "step", "y", y_zero=zero))
    (sx, ox), (sy, oy) = axis(svg, "tick-x", "x1"), axis(svg, "tick-y", "y1")
    for (x, y), (a, b) in zip(points, drawn(svg, "a"), strict=True):
        assert abs(sx * x + ox - a) < 0.05
        assert abs(sy * y + oy - b) < 0.05
        assert 0 <= a <= WIDTH and 0 <= b <= HEIGHT
    assert sx > 0 and sy < 0, "larger values are further right and up"


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
def test_ticks_are_round_few_and_inside(low: float, span: float) -> None:
    high = low + span
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        return
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 9
    slack = 1e-6 * (high - low) + 1e-9 * max(abs(low), abs(high))
    assert all(low - slack <= t <= high + slack for t in ticks)
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    digit = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(digit - d) for d in (1, 2, 5, 10)) < 0.05


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_interrupt_the_line_and_are_counted(bad: float) -> None:
    text = chart("t", [Series("a", [(0, 1), (1, 2), (2, bad), (3, 4), (4, 5)])], "step", "y")
    svg = ET.fromstring(text)
    group = next(g for g in svg.iter(f"{SVG}g") if g.attrib.get("data-name") == "a")
    assert len(list(group.iter(f"{SVG}polyline"))) == 2
    assert "nan" not in text and "inf" not in text.replace("finite", "")
    assert "1 not finite" in text


@pytest.mark.parametrize("points", [[], [(5.0, 3.0)], [(0.0, 0.0)], [(1.0, math.nan)], [(0.0, 7.0), (10.0, 7.0)]])
def test_few_equal_or_no_points_still_make_a_chart(points: list[tuple[float, float]]) -> None:
    svg = ET.fromstring(chart("t", [Series("a", points, "marks")], "step", "y", x_zero=True))
    finite = [p for p in points if math.isfinite(p[1])]
    assert len(list(svg.iter(f"{SVG}circle"))) == len(finite)
    assert ("no finite values" in "".join(svg.itertext())) == (not finite)


def test_hostile_names_stay_text_and_every_chart_is_described() -> None:
    hostile = "</svg><script>alert('x')</script>\"&"
    text = chart(hostile, [Series(hostile, [(0, 1), (1, 2)], "marks"), Series("b", [(0, 3)])], hostile, hostile)
    svg = ET.fromstring(text)
    assert not list(svg.iter(f"{SVG}script"))
    assert svg.attrib["role"] == "img"
    assert hostile in svg.attrib["aria-label"] and "1 to 2" in svg.attrib["aria-label"]


def test_figures_are_short() -> None:
    assert [compact(v) for v in (0, 0.25, 1500, 2e7, 3e-5, -1234)] == ["0", "0.25", "1.5k", "20M", "3e-5", "-1.234k"]
    assert percent(0.425) == "42.5 %"
