"""Pictures of explanations: one table of numbers with names on both sides, as SVG, or as PNG by matplotlib.

In: what a method returned. Out: a `Grid`, drawn.

attention    from token x to token: of one layer and head, or the mean
heads        layer x head: the change without the head, in red where the answer loses
layers       layer x [MASK] (or label): the probability of the final answer
attribution  one row: the words

Notable choices
- Positive numbers are blue, negative ones red; the largest is the darkest. A picture of more than MOST_CELLS cells is
  drawn as pixels, without names: an SVG with a rectangle for each would be as large as a film.
- matplotlib is an extra: SVG needs no library, and is what papers take.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from keel.errors import UserError
from keel.explain.attention import AttentionMaps
from keel.explain.attribution import Attribution
from keel.explain.heads import HeadChanges
from keel.explain.layers import LayerAnswers
from keel.explain.mix import LayerShares
from keel.reporting.heat_map import CELLS, NEGATIVE, heat_map

MOST_CELLS = 10_000
PIXELS = 640  # the width of a picture without names


@dataclass(frozen=True)
class Grid:
    title: str
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # (rows, columns)


def grid(found: Any, layer: int | None = None, head: int | None = None) -> Grid:
    """`layer`, `head`: of an attention map, counted from 1."""
    if isinstance(found, AttentionMaps):
        return _map(found, layer, head)
    if layer is not None or head is not None:
        raise UserError("a layer and a head are chosen of attention maps only")
    if isinstance(found, HeadChanges):
        layers, heads = found.changes.shape
        names = [f"layer {n + 1}" for n in range(layers)], [f"head {h + 1}" for h in range(heads)]
        return Grid(f"{found.measure[:1].upper()}{found.measure[1:]}", *names, found.changes)
    if isinstance(found, Attribution):
        words = [word.text for word in found.reading.words]
        return Grid(f"What the {found.answer['name']} rests on", [found.by], words, found.word_scores[None])
    if isinstance(found, LayerAnswers):
        rows = [f"layer {n}: {', '.join(one.guesses[n][0].text for one in found.places)}" for n in _layers(found)]
        chances = np.array([one.final_probability for one in found.places]).T
        return Grid("Probability of the final answer", rows, [one.final for one in found.places], chances)
    assert isinstance(found, LayerShares)
    shares = np.array(list(found.shares.values())).T
    return Grid("Shares of the layers", [f"layer {n}" for n in range(len(shares))], list(found.shares), shares)


def _layers(found: LayerAnswers) -> range:
    return range(len(found.places[0].guesses))


def _map(found: AttentionMaps, layer: int | None, head: int | None) -> Grid:
    cross = found.cross
    if cross is not None and (layer, head) == (None, None):
        return Grid(f"Cross-attention: {cross.translation}", cross.written, cross.read, cross.mean)
    named = [f"{name} {number}" for name, number in (("layer", layer), ("head", head)) if number is not None]
    if len(named) < 2:
        named.append("mean over the heads" if layer is not None else "mean over all layers and heads")
    if layer is None and head is not None:
        named[-1] = "mean over the layers"
    labels = found.reading.labels
    return Grid(f"Attention, {', '.join(named)}", labels, labels, found.map(layer, head))


def svg(drawing: Grid) -> str:
    """A self-contained `<svg>`."""
    if drawing.values.size <= MOST_CELLS:
        return heat_map(drawing.title, drawing.rows, drawing.columns, drawing.values)
    height = PIXELS * len(drawing.rows) / len(drawing.columns)
    title = escape(drawing.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" viewBox="0 0 {PIXELS} {height + 26:.0f}" '
        f'width="{PIXELS}" height="{height + 26:.0f}" role="img" aria-label="{title}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/><text x="8" y="17" font-size="13">{title}</text>'
        f'<image x="0" y="26" width="{PIXELS}" height="{height:.0f}" href="{image(drawing.values)}" '
        'style="image-rendering:pixelated"/></svg>'
    )


def image(values: np.ndarray) -> str:
    """The numbers as a PNG in a `data:` address, one pixel each: the colour says the sign, the opacity how large."""
    share = np.abs(values) / (float(np.abs(values).max()) or 1.0)
    colours = np.array([_rgb(NEGATIVE), _rgb(CELLS)], np.uint8)[(values >= 0).astype(int)]
    pixels = np.concatenate([colours, np.rint(share * 255).astype(np.uint8)[..., None]], -1)
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode("ascii")


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _png(pixels: np.ndarray) -> bytes:
    """(H, W, 4) uint8 as a PNG file: header, data, end."""
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits, RGBA
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), chunk(b"IEND", b"")
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


def write_png(drawing: Grid, file: Path) -> None:
    """The same picture as pixels, for slides."""
    figure_of = need_matplotlib()
    rows, columns = drawing.values.shape
    figure = figure_of(figsize=(min(40, 2.5 + 0.3 * columns), min(40, 1.8 + 0.3 * rows)), layout="constrained")
    axes = figure.subplots()
    most = float(np.abs(drawing.values).max()) or 1.0
    shown = axes.imshow(drawing.values, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    if drawing.values.size <= MOST_CELLS:
        axes.set_xticks(range(columns), _literal(drawing.columns), rotation=90)
        axes.set_yticks(range(rows), _literal(drawing.rows))
    axes.set_title(_literal([drawing.title])[0], loc="left", fontsize=10)
    figure.colorbar(shown)
    figure.savefig(file, dpi=150, format="png")


def _literal(names: Sequence[str]) -> list[str]:
    """Names as they are: matplotlib would read dollar signs as formulas."""
    return [name.replace("$", r"\$") for name in names]
