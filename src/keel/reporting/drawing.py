"""A drawing of boxes, texts and images, as SVG or as PNG: the same picture for a page, a paper and a slide.

In: parts, with their places in pixels. Out: one self-contained `<svg>` as text, or a PNG file (`png.py`).

Notable choices
- The size of a drawing is that of what stands on it: widths of texts are estimated, with East Asian characters a full
  em wide, so that nothing is cut off, whatever the font.
- Colours are attributes, for programs without style sheets; those of paper and ink are replaced where the reader
  prefers a dark page.
"""

from __future__ import annotations

import base64
import math
import unicodedata
from dataclasses import dataclass, field
from html import escape
from typing import Literal

PAPER, INK, MUTED = "#ffffff", "#1a1a1a", "#5b6875"
POSITIVE, NEGATIVE = "#1d63c4", "#c2410c"
ON_COLOUR = "#fffffe"  # text on a dark cell; not the paper's white, so that it stays white on a dark page
EDGE = 10
FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
DARK = {PAPER: "#15191e", INK: "#e6eaef", MUTED: "#9aa7b4"}
STYLE = "".join(f'.map [fill="{light}"]{{fill:{dark}}}' for light, dark in DARK.items())
STYLE += f'.map [stroke="{INK}"]{{stroke:{DARK[INK]}}}'
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float
    hint: str  # shown where a pointer rests; empty: nothing
    outlined: bool  # a line of ink around it


@dataclass(frozen=True)
class Label:
    x: float
    y: float  # the baseline
    text: str
    size: float
    anchor: Anchor
    turned: int  # degrees upwards
    colour: str
    bold: bool


@dataclass(frozen=True)
class Image:
    x: float
    y: float
    width: float
    height: float
    png: bytes  # few pixels, drawn large without smoothing


@dataclass
class Drawing:
    title: str
    width: float = 0.0
    height: float = 0.0
    parts: list[Box | Label | Image] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        opacity: float = 1.0,
        hint: str = "",
        outlined: bool = False,
    ) -> None:
        self.parts.append(Box(x, y, width, height, colour, opacity, hint, outlined))
        self._reach(x + width, y + height)

    def label(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        anchor: Anchor = "start",
        turned: int = 0,
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        shown = printable(text)
        self.parts.append(Label(x, y, shown, size, anchor, turned, colour, bold))
        length = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor] * text_width(shown, size) * (1.06 if bold else 1)
        self._reach(x + length * math.cos(math.radians(turned)), y + size / 4)

    def image(self, x: float, y: float, width: float, height: float, png: bytes) -> None:
        self.parts.append(Image(x, y, width, height, png))
        self._reach(x + width, y + height)

    def heading(self, most: float = 620) -> float:
        """Writes the title at the top, in lines of at most this width; returns where the next thing can stand."""
        lines = wrapped(self.title, most, 13)
        for number, line in enumerate(lines):
            self.label(EDGE, 20 + 17 * number, line, 13, bold=True)
        return 14 + 17 * len(lines)

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x + EDGE), max(self.height, y + EDGE)


def printable(text: str) -> str:
    """Without characters that XML cannot hold; line breaks and tabs as spaces."""
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character in "\t\n\r":
        return " "
    held = unicodedata.category(character) not in ("Cc", "Cs") and character not in "\ufffe\uffff"
    return character if held else "\ufffd"


def text_width(text: str, size: float) -> float:
    """About how wide a text is, in pixels."""
    ems = 0.0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            ems += 1.0
        elif not unicodedata.combining(character):
            ems += 0.35 if character in " .,;:!|'ijl()[]" else 0.86 if character in "mwMW@%" else 0.6
    return ems * size


def shortened(text: str, most: float, size: float) -> str:
    """The beginning of a text that is too wide, and an ellipsis."""
    if text_width(text, size) <= most:
        return text
    while text and text_width(text, size) + size > most:
        text = text[:-1]
    return f"{text}\u2026"


def wrapped(text: str, most: float, size: float) -> list[str]:
    """Lines of at most this width; a word that is wider is shortened."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= most:
            lines[-1] = longer
        else:
            lines.append(shortened(word, most, size))
    return lines[1:] if len(lines) > 1 and not lines[0] else lines


def svg(drawing: Drawing) -> str:
    """A self-contained `<svg>`."""
    width, height, title = f"{drawing.width:.0f}", f"{drawing.height:.0f}", escape(printable(drawing.title))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}" font-family="{FONT}">'
        f"<style>@media(prefers-color-scheme:dark){{{STYLE}}}</style>"
        f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>'
    ]
    return "".join([*parts, *map(_svg_part, drawing.parts), "</svg>"])


def _svg_part(part: Box | Label | Image) -> str:
    if isinstance(part, Box):
        hint = f"<title>{escape(printable(part.hint))}</title>" if part.hint else ""
        line = f' stroke="{INK}" stroke-width="1.5"' if part.outlined else ""
        return (
            f'<rect x="{part.x:.1f}" y="{part.y:.1f}" width="{part.width:.1f}" height="{part.height:.1f}" '
            f'fill="{part.colour}" fill-opacity="{part.opacity:.3f}"{line}>{hint}</rect>'
        )
    if isinstance(part, Label):
        turn = f' transform="rotate({-part.turned} {part.x:.1f} {part.y:.1f})"' if part.turned else ""
        bold = ' font-weight="600"' if part.bold else ""
        anchor = f' text-anchor="{part.anchor}"' if part.anchor != "start" else ""
        return (
            f'<text x="{part.x:.1f}" y="{part.y:.1f}" font-size="{part.size:g}" fill="{part.colour}"'
            f"{anchor}{bold}{turn}>{escape(part.text)}</text>"
        )
    return (
        f'<image x="{part.x:.1f}" y="{part.y:.1f}" width="{part.width:.1f}" height="{part.height:.1f}" '
        f'href="{png_address(part.png)}" preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    )


def png_address(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
