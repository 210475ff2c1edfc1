"""Every reader turns any bytes into records, rejected records, or a UserError of one line; and in bounded time."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import Rejected, UserError
from keel.inference.whole_rows import open_whole, scan
from keel.text.conll import read_conll
from keel.text.labelled import LabelledData
from keel.text.parallel import read_pairs
from keel.text.readers import DOCUMENTS, read
from keel.text.senses import read_senses
from keel.text.sentences import split
from keel.text.spans import read_spans
from keel.text.squad import read_squad
from keel.text.tables import column_names, read_table, unicode_lines
from keel.text.vector_files import read_vectors

SECONDS = 5
QUESTION = {"id": "1", "question": "q", "answers": [{"text": "c", "answer_start": 0}]}
# Fragments that mean something in one of the formats, so that more than the first check is reached.
FRAGMENTS = [
    *(
        b'"',
        b",",
        b"\n",
        b"\r",
        b"\r\n",
        b"\t",
        b" ",
        b"\n\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\x1f\x8b",
    ),
    *(
        b"text,label\n",
        b"text\tlabel\n",
        b"a,b\n",
        b'"a\nb",1\n',
        b'{"text": "a", "label": "b"}\n',
        b'{"text":',
        b"[",
        b"{",
    ),
    *(b"9" * 5000, b"[" * 5000, b'"\\ud800"', b"NaN", b"-1", b"1e999", b"-DOCSTART- O\n", b"EU B-ORG\n", b"# c\n"),
    *(
        b"1\ta\tb\tX\tY\tf\t0\tr\t_\t_\n",
        b"1-2\t",
        b"1.1\t",
        b"2 2\n",
        b"a 1 2\n",
        b"b 1.5 nan\n",
        b"1 1\nw \0\0\0\0\n",
    ),
    *("字。", "é…", "\u2028", "\x85"),
    json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [QUESTION]}]}]}).encode(),
    json.dumps({"text": "a b", "start": 0, "end": 1, "sense": "s", "label": [[0, 1, "x"]]}).encode() + b"\n",
    json.dumps({"a\nb\u2028": 1}).encode() + b"\n",
]
BYTES = st.lists(
    st.one_of(st.sampled_from([f if isinstance(f, bytes) else f.encode() for f in FRAGMENTS]), st.binary(max_size=30)),
    max_size=12,
).map(b"".join)


def documents(path: Path) -> list[Any]:
    found = [piece for mode in DOCUMENTS for column in ("1", "text") for piece in tried(path, mode, column)]
    for piece in found:
        split(piece.text)
    return [piece.rejected for piece in found]


def tried(path: Path, mode: str, column: str) -> list[Any]:
    try:
        return list(read([path], mode, column))
    except UserError as error:
        check_line(str(error))
        return []


def check_line(text: str) -> None:
    assert len(text.splitlines()) <= 1, text
    text.encode()


READERS: dict[str, list[Callable[[Path], Any]]] = {
    ".txt": [documents, unicode_lines, lambda p: read_table(p, {"text": "text"}), lambda p: column_names(p)],
    ".jsonl": [documents, read_spans, lambda p: read_senses(str(p)), lambda p: read_table(p, {"text": "text"})],
    ".csv": [
        documents,
        lambda p: read_table(p, {"text": "text", "label": "label"}),
        lambda p: read_table(p, {"text": "1"}),
        lambda p: read_pairs(str(p), LabelledData(), True),
        lambda p: read_senses(str(p)),
    ],
    ".conll": [read_conll, lambda p: read_conll(p, 2, 1), lambda p: read_conll(p, tags_needed=False)],
    ".conllu": [read_conll, lambda p: read_conll(p, "lemma", "xpos"), lambda p: read_conll(p, tags_needed=False)],
    ".json": [read_squad, lambda p: read_squad(p, labelled=False)],
    ".vec": [lambda p: read_vectors(p).words],
}
READERS[".tsv"] = READERS[".csv"]


@pytest.mark.parametrize("suffix", READERS)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=BYTES, packed=st.sampled_from(["plain", "gz", "not gz"]))
def test_any_bytes_give_records_or_one_line(tmp_path: Path, suffix: str, data: bytes, packed: str) -> None:
    path = tmp_path / f"a{suffix}{'' if packed == 'plain' else '.gz'}"
    path.write_bytes(gzip.compress(data, 1) if packed == "gz" else data)
    for reader in READERS[suffix]:
        begin = time.process_time()
        try:
            found = list(reader(path))
        except UserError as error:
            check_line(str(error))
            assert str(error).startswith(str(path))
        else:
            for rejected in found if reader is documents else (row for row in found if isinstance(row, Rejected)):
                check_line(str(rejected))
        assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".txt"])
@pytest.mark.parametrize("column", ["text", "1"])
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=BYTES)
def test_whole_rows_are_the_rows_of_a_table_at_the_same_lines(
    tmp_path: Path, suffix: str, column: str, data: bytes
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    try:
        wanted = list(read_table(path, {"text": column}))
    except UserError:
        return
    table = open_whole(path, header=column != "1")
    found = list(table.rows())
    assert [row.line for row in found] == [row.line for row in wanted]
    assert len(set(table.columns)) == len(table.columns)
    place = 0 if column == "1" and suffix in (".csv", ".tsv") else None
    for row, record in zip(found, wanted, strict=True):
        assert set(row.values) <= set(table.columns)
        if not isinstance(record, Rejected):
            given_as = table.columns[place] if place is not None else column if suffix == ".jsonl" else "text"
            assert row.values[given_as] == record.fields["text"]
    assert scan(path).lines == data.count(b"\n")
