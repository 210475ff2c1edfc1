"""Draws line charts as inline SVG, without any library.

In: named series of (x, y) points. Out: one self-contained `<svg>` element as text: title, axes with round ticks,
legend, a description for screen readers, and the exact value of each marked point as a tooltip.

Notable choices
- No plotting library: matplotlib is a large dependency for a few lines, and its images do not adapt to dark mode.
- Colours are CSS variables with a fallback, so that a page can change the colour of each series in dark mode.
- The drawing is 440 units wide with text of 13 units: readable on a phone, and not oversized at half the width of a
  desktop screen.
- Values that are not finite interrupt the line and are counted in the legend; they never affect the axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 58, 44
COLOURS = (
    *("#1d63c4", "#c2410c", "#15803d", "#9333ea", "#b4235a"),
    *("#0e7490", "#a16207", "#7c4a2d", "#475569", "#4d7c0f"),
)

Point = tuple[float, float]
Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """Points in order of x. `style`: a line, a faint line drawn below the others, a dashed line, a line with a mark on
    every point, or only the marks."""

    name: str
    points: Sequence[Point]
    style: str = "line"  # line | faint | dashed | marks | dots
    colour: int = 0


@dataclass(frozen=True)
class Scale:
    """Maps values to units of the drawing; `ticks` are round values within the range."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def nice_ticks(low: float, high: float, wanted: int = 5) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, about `wanted` of them."""
    power = math.floor(math.log10((high - low) / wanted))
    steps = [float(f"{m}e{p}") for p in (power, power + 1) for m in (1, 2, 5)]
    step = min(steps, key=lambda s: abs((high - low) / s - wanted))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(_round(n * step) for n in range(first, last + 1))


def _round(value: float) -> float:
    """Turns 0.30000000000000004 into 0.3, and -0.0 into 0.0."""
    return float(f"{value:.12g}") + 0.0


