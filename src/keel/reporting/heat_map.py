"""Draws a table of numbers, such as an attention map, with names on both sides and a scale.

In: the names of the rows and columns, and the numbers. Out: a `Drawing`.

Notable choices
- Positive numbers are blue, negative ones orange-red: colours that the colour-blind tell apart. The largest is the
  darkest, and the scale says which number that is.
- More than MOST_CELLS cells are drawn as an image without names: rectangles would make a file of many megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keel.reporting.drawing import EDGE, INK, MUTED, NEGATIVE, ON_COLOUR, POSITIVE, Drawing, shortened, text_width
from keel.reporting.png import png_bytes

MOST_CELLS = 10_000
PIXELS = 640  # the width of a map without names
CELL, NARROW, MANY = 24, 14, 32  # pixels of a cell; with more than MANY rows or columns it is narrow
LONGEST = 150  # pixels of a name
SWATCH, SWATCHES = 14, 8
DARK_CELL = 0.85  # from this opacity on, white text has more contrast than black


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    cells: Sequence[Sequence[str]] | None = None,
    row_name: str = "",
    column_name: str = "",
) -> Drawing:
    """`values`: (rows, columns). `cells`: what stands in each. `row_name`, `column_name`: what rows and columns are."""
    drawing = Drawing(title)
    top = drawing.heading()
    values = np.asarray(values, np.float64)
    most = float(np.abs(values).max(initial=0.0)) or 1.0
    if values.size > MOST_CELLS:
        height = PIXELS * len(rows) / len(columns)
        drawing.image(EDGE, top + 8, PIXELS, height, png_bytes(coloured(values)))
        _scale(drawing, EDGE, top + height + 18, values, most)
        return drawing
    many = max(len(rows), len(columns)) > MANY
    cell_height, size = (NARROW, 10.0) if many else (CELL, 12.0)
    cell_width = float(cell_height)
    if cells is not None:
        cell_width = max(cell_width, 8 + max(text_width(text, 11) for line in cells for text in line))
    row_names, names = ([shortened(name, LONGEST, size) for name in given] for given in (rows, columns))
    left = EDGE + max((text_width(name, size) for name in [*row_names, row_name]), default=0) + 6
    upright = all(text_width(name, size) <= cell_width for name in names)
    if column_name:
        drawing.label(left, top + size, column_name, size, colour=MUTED)
        top += size + 4
    top += 6 + (size if upright else 0.72 * max(text_width(name, size) for name in names) + size / 2)
    if row_name:
        drawing.label(left - 6, top - 6, row_name, size, "end", colour=MUTED)
    for number, name in enumerate(names):
        middle = left + cell_width * (number + 0.5)
        if upright:
            drawing.label(middle, top - 6, name, size, "middle")
        else:
            drawing.label(middle + 2, top - 4, name, size, turned=45)
    for line, name in enumerate(row_names):
        y = top + cell_height * line
        drawing.label(left - 6, y + cell_height / 2 + size / 3, name, size, "end")
        for column, value in enumerate(values[line].tolist()):
            x, share = left + cell_width * column, abs(value) / most
            colour = POSITIVE if value >= 0 else NEGATIVE
            hint = f"{rows[line]} - {columns[column]}: {value:.3g}"
            drawing.box(x, y, cell_width - 1, cell_height - 1, colour, share, hint)
            if cells is not None:
                ink = ON_COLOUR if share > DARK_CELL else INK
                text = cells[line][column]
                drawing.label(x + (cell_width - 1) / 2, y + cell_height / 2 + 4, text, 11, "middle", colour=ink)
    _scale(drawing, left, top + cell_height * len(rows) + 10, values, most)
    return drawing


def _scale(drawing: Drawing, x: float, y: float, values: np.ndarray, most: float) -> None:
    """From the most negative colour, where there is one, to the most positive."""
    negative = bool((values < 0).any())
    shares = np.linspace(-1 if negative else 0, 1, 2 * SWATCHES + 1 if negative else SWATCHES + 1)
    first = f"\u2212{most:.2g}" if negative else "0"
    drawing.label(x, y + 9, first, 10, colour=MUTED)
    x += text_width(first, 10) + 6
    for share in shares.tolist():
        drawing.box(x, y, SWATCH - 1, 10, POSITIVE if share >= 0 else NEGATIVE, abs(share))
        x += SWATCH
    drawing.label(x + 5, y + 9, f"{most:.2g}", 10, colour=MUTED)


def coloured(values: np.ndarray) -> np.ndarray:
    """(..., 4) uint8: the colour says the sign, the opacity how large."""
    share = np.abs(values) / (float(np.abs(values).max(initial=0.0)) or 1.0)
    colours = np.array([_rgb(NEGATIVE), _rgb(POSITIVE)], np.uint8)[(values >= 0).astype(int)]
    found: np.ndarray = np.concatenate([colours, np.rint(share * 255).astype(np.uint8)[..., None]], -1)
    return found


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))
