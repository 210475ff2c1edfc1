"""Tables: what is written is read back, a bad row rejects only itself, and every message names the right line."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keel.errors import Rejected, UserError, separate
from keel.text import tables
from keel.text.tables import column_names

SAME_FOLDER = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHARACTERS = st.one_of(st.sampled_from('\n\r,"\t\u2028é字😀 '), st.characters(exclude_categories=["Cs"]))
ANY_TEXT = st.text(CHARACTERS.filter(lambda c: c != "\0"), max_size=20)
LINE = st.text(CHARACTERS.filter(lambda c: c not in "\0\r\n\t"), min_size=1, max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
BOTH: dict[str, str | None] = {"text": "text", "label": "label"}


def read_table(*given: Any, **options: Any) -> Any:
    return separate(tables.read_table(*given, **options))


def write(path: Path, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def rows(path: Path, columns: dict[str, str | None]) -> list[tuple[Any, ...]]:
    records, rejected = read_table(path, columns)
    assert not rejected
    return [tuple(record.fields.values()) for record in records]


def reasons(path: Path, columns: dict[str, str | None]) -> dict[int, str]:
    """The reason for each rejected line; a line is rejected only once."""
    _, rejected = read_table(path, columns)
    assert {one.file for one in rejected} <= {str(path)}
    assert len({one.line for one in rejected}) == len(rejected)
    return {one.line: one.reason for one in rejected}


def error(path: Path, columns: dict[str, str | None]) -> str:
    with pytest.raises(UserError) as caught:
        read_table(path, columns)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message.removeprefix(str(path))


@SAME_FOLDER
@given(pairs=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6), gz=st.booleans(), bom=st.booleans())
@example(pairs=[('"a", b\r\nc', "😀"), ("", "")], gz=True, bom=True)
def test_csv_gives_back_what_was_written(tmp_path: Path, pairs: list[tuple[str, str]], gz: bool, bom: bool) -> None:
    table = io.StringIO(newline="")
    csv.writer(table).writerows([("label", "id", "text"), *((label, 7, text) for text, label in pairs)])
    data = ("\ufeff" if bom else "") + table.getvalue()
    path = write(tmp_path / f"a.csv{'.gz' if gz else ''}", data)
    assert rows(path, BOTH) == pairs
    assert column_names(path) == ["label", "id", "text"]
    records, _ = read_table(path, BOTH)
    starts = [2]
    for text, label in pairs:
        starts.append(starts[-1] + 1 + text.count("\n") + label.count("\n"))
    assert [record.line for record in records] == starts[:-1]


@SAME_FOLDER
@given(values=st.lists(st.tuples(ANY_TEXT, JSON), min_size=1, max_size=6), ascii_only=st.booleans(), end=st.booleans())
def test_jsonl_gives_back_what_was_written(
    tmp_path: Path, values: list[tuple[str, Any]], ascii_only: bool, end: bool
) -> None:
    lines = [json.dumps({"text": text, "x": 1, "label": label}, ensure_ascii=ascii_only) for text, label in values]
    path = write(tmp_path / "a.jsonl", "\n".join(lines) + ("\n" if end else ""))
    assert rows(path, BOTH) == values
    assert [record.line for record in read_table(path, BOTH)[0]] == list(range(1, len(lines) + 1))
    assert column_names(path) == ["text", "x", "label"]


@SAME_FOLDER
@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=6), newline=st.sampled_from(["\n", "\r\n"]))
def test_tsv_and_txt_give_back_what_was_written(tmp_path: Path, pairs: list[tuple[str, str]], newline: str) -> None:
    data = newline.join(["text\tlabel", *(f"{text}\t{label}" for text, label in pairs)])
    assert rows(write(tmp_path / "a.tsv", data), BOTH) == pairs
    texts = ["first", *(text for text, _ in pairs if text.strip())]
    assert rows(write(tmp_path / "a.txt", newline.join(texts)), {"text": "text"}) == [(text,) for text in texts]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_numbers_mean_there_is_no_header(tmp_path: Path, name: str, newline: str) -> None:
    lines = ["gj04,1,good", "gj05,0,bad", ""]
    path = write(tmp_path / name, newline.join(lines).replace(",", "," if name == "a.csv" else "\t"))
    assert rows(path, {"text": "3", "label": "2", "pair": None}) == [("good", "1"), ("bad", "0")]
    assert [record.line for record in read_table(path, {"text": "3"})[0]] == [1, 2]


def test_quotes_mean_nothing_in_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n" he said\t0\n"no"\t1\n')
    assert rows(path, BOTH) == [('" he said', "0"), ('"no"', "1")]


def test_bad_rows_of_csv(tmp_path: Path) -> None:
    data = [
        "text,label",  # line 1
        "fine,1",
        "alone",  # 3
        "",
        '"two',  # 5: a row of two lines
        'lines",0',
        "one, two, 1",  # 7
        '"a"b,1',  # 8
        "right,1,,",  # the surplus columns are empty
    ]
    path = write(tmp_path / "a.csv", "\n".join(data))
    records, _ = read_table(path, BOTH)
    assert [(r.line, r.fields["text"]) for r in records] == [(2, "fine"), (5, "two\nlines"), (9, "right")]
    assert reasons(path, BOTH) == {
        3: "too few columns: 1, the label is in column 2",
        7: "too many columns: 3, the header has 2; is there a separator inside a text?",
        8: "malformed row: ',' expected after '\"'",
    }


def test_an_unclosed_quote_rejects_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\nfirst,1\n"open,0\nplain,1\n"quoted, text",0\nlast,1\n')
    records, rejected = read_table(path, BOTH)
    assert [r.fields["text"] for r in records] == ["first", "plain", "quoted, text", "last"]
    assert rejected == [
        Rejected(
            str(path), 3, "unclosed quote: it begins in this row, and the next one, in line 5, does not end a field"
        )
    ]
    path = write(tmp_path / "b.csv", 'text,label\nfirst,1\n"open,0\nplain,1\nlast,0')
    assert [r.line for r in read_table(path, BOTH)[0]] == [2, 4, 5]
    assert reasons(path, BOTH) == {3: "unclosed quote: it begins in this row and never ends"}


def test_a_long_field_is_read(tmp_path: Path) -> None:
    text = "word, " * 100_000  # csv's own limit is 131,072 characters
    path = write(tmp_path / "a.csv", f'text,label\n"{text}",1\n')
    assert rows(path, BOTH) == [(text, "1")]


def test_bad_rows_of_jsonl(tmp_path: Path) -> None:
    lines = [
        '{"text": "fine", "label": 1}',
        "{text: 1}",  # 2
        "",
        '["a", "list"]',  # 4
        '{"text": "no label"}',  # 5
        '{"text": "half a pair \\ud83d", "label": 1}',  # 6
        '{"text": "😀 \\ud83d\\ude00", "label": [1.5, null]}\r',
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    records, _ = read_table(path, BOTH)
    assert [(r.line, r.fields["label"]) for r in records] == [(1, 1), (7, [1.5, None])]
    assert records[1].fields["text"] == "😀 😀"
    found = reasons(path, BOTH)
    assert found[2].startswith("not JSON: Expecting property name") and found[2].endswith("at column 2 (char 1)")
    assert found[4] == "not a JSON object: a list"
    assert found[5] == "no key 'label': the record has 'text'"
    assert found[6] == "not Unicode: half a surrogate pair, \\ud83d"
    assert set(found) == {2, 4, 5, 6}


def test_invalid_utf8_rejects_its_row(tmp_path: Path) -> None:
    """Lines of GBK among lines of UTF-8; in a row of several lines, the line of the byte is named too."""
    gbk = "很好".encode("gbk")  # ba dc ba c3
    table = (
        b"text,label\n" + "好,1\n".encode() + gbk + b',0\n"two\nlines ' + gbk + b'",1\nlast,1\n"a\nb\nc",' + gbk + b"\n"
    )
    path = write(tmp_path / "a.csv", table)
    assert [r.fields["text"] for r in read_table(path, BOTH)[0]] == ["好", "last"]
    assert reasons(path, BOTH) == {
        3: "invalid UTF-8: byte 0xba in line 3; save the text as UTF-8",
        4: "invalid UTF-8: byte 0xba in line 5; save the text as UTF-8",
        7: "invalid UTF-8: byte 0xba in line 9; save the text as UTF-8",
    }
    assert [r.line for r in read_table(path, {"text": "text"})[0]] == [2, 6, 7]  # other columns do not matter
    path = write(tmp_path / "a.tsv", b"text\tlabel\n" + gbk + b"\t1\nfine\t1\nbad\t" + gbk)
    assert set(reasons(path, BOTH)) == {2, 4}
    jsonl = b'{"text": "one"}\n{"text": "' + gbk + b'"}\n{"text": "three"}\n'
    assert set(reasons(write(tmp_path / "a.jsonl", jsonl), {"text": "text"})) == {2}
    path = write(tmp_path / "a.txt", b"one\n\n" + gbk + b"\n")
    assert reasons(path, {"text": "text", "label": None}) == {
        2: "empty",
        3: "invalid UTF-8: byte 0xba in line 3; save the text as UTF-8",
    }


@SAME_FOLDER
@given(data=st.binary(max_size=200), suffix=st.sampled_from(["csv", "tsv", "jsonl"]))
def test_no_bytes_break_the_reader(tmp_path: Path, data: bytes, suffix: str) -> None:
    """After a valid header and a valid row, every row is returned or rejected, in the order of the lines."""
    good = {"csv": "text,label\nx,y\n", "tsv": "text\tlabel\nx\ty\n", "jsonl": '\n{"text": "x", "label": "y"}\n'}
    path = write(tmp_path / f"a.{suffix}", good[suffix].encode() + data.replace(b"\0", b'"'))
    records, rejected = read_table(path, BOTH)
    assert records[0].fields == {"text": "x", "label": "y"} and records[0].line == 2
    for found in ([r.line for r in records], [r.line for r in rejected]):
        assert found == sorted(set(found)) and all(2 <= line <= 3 + data.count(b"\n") for line in found)
    assert all("\n" not in one.reason and one.reason.encode() for one in rejected)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_wrong_column_is_refused_with_a_suggestion(tmp_path: Path, suffix: str) -> None:
    data = "sentence,label\nx,1\n" if suffix == "csv" else '{"sentence": "x", "label": 1}\n'
    path = write(tmp_path / f"a.{suffix}", data)
    message = error(path, {"text": "sentense", "label": "label"})
    assert "'sentense', wanted as text" in message and message.endswith("Did you mean 'sentence'?")
    assert error(path, {"text": "zzz"}).endswith("Known: label, sentence.")


def test_records_without_the_key_are_rejected_if_others_have_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "x"}\n{"text": "y", "label": 1}\n')
    assert reasons(path, BOTH) == {1: "no key 'label': the record has 'text'"}


def test_impossible_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label,label\nx,1,2\n")
    assert "by name and by number (text = text, label = 2)" in error(path, {"text": "text", "label": "2"})
    assert "counted from 1" in error(path, {"text": "0"})
    assert "there is no column 4, wanted as label; its widest row has 3" in error(path, {"text": "1", "label": "4"})
    assert "the column 'label' 2 times" in error(path, BOTH)
    path = write(tmp_path / "a.txt", "some text\n")
    assert "no label; give a .csv" in error(path, BOTH)
    assert column_names(path) == ["text"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "text,label\n")
    assert "header and no rows" in error(tmp_path / "train.csv", BOTH)
    assert error(tmp_path / "trian.csv", BOTH).endswith("Did you mean 'train.csv'?")
    assert "folder" in error(tmp_path, BOTH)
    assert ".csv, .tsv, .jsonl, .parquet, .txt (also with .gz)" in error(write(tmp_path / "a.xlsx", "x"), BOTH)
    assert "the file is empty" in error(write(tmp_path / "a.jsonl", "\n \n"), BOTH)
    assert "the file is empty" in error(write(tmp_path / "a.csv.gz", "\ufeff"), BOTH)
    assert "UTF-16" in error(write(tmp_path / "b.csv", "text,label\nx,1".encode("utf-16")), BOTH)
    assert "binary" in error(write(tmp_path / "c.csv", b"PK\3\4\0\0"), BOTH)
    assert "line 1: the header row cannot be read (malformed" in error(
        write(tmp_path / "d.csv", "text,label\rx,1"), BOTH
    )
    assert "(invalid UTF-8: byte 0xff" in error(write(tmp_path / "e.csv", b"text,\xff\nx,1"), BOTH)
    damaged = tmp_path / "f.csv.gz"
    damaged.write_bytes(gzip.compress(b"text,label\nx,1\n")[:-9])
    assert "damaged gzip" in error(damaged, BOTH)
    with pytest.raises(UserError, match=r"no line of it is a JSON object"):
        column_names(write(tmp_path / "g.jsonl", "[1]\n[2]\n"))