def scale(values: Sequence[float], start: float, end: float, zero: bool, wanted: int, margin: float = 0.0) -> Scale:
    """A scale over the values, with `margin` (a share of the range) around them; `zero` puts 0 on the axis."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)) or high == low:
        around = 0.5 * max(abs(low), abs(high)) or 0.5
        low, high = low - around, high + around
    spare = margin * (high - low)
    low, high = (low if zero and low == 0 else low - spare), (high if zero and high == 0 else high + spare)
    return Scale(low, high, start, end, nice_ticks(low, high, wanted))


def compact(value: float) -> str:
    """A short figure: 0.25, 1.5k, 20M, 3e-5."""
    size = abs(value)
    if size == 0:
        return "0"
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.4g}{unit}"
    if size < 1e-2:
        digits, exponent = f"{value:.3e}".split("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    x_format: Format = compact,
    y_format: Format = compact,
    x_zero: bool = False,
    y_zero: bool = False,
) -> str:
    """One chart. `x_zero`, `y_zero`: whether the axis must include 0."""
    finite = [[p for p in s.points if math.isfinite(p[0]) and math.isfinite(p[1])] for s in series]
    lost = sum(len(s.points) for s in series) - sum(map(len, finite))
    x = scale([p[0] for points in finite for p in points], LEFT, WIDTH - RIGHT, x_zero, 5)
    y = scale([p[1] for points in finite for p in points], HEIGHT - BOTTOM, TOP, y_zero, 5, margin=0.06)
    legend, more = _legend([s for s in series if s.style != "faint"], lost)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {HEIGHT + more}" role="img" '
        f'aria-label="{escape(_describe(title, series, x_label, y_format, lost))}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<text class="chart-title" x="12" y="20" font-weight="600" {_ink("fill")}>{escape(title)}</text>',
        _axes(x, y, x_label, y_label, x_format, y_format),
    ]
    parts += [_draw(s, x, y, x_label, x_format, y_format) for s in sorted(series, key=lambda s: s.style != "faint")]
    if not any(finite):
        where = f'x="{(LEFT + WIDTH - RIGHT) / 2}" y="{(TOP + HEIGHT - BOTTOM) / 2}"'
        parts.append(f'<text {where} text-anchor="middle" {_ink("fill")}>no finite values</text>')
    parts += [legend, "</svg>"]
    return "".join(parts)


def _ink(what: str, variable: str = "text", fallback: str = "#1c2733") -> str:
    return f'style="{what}:var(--chart-{variable}, {fallback})"'


def _colour(number: int) -> str:
    place = number % len(COLOURS)
    return f"var(--series-{place}, {COLOURS[place]})"


def _describe(title: str, series: Sequence[Series], x_label: str, y_format: Format, lost: int) -> str:
    """The description of the chart for screen readers."""
    sentences = []
    for s in series:
        points = [p for p in s.points if math.isfinite(p[0]) and math.isfinite(p[1])]
        if points and s.style != "faint":
            ends = f"{y_format(points[0][1])} to {y_format(points[-1][1])}"
            sentences.append(
                f"{s.name} goes from {ends} between {x_label} {compact(points[0][0])} and {compact(points[-1][0])}"
            )
    if lost:
        sentences.append(f"{lost} values are not finite")
    return f"{title}. {'; '.join(sentences) or 'No values'}."


def _axes(x: Scale, y: Scale, x_label: str, y_label: str, x_format: Format, y_format: Format) -> str:
    parts = []
    muted = _ink("fill", "muted", "#5b6875")
    for tick in y.ticks:
        at = f"{y(tick):.2f}"
        parts.append(
            f'<g class="tick-y" data-value="{tick!r}"><line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" '
            f"{_ink('stroke', 'grid', '#dfe4ea')}/>"
            f'<text x="{LEFT - 7}" y="{at}" dy="0.32em" text-anchor="end" {muted}>{escape(y_format(tick))}</text></g>'
        )
    for tick in x.ticks:
        at, foot = f"{x(tick):.2f}", HEIGHT - BOTTOM
        parts.append(
            f'<g class="tick-x" data-value="{tick!r}"><line x1="{at}" x2="{at}" y1="{foot}" y2="{foot + 4}" '
            f"{_ink('stroke', 'muted', '#5b6875')}/>"
            f'<text x="{at}" y="{foot + 18}" text-anchor="middle" {muted}>{escape(x_format(tick))}</text></g>'
        )
    foot = HEIGHT - BOTTOM
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}" {_ink("stroke", "muted", "#5b6875")}/>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" {muted}>{escape(x_label)}</text>'
        f'<text x="12" y="40" {muted}>{escape(y_label)}</text>'
    )
    return "".join(parts)


def _draw(series: Series, x: Scale, y: Scale, x_label: str, x_format: Format, y_format: Format) -> str:
    """The line, interrupted where a value is not finite; a segment of one point is drawn as a dot, to be visible."""
    looks = {"line": "stroke-width:2", "faint": "stroke-width:1;opacity:0.3", "marks": "stroke-width:1.5", "dots": ""}
    looks["dashed"] = "stroke-width:1.5;stroke-dasharray:6 4"
    look = looks[series.style]
    parts = [f'<g class="series series-{series.style}" data-name="{escape(series.name)}">']
    for segment in _segments(series.points):
        places = [(f"{x(a):.2f}", f"{y(b):.2f}") for a, b in segment]
        if len(places) > 1 and series.style != "dots":
            line = " ".join(f"{a},{b}" for a, b in places)
            style = f"fill:none;stroke:{_colour(series.colour)};stroke-linejoin:round;{look}"
            parts.append(f'<polyline points="{line}" style="{style}"/>')
        if len(places) == 1 or series.style in ("marks", "dots"):
            for (a, b), point in zip(places, segment, strict=True):
                tip = escape(f"{series.name}: {y_format(point[1])} at {x_label} {x_format(point[0])}")
                dot = f'<circle cx="{a}" cy="{b}" r="3" style="fill:{_colour(series.colour)}">'
                parts.append(f"{dot}<title>{tip}</title></circle>")
    return "".join([*parts, "</g>"])


def _segments(points: Sequence[Point]) -> list[list[Point]]:
    """The runs of finite points."""
    segments: list[list[Point]] = [[]]
    for point in points:
        if math.isfinite(point[0]) and math.isfinite(point[1]):
            segments[-1].append(point)
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def _legend(series: Sequence[Series], lost: int) -> tuple[str, int]:
    """The legend, and the height it adds. Names are in the upper right corner, beside the y label; if they do not fit,
    below the drawing."""
    names = [(s.name, _colour(s.colour)) for s in series if s.points] if len(series) > 1 else []
    names = list(dict.fromkeys(names))
    if lost:
        names.append((f"{lost} not finite", ""))
    sizes = [_text_width(name) + 26 for name, _ in names]
    parts, more = [], 0
    places: list[tuple[float, int]] = []
    if sum(sizes) <= WIDTH - LEFT - RIGHT:
        right = float(WIDTH - RIGHT)
        for size in reversed(sizes):
            places.insert(0, (right - size + 26, 40))
            right -= size
    else:
        left, row = float(LEFT), 0
        for size in sizes:
            if left > LEFT and left + size > WIDTH:
                left, row = float(LEFT), row + 1
            places.append((left, HEIGHT + 14 + 18 * row))
            left += size
        more = 18 * (row + 1) + 6
    for (name, colour), (left, y) in zip(names, places, strict=True):
        parts.append(f'<text x="{left:.1f}" y="{y}" {_ink("fill", "muted", "#5b6875")}>{escape(name)}</text>')
        if colour:
            parts.append(f'<circle cx="{left - 9:.1f}" cy="{y - 4}" r="4" style="fill:{colour}"/>')
    return f'<g class="legend">{"".join(parts)}</g>', more


def _text_width(text: str) -> float:
    """An estimate for text of 13 units: 13 for a Chinese character, 7 for others."""
    return sum(13.0 if ord(c) > 0x2E80 else 7.0 for c in text)
