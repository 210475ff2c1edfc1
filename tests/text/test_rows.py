"""Tables: both readers give back what csv.writer wrote, and damage costs the rows near it, in linear time."""

from __future__ import annotations

import csv
import io
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import separate
from keel.text import rows
from keel.text.readers import read
from keel.text.tables import read_table

SAME_FOLDER = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
CELL = st.text(st.one_of(st.sampled_from('",\n\r ab'), st.characters(exclude_categories=["Cs"])), max_size=12).map(
    lambda cell: cell.replace("\0", "")
)
PLAIN = st.text("ab é字", min_size=1, max_size=8)


def table(cells: list[tuple[str, str]]) -> list[str]:
    """The text of each row, the header first."""
    written = []
    for row in [("text", "label"), *cells]:
        buffer = io.StringIO(newline="")
        csv.writer(buffer).writerow(row)
        written.append(buffer.getvalue())
    return written


def corpus_texts(path: Path) -> list[str]:
    return [piece.text for piece in read([path]) if not piece.rejected]


def labelled_texts(path: Path) -> list[str]:
    return [record.fields["text"] for record in separate(read_table(path, {"text": "text", "label": "label"}))[0]]


@SAME_FOLDER
@given(cells=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=8))
def test_both_readers_give_back_what_was_written(tmp_path: Path, cells: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("".join(table(cells)).encode())
    records, rejected = separate(read_table(path, {"text": "text", "label": "label"}))
    assert [(r.fields["text"], r.fields["label"]) for r in records] == cells and not rejected
    assert corpus_texts(path) == [text for text, _ in cells if text.strip()]
    offsets, offset = [], len(table([])[0])
    for row in table(cells)[1:]:
        offsets.append(offset)
        offset += len(row.encode())
    assert [piece.offset for piece in read([path])] == offsets


@SAME_FOLDER
@given(
    cells=st.lists(st.tuples(PLAIN, st.one_of(PLAIN, st.just("a,b"), st.just("two\nlines"))), min_size=3, max_size=40),
    data=st.data(),
)
def test_damage_of_a_row_loses_only_this_row(tmp_path: Path, cells: list[tuple[str, str]], data: st.DataObject) -> None:
    """A character of a row is deleted, inserted or replaced."""
    written = table(cells)
    number = data.draw(st.integers(1, len(cells)))
    row = written[number]
    place = data.draw(st.integers(0, len(row) - 1))
    new = data.draw(st.sampled_from(['"', ",", "\n", "", 'x"', '"x', '"\n']))
    written[number] = row[:place] + new + row[place + data.draw(st.integers(0, 1)) :]
    path = tmp_path / "a.csv"
    path.write_bytes("".join(written).encode())
    texts = [text for text, _ in cells]
    for found in (labelled_texts(path), corpus_texts(path)):
        before, after = texts[: number - 1], texts[number + 1 :]  # the next row may be joined, if a line end is lost
        found = [text for text in found if text.strip()]
        before, after = ([text for text in part if text.strip()] for part in (before, after))
        assert found[: len(before)] == before and found[len(found) - len(after) :] == after


def test_stray_quotes_lose_their_own_lines(tmp_path: Path) -> None:
    lines = [f"text {number},{number % 2}" for number in range(10_000)]
    lines[10], lines[5000] = '"text 10,0', 'text 5000",0'  # together they would be one valid row of 4,991 lines
    lines[7000] = '"text 7000,0'
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    expected = [f"text {number}" + '"' * (number == 5000) for number in range(10_000) if number not in (10, 7000)]
    assert labelled_texts(path) == corpus_texts(path) == expected
    reasons = [piece.rejected for piece in read([path]) if piece.rejected]
    assert reasons == [one.reason for one in separate(read_table(path, {"text": "text", "label": "label"}))[1]]
    assert reasons[0] == "unclosed quote: it begins in this row, and the next one, in line 5002, is 4,989 rows away"


def test_a_text_of_many_lines_is_no_stray_quote(tmp_path: Path) -> None:
    text = "\n".join(["a line of prose, or a verse", "of a poem without", "", "and one, two, three"] * 500)
    path = tmp_path / "a.csv"
    path.write_bytes("".join(table([(text, "1"), ("next", "0")])).encode())
    assert labelled_texts(path) == corpus_texts(path) == [text, "next"]


@pytest.mark.parametrize(
    "unit", ['",b","c\n', '"\n', '"a\n', 'a,"\n', '"",\n', '"a","b\nc\n', '"a\n"b\n', '",\n', '"a\n,\n"', '""\n"']
)
def test_time_grows_with_length_only(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + unit * (400_000 // len(unit)), encoding="utf-8")
    for read_texts in (labelled_texts, corpus_texts):
        begin = time.process_time()
        read_texts(path)
        assert time.process_time() - begin < 8


def test_no_row_is_searched_for_further_than_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"open,1\n' + "plain,0\n" * 300 + f"{'x' * 2000},0\nlast,1\n", encoding="utf-8")
    monkeypatch.setattr(rows, "RECORD_BYTES", 1000)
    expected = ["plain"] * 300 + ["last"]
    assert labelled_texts(path) == corpus_texts(path) == expected
    monkeypatch.setattr(rows, "ROW_LINES", 10)
    assert labelled_texts(path) == corpus_texts(path) == expected
    _, rejected = separate(read_table(path, {"text": "text", "label": "label"}))
    assert [(one.line, one.reason.partition(":")[0]) for one in rejected] == [
        (2, "unclosed quote"),
        (303, "record too long"),
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_huge_cell_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(rows, "RECORD_BYTES", 1 << 20)
    path = tmp_path / name
    path.write_bytes(b"x" * (40 << 20) + b'\n{"text": "b"}\n')
    tracemalloc.start()
    try:
        _, rejected = separate(read_table(path, {"text": "text" if name in ("a.jsonl", "a.txt") else "1"}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(one.line, one.reason.partition(":")[0]) for one in rejected] == [(1, "record too long")]
    assert peak < 10 << 20
