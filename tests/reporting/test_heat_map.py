"""A heat map is a self-contained image: every cell shows its number, nothing overlaps, and any program can draw it."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keel.reporting.drawing import DARK, Drawing, Label, svg, text_width
from keel.reporting.heat_map import heat_map

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["[CLS]", "今天", "an unusually long name that has to be shortened", "<b>", "$x$", "i"]


def drawn(*arguments: Any, **options: Any) -> ET.Element:
    return ET.fromstring(svg(heat_map(*arguments, **options)))


def test_the_darkest_cell_is_the_largest_and_names_stay_text() -> None:
    values = np.array([[0.1, 0.4, 0.5], [0.8, 0.2, 0.0]])
    image = drawn("<b>", ["a & b", "c"], ["x", "<y>", "z"], values)
    cells = [cell for cell in image.iter(f"{SVG}rect") if cell.find(f"{SVG}title") is not None]
    shades = np.array([float(cell.attrib["fill-opacity"]) for cell in cells]).reshape(2, 3)
    np.testing.assert_allclose(shades, values / 0.8, atol=1e-3)
    assert cells[1].findtext(f"{SVG}title") == "a & b - <y>: 0.4"
    assert {text.text for text in image.iter(f"{SVG}text")} == {"<b>", "a & b", "c", "x", "<y>", "z", "0", "0.8"}


def test_signs_have_colours_and_the_scale_names_both_ends() -> None:
    image = drawn("t", ["a"], ["x", "y"], np.array([[-0.5, 0.25]]), [["\u2212.5", "+.25"]])
    cells = [cell for cell in image.iter(f"{SVG}rect") if cell.find(f"{SVG}title") is not None]
    assert cells[0].attrib["fill"] != cells[1].attrib["fill"]
    shown = [text.text for text in image.iter(f"{SVG}text")]
    assert {"\u22120.5", "0.5", "\u2212.5", "+.25"} <= set(shown)


def test_its_colours_need_no_style_sheet_and_change_on_a_dark_page() -> None:
    image = drawn("t", ["a"], ["x"], np.array([[1.0]]), row_name="from")
    fills = {part.attrib["fill"] for part in image.iter() if "fill" in part.attrib}
    assert len(fills) == 4 and all(re.fullmatch("#[0-9a-f]{6}", fill) for fill in fills)
    style = image.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme:dark" in style and set(DARK) < fills and all(light in style for light in DARK)


@pytest.mark.parametrize("turned", [True, False])
def test_names_do_not_touch_each_other_or_the_edge(turned: bool) -> None:
    names = NAMES if turned else ["1", "2", "3", "4", "5", "6"]
    drawing = heat_map("t", NAMES, names, np.eye(6), row_name="from", column_name="to")
    labels = [part for part in drawing.parts if isinstance(part, Label)]
    for label in labels:
        width = text_width(label.text, label.size)
        start = label.x - {"start": 0, "middle": width / 2, "end": width}[label.anchor]
        assert start >= 0
        if label.turned:
            assert label.x + width * 0.7072 <= drawing.width and label.y - width * 0.7072 - label.size >= 0
        else:
            assert start + width <= drawing.width and label.size <= label.y <= drawing.height
    columns = [label.x for label in labels if label.turned]
    assert len(columns) == (6 if turned else 0)
    # Lines turned by 45 degrees are apart by the distance of their starts times sin 45.
    assert all((b - a) * 0.7071 >= 12 for a, b in itertools.pairwise(columns))


def test_a_large_map_is_an_image_that_a_library_opens() -> None:
    values = np.random.default_rng(1).normal(size=(120, 130))
    image = drawn("t", [str(n) for n in range(120)], [str(n) for n in range(130)], values)
    (inner,) = image.iter(f"{SVG}image")
    assert len(ET.tostring(image)) < 100_000
    pixels = opened(inner.attrib["href"])
    assert pixels.shape == (120, 130, 4)
    np.testing.assert_allclose(pixels[..., 3], np.abs(values) / np.abs(values).max() * 255, atol=0.51)


def opened(address: str) -> np.ndarray:
    import base64

    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
        return np.asarray(image)


def test_a_png_shows_what_the_svg_shows(tmp_path: Path) -> None:
    """Every cell has the colour of its number on white paper; every name leaves ink where it stands."""
    from PIL import Image

    from keel.reporting.png import SHARPNESS, write_png

    drawing = heat_map("Title", ["one", "天", "$3$"], ["a", "b"], np.array([[1.0, 0.5], [0, -1], [0.1, 0.2]]))
    missing = write_png(drawing, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    height, width = pixels.shape[:2]
    assert abs(width - SHARPNESS * drawing.width) <= 1 and abs(height - SHARPNESS * drawing.height) <= 1
    assert missing in ("", "天")  # a machine without fonts for Chinese says so
    for part in drawing.parts:
        x, y = int(SHARPNESS * part.x), int(SHARPNESS * part.y)
        if isinstance(part, Label):
            size = int(SHARPNESS * text_width(part.text, part.size)) + 2
            left = x - {"start": 0, "middle": size // 2, "end": size}[part.anchor]
            assert pixels[y - int(part.size * SHARPNESS) : y, max(0, left) : left + size].min() < 160, part.text
        else:
            colour = np.array([int(part.colour[n : n + 2], 16) for n in (1, 3, 5)])
            expected = 255 + part.opacity * (colour - 255)
            shown = pixels[y + int(part.height), x + int(part.width)]
            np.testing.assert_allclose(shown, expected, atol=3)


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    drawing = Drawing("a\x00b\ud800c\ufffe")
    drawing.heading()
    drawing.box(0, 0, 1, 1, "#000000", hint="\x1b[31m")
    image = ET.fromstring(svg(drawing))
    assert [text.text for text in image.iter(f"{SVG}text")] == ["a\ufffdb\ufffdc\ufffd"]
