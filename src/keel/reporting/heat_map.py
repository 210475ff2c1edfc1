"""Draws a table of numbers, such as an attention map, as one SVG.

In: the names of the rows and columns, and the numbers. Out: one self-contained `<svg>` element.
"""

from __future__ import annotations

from html import escape
from typing import Any

CELL, LETTER, EDGE, TITLE = 22, 7.2, 8, 26
# Fixed colours, not CSS variables: the image is a file by itself, also for programs without style sheets.
PAPER, INK, CELLS, NEGATIVE = "#ffffff", "#1a1a1a", "#1d63c4", "#c2410c"


def heat_map(title: str, rows: list[str], columns: list[str], values: Any) -> str:
    """`values`: (rows, columns). The largest number is the darkest cell; negative ones have another colour."""
    left = EDGE + LETTER * max(map(len, rows), default=0) + 6
    top = TITLE + LETTER * max(map(len, columns), default=0) + 10
    width = max(left + CELL * len(columns) + EDGE, EDGE + LETTER * len(title))
    height = top + CELL * len(rows) + EDGE
    largest = max((abs(float(v)) for line in values for v in line), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="{PAPER}"/>',
        f'<text x="{EDGE}" y="17" font-size="13" fill="{INK}">{escape(title)}</text>',
    ]
    for number, name in enumerate(columns):
        x, y = left + CELL * (number + 0.5) + 4, top - 6
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-90 {x:.1f} {y:.1f})" fill="{INK}">{escape(name)}</text>'
        )
    for line, name in enumerate(rows):
        y = top + CELL * line
        parts.append(f'<text x="{left - 6:.1f}" y="{y + 15:.1f}" text-anchor="end" fill="{INK}">{escape(name)}</text>')
        for column, value in enumerate(values[line]):
            parts.append(
                f'<rect x="{left + CELL * column:.1f}" y="{y:.1f}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="{CELLS if value >= 0 else NEGATIVE}" fill-opacity="{abs(float(value)) / largest:.3f}">'
                f"<title>{escape(name)} - {escape(columns[column])}: {float(value):.3f}</title></rect>"
            )
    return "".join([*parts, "</svg>"])
