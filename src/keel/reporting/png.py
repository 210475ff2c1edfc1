"""PNG files: of pixels by zlib alone, of a drawing by matplotlib.

In: pixels, or a `Drawing`. Out: bytes, or a file.

Notable choice: matplotlib is an extra, and has one font of its own. Where a drawing has other characters, the fonts of
the machine that have them are found by name; what no font has is said, because it would be an empty box.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from keel.errors import UserError
from keel.reporting.drawing import PAPER, Box, Drawing, Image, Label

SHARPNESS = 2  # pixels of the file for each one of the drawing
POINTS = 0.72  # of a pixel, at 100 pixels per inch
# Fonts with many scripts, as systems install them; the first that are there are used.
FONTS = (
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans GB"),
    *("Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Sans SC", "Noto Serif CJK SC"),
    *("Arial Unicode MS", "Noto Sans", "Noto Sans Symbols2", "Noto Emoji", "Segoe UI Symbol", "Apple Symbols"),
)


def png_bytes(pixels: np.ndarray) -> bytes:
    """(H, W, 4) uint8 as a PNG file: header, data, end."""
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits, RGBA
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def need_matplotlib() -> Any:
    """matplotlib's Figure; a UserError where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "a .png is drawn by matplotlib, which is not installed: pip install 'keel-nlp[plot]', or write an .svg"
        ) from None
    return Figure


def write_png(drawing: Drawing, file: Path) -> str:
    """Writes the file; returns the characters that no font of this machine has."""
    figure = need_matplotlib()(figsize=(drawing.width / 100, drawing.height / 100), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    fonts = _fonts()
    for part in drawing.parts:
        if isinstance(part, Label):
            axes.text(
                *(part.x, part.y, part.text),
                color=part.colour,
                fontsize=part.size * POINTS,
                fontfamily=fonts,
                fontweight="bold" if part.bold else "normal",
                ha={"start": "left", "middle": "center", "end": "right"}[part.anchor],
                va="baseline",
                rotation=part.turned,
                rotation_mode="anchor",
                parse_math=False,
            )
        elif isinstance(part, Image):
            _image(axes, part)
    _boxes(axes, [part for part in drawing.parts if isinstance(part, Box)])
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.set_aspect("auto")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure.savefig(file, dpi=100 * SHARPNESS, format="png")
    missing = (str(one.message) for one in told)
    return "".join(dict.fromkeys(chr(int(text.split()[1])) for text in missing if text.startswith("Glyph ")))


def _boxes(axes: Any, boxes: list[Box]) -> None:
    """All at once: one artist for each of thousands would take minutes."""
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    patches = [Rectangle((box.x, box.y), box.width, box.height) for box in boxes]
    axes.add_collection(
        PatchCollection(
            patches,
            facecolors=[to_rgba(box.colour, box.opacity) for box in boxes],
            edgecolors=["black" if box.outlined else "none" for box in boxes],
            linewidths=[1.0 if box.outlined else 0.0 for box in boxes],
        )
    )


def _image(axes: Any, part: Image) -> None:
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(part.png), format="png")
    place = (part.x, part.x + part.width, part.y + part.height, part.y)
    axes.imshow(pixels, extent=place, interpolation="nearest")


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    there = {font.name for font in fontManager.ttflist}
    return [name for name in FONTS if name in there]
