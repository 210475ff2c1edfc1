"""Labelled spans of characters: three notations are read to the same spans."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import UserError, separate
from keel.text import spans
from keel.text.spans import LabelledSpan, Spanned

SAME_FOLDER = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.sampled_from('ab字😀\n"\t é') | st.characters(exclude_categories=["Cs"]), max_size=20)


def read_spans(*given: Any, **options: Any) -> Any:
    return separate(spans.read_spans(*given, **options))


def write(path: Path, records: list[Any]) -> Path:
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def cluener(text: str, spans: list[LabelledSpan]) -> dict[str, dict[str, list[list[int]]]]:
    found: dict[str, dict[str, list[list[int]]]] = {}
    for start, stop, label in spans:
        found.setdefault(label, {}).setdefault(text[start:stop], []).append([start, stop - 1])
    return found


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[LabelledSpan]]:
    text = draw(TEXT)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    label = st.sampled_from(["name", "公司", "a b"])
    return text, [(start, stop, draw(label)) for start, stop in zip(cuts[::2], cuts[1::2], strict=False)]


@SAME_FOLDER
@given(written=st.lists(texts_with_spans(), min_size=1, max_size=4), gz=st.booleans())
def test_every_form_gives_back_what_was_written(
    tmp_path: Path, written: list[tuple[str, list[LabelledSpan]]], gz: bool
) -> None:
    words = [[{"start": a, "end": b, "label": label, "id": 1} for a, b, label in spans] for _, spans in written]
    forms: list[list[Any]] = [[cluener(*one) for one in written], [spans[::-1] for _, spans in written], words]
    for labels in forms:
        records = [{"text": text, "label": label} for (text, _), label in zip(written, labels, strict=True)]
        path = write(tmp_path / f"a.jsonl{'.gz' if gz else ''}", records)
        expected = [Spanned(str(path), line, text, spans) for line, (text, spans) in enumerate(written, 1)]
        assert read_spans(path) == (expected, [])


def test_only_cluener_includes_the_end(tmp_path: Path) -> None:
    text = "浙商银行企业信贷部叶老桂博士"
    labels = [{"name": {"叶老桂": [[9, 11]]}}, [[9, 12, "name"]], [{"start": 9, "end": 12, "label": "name"}]]
    found, _ = read_spans(write(tmp_path / "a.jsonl", [{"t": text, "l": label} for label in labels]), "t", "l")
    assert [one.spans for one in found] == [[(9, 12, "name")]] * 3 and text[9:12] == "叶老桂"


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ([[0, 2, "x"], [1, 3, "y"]], "overlap: 'x' from 0 up to 2 and 'y' from 1 up to 3; keep one of them"),
        ([[0, 2, "x"], [0, 2, "y"]], "overlap: 'x' from 0 up to 2 and 'y' from 0 up to 2; keep one of them"),
        ([[2, 2, "x"]], "empty span: 'x' from 2 up to 2; it must stop after it starts"),
        ([[3, 5, "x"]], "outside the text: 'x' from 3 up to 5, the text has 4 characters"),
        ([[-1, 2, "x"]], "outside the text: 'x' from -1 up to 2, the text has 4 characters"),
        ({"x": {"ab": [[1, 2]]}}, "wrong place: 'x' from 1 up to 3 is 'bc', not 'ab'"),
        ({"x": {"ab": [[0, 4]]}}, "outside the text: 'x' from 0 up to 5, the text has 4 characters"),
        ({"x": {"d": [[-1, -1]]}}, "outside the text: 'x' from -1 up to 0, the text has 4 characters"),
        ("B-X O O", 'not spans: "B-X O O"; expected'),
        (None, "not spans: null; expected"),
        ([[0, 2]], "not spans: [0, 2]; expected"),
        ([[0, 2, 7]], "not spans: [0, 2, 7]; expected"),
        ([[0, True, "x"]], 'not spans: [0, true, "x"]; expected'),
        ([["0", "2", "x"]], 'not spans: ["0", "2", "x"]; expected'),
        ([{"start": 0, "label": "x"}], 'not spans: {"start": 0, "label": "x"}; expected'),
        ({"x": [[0, 1]]}, 'not spans: {"x": [[0, 1]]}; expected'),
        ({"x": {"ab": [0, 1]}}, 'not spans: {"x": {"ab": [0, 1]}}; expected'),
        ({"x": {"ab": None}}, 'not spans: {"x": {"ab": null}}; expected'),
    ],
)
def test_a_wrong_span_rejects_its_record(tmp_path: Path, label: Any, reason: str) -> None:
    good = {"text": "abcd", "label": [[0, 2, "x"], [2, 4, "y"], [0, 2, "x"]]}
    path = write(tmp_path / "a.jsonl", [good, {"text": "abcd", "label": label}, {"text": 3, "label": []}, good])
    found, rejected = read_spans(path)
    assert [(one.line, one.spans) for one in found] == [(n, [(0, 2, "x"), (2, 4, "y")]) for n in (1, 4)]
    assert [(one.file, one.line) for one in rejected] == [(str(path), 2), (str(path), 3)]
    assert rejected[0].reason.startswith(reason) and (reason.endswith("expected") or rejected[0].reason == reason)
    assert rejected[1].reason == "not a string: the text is a int"


def test_rows_that_are_not_records_are_listed_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\n{"text": "a", "label": 1}\nnot json\n{"text": "\xff", "label": []}\n{"text": "a", "label": 2}\n'
    )
    found, rejected = read_spans(path)
    assert not found and [(one.line, one.reason.partition(":")[0]) for one in rejected] == [
        (2, "not spans"),
        (3, "not JSON"),
        (4, "invalid UTF-8"),
        (5, "not spans"),
    ]


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"text": "a", "labels": []}])
    with pytest.raises(
        UserError, match=r"no record has the key 'label', wanted as label; choose with --label. Did you mean 'labels'\?"
    ):
        read_spans(tmp_path / "train.jsonl")
    with pytest.raises(UserError, match=r"no such file.*Did you mean 'train.jsonl'\?"):
        read_spans(tmp_path / "trian.jsonl")
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    with pytest.raises(UserError, match=r"give one of \.jsonl"):
        read_spans(tmp_path / "a.csv")
