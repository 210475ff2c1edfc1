"""`keel explain` as a person uses it: tables, JSON, pictures, and mistakes that are one line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keel.cli.main import run
from keel.inference.model import Model

SVG = "{http://www.w3.org/2000/svg}"
MIXED = "The animal didn't cross the street because it was too tired."
CHINESE = "今天 <b> tokenization & 猫"


def explained(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["explain", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((MIXED, "--method", "atention"), "there is no method 'atention' to explain with. Did you mean 'attention'?"),
        ((MIXED, "--label", "x"), "--label is an option of --method heads and attribution, not of attention"),
        ((MIXED, "--method", "heads", "--by", "occlusion"), "--by is an option of --method attribution, not of heads"),
        ((MIXED, "--method", "heads", "--layer", 2), "--layer chooses attention; --method heads does not take it"),
        ((MIXED, "--to", "animal"), "--to needs --from"),
        ((MIXED, "--out", "x.pdf"), "the name must end with .html, .svg, .png or .json"),
        ((MIXED, "--out", "nowhere/x.svg"), "--out nowhere/x.svg: there is no folder nowhere"),
        ((MIXED, "--out", "there.svg"), "there.svg: already there"),
        ((MIXED, "--layer", 7), "layer 7: this model has layers 1 to 6"),
        ((MIXED, "--layer", 2, "--head", 13), "head 13: this model has heads 1 to 12"),
        ((MIXED, "--from", "aminal"), "there is no word 'aminal' in the text. Did you mean 'animal'?"),
        (("",), "the text to explain is empty"),
        (("word " * 600,), "a text of 602 tokens is longer than this model's 512 positions: shorten it"),
        (("A [MASK].", "--method", "layers"), "this model has no head that could read its layers"),
        (("A [MASK].", "--method", "attribution"), "not fine-tuned and it predicts no tokens"),
        (("A [MASK].", "--method", "heads", "--token", "cat"), "this model predicts no tokens; leave out --token"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[object, ...],
    what: str,
    minilm_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.svg").touch()
    code, out, err = explained(capsys, minilm_folder, *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and what in err
    assert [path.name for path in tmp_path.iterdir()] == ["there.svg"]


def test_a_table_says_which_heads_link_two_words(
    minilm: Model, minilm_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What docs/guide/explaining.md shows."""
    code, out, _ = explained(capsys, minilm_folder, MIXED, "--from", "it", "--to", "animal")
    rows = [line.split() for line in out.splitlines()[3:] if line.strip()]
    assert code == 0 and len(rows) == 20
    shares = minilm.explain(MIXED).looks("it", "animal")
    order = np.argsort(-shares, axis=None, kind="stable")[:20]
    assert [(int(row[0]) - 1, int(row[1]) - 1) for row in rows] == [divmod(int(place), 12) for place in order]
    assert [row[:3] for row in rows[:2]] == [["4", "2", "0.677"], ["6", "12", "0.673"]]
    _, out, _ = explained(capsys, minilm_folder, MIXED, "--from", "it", "--layer", 4, "--head", 2)
    assert "animal 0.68, [CLS] 0.10" in out


def test_the_guides_picture_is_what_its_command_makes(
    minilm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = Path(__file__).parents[2] / "docs" / "guide" / "explaining" / "it-animal.svg"
    explained(capsys, minilm_folder, MIXED, "--from", "it", "--to", "animal", "--out", tmp_path / "new.svg")
    shown, made = (
        [(part.tag, part.text, part.get("fill"), part.get("x"), part.get("y")) for part in ET.parse(file).iter()]
        for file in (picture, tmp_path / "new.svg")
    )
    assert shown == made


def test_json_is_that_of_python(minilm: Model, minilm_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = explained(capsys, minilm_folder, MIXED, "--layer", 4, "--head", 2, "--json")
    assert json.loads(out) == json.loads(json.dumps(minilm.explain(MIXED).as_json(layers=[4], heads=[2])))
    _, out, _ = explained(capsys, minilm_folder, MIXED, "--from", "it", "--to", "animal", "--json")
    found = json.loads(out)
    assert found["shape"] == [6, 12] and found["weights"][3][1] == pytest.approx(0.677, abs=1e-3)


@pytest.mark.parametrize("view", [(), ("--layer", 4), ("--from", "猫"), ("--from", "猫", "--layer", 4)])
def test_svg_is_xml_with_every_label(
    view: tuple[object, ...], minilm: Model, minilm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = explained(capsys, minilm_folder, CHINESE, *view, "--out", tmp_path / "a.SVG")
    assert code == 0 and "a.SVG" in err
    image = ET.parse(tmp_path / "a.SVG").getroot()
    shown = [text.text for text in image.iter(f"{SVG}text")]
    labels = minilm.explain(CHINESE).reading.labels
    assert "猫" in labels and "<" in labels and "[UNK]" not in labels
    for label in labels:
        assert shown.count(label) >= labels.count(label) * (1 if "--from" in view else 2)
    assert not any(part.tag.endswith(("script", "foreignObject")) for part in image.iter())


def test_png_opens_and_has_ink_for_every_script(
    minilm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: Any
) -> None:
    from PIL import Image

    code, _, err = explained(capsys, minilm_folder, CHINESE, "--layer", 4, "--out", tmp_path / "a.png")
    assert code == 0 and not [one for one in recwarn if "Glyph" in str(one.message)]
    with Image.open(tmp_path / "a.png") as image:
        image.verify()
    with Image.open(tmp_path / "a.png") as image:
        assert min(image.size) > 400 and image.convert("L").getextrema() == (26, 255)
    assert "no font of this machine has" in err or err.count("\n") == 1
