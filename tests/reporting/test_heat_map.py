"""A heat map is a self-contained image: every cell shows its number, and any program can draw it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np

from keel.reporting.heat_map import heat_map

SVG = "{http://www.w3.org/2000/svg}"


def test_the_darkest_cell_is_the_largest_and_names_stay_text() -> None:
    values = np.array([[0.1, 0.4, 0.5], [0.8, 0.2, 0.0]])
    svg = ET.fromstring(heat_map("<b>", ["a & b", "c"], ["x", "<y>", "z"], values))
    cells = [cell for cell in svg.iter(f"{SVG}rect") if cell.find(f"{SVG}title") is not None]
    shades = np.array([float(cell.attrib["fill-opacity"]) for cell in cells]).reshape(2, 3)
    np.testing.assert_allclose(shades, values / 0.8, atol=1e-3)
    assert cells[1].findtext(f"{SVG}title") == "a & b - <y>: 0.400"
    assert {text.text for text in svg.iter(f"{SVG}text")} == {"<b>", "a & b", "c", "x", "<y>", "z"}


def test_its_colours_need_no_style_sheet() -> None:
    svg = ET.fromstring(heat_map("t", ["a"], ["x"], [[1.0]]))
    fills = {part.attrib["fill"] for part in svg.iter() if "fill" in part.attrib}
    assert len(fills) == 3 and all(re.fullmatch("#[0-9a-f]{6}", fill) for fill in fills)
