"""Readers: what is read, in which order, and what is rejected for each kind of bad input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.text import readers
from keel.text.readers import Piece, find_files, read

SAME_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1, max_size=60)
WORDY = TEXTS.filter(lambda t: bool(t.strip()) and not t.startswith("\ufeff"))


def write(path: Path, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def documents(*files: Path, **options: str) -> list[tuple[str, str]]:
    """(text, reason) of each document, joined from its pieces; checks what holds for all readers."""
    found: list[tuple[str, str]] = []
    text, ordinal, file = "", -1, ""
    for piece in read(files, **options):
        if piece.file != file:
            file, ordinal = piece.file, -1
        if piece.first:
            assert piece.ordinal == ordinal + 1
            text, ordinal = "", piece.ordinal
        assert piece.ordinal == ordinal and len(piece.text) <= readers.PIECE_CHARACTERS
        text += piece.text
        if piece.last:
            found.append(("", piece.rejected) if piece.rejected else (text, ""))
    return found


def small_blocks(patch: pytest.MonkeyPatch, size: int) -> None:
    for name, value in {"HEAD": 4, "BLOCK": size, "PART": size}.items():
        patch.setattr(f"keel.text.blocks.{name}", value)
    patch.setattr(readers, "PART", size)


def kinds(found: list[tuple[str, str]]) -> list[str]:
    return [reason.partition(":")[0] for _, reason in found]


@SAME_FOLDER
@given(texts=st.lists(WORDY, min_size=1, max_size=8), gz=st.booleans())
def test_every_format_gives_back_what_was_written(tmp_path: Path, texts: list[str], gz: bool) -> None:
    end = ".gz" if gz else ""
    table = io.StringIO()
    csv.writer(table).writerows([("id", "text"), *enumerate(texts)])
    expected = [(text, "") for text in texts]
    jsonl = "".join(json.dumps({"id": 1, "text": t}, ensure_ascii=False) + "\n" for t in texts)
    assert documents(write(tmp_path / f"a.jsonl{end}", jsonl)) == expected
    assert documents(write(tmp_path / f"a.jsonl{end}", jsonl.rstrip("\n"))) == expected
    assert documents(write(tmp_path / f"a.csv{end}", table.getvalue())) == expected
    assert documents(write(tmp_path / f"a.txt{end}", "\n".join(texts)), documents="line") == expected
    flat = [text.replace("\t", " ") for text in texts]
    tsv = "".join(f"{text}\t0\n" for text in flat)
    assert [t for t, _ in documents(write(tmp_path / f"a.tsv{end}", tsv), column="1")] == [
        t if t.strip() else "" for t in flat
    ]


@SAME_FOLDER
@given(
    data=st.binary(max_size=400).map(lambda b: b.replace(b"\0", b"\n")),
    size=st.integers(1, 40),
    mode=st.sampled_from(["file", "line", "paragraph"]),
)
@example(data=b"\x01\xc2", size=2, mode="paragraph")
def test_what_is_read_does_not_depend_on_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: int, mode: str
) -> None:
    """Any bytes, in blocks, parts and pieces of any size: same documents, and nothing raised."""
    path = write(tmp_path / "a.txt", data)
    plain = documents(path, documents=mode)
    with monkeypatch.context() as small:
        small_blocks(small, size)
        assert documents(path, documents=mode) == plain
        small.setattr(readers, "PIECE_CHARACTERS", 2 * size)
        cut = documents(path, documents=mode)
    assert kinds(cut) == kinds(plain)
    assert [t.split() for t, _ in cut if not t.isspace()] == [t.split() for t, _ in plain] or not data.isascii()


@SAME_FOLDER
@given(text=st.text("ab \n.。字", min_size=1, max_size=200), size=st.integers(1, 30))
def test_joined_pieces_are_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    with monkeypatch.context() as small:
        small.setattr(readers, "PIECE_CHARACTERS", size)
        small_blocks(small, 7)
        for name, data in (("a.txt", text), ("a.jsonl", json.dumps({"text": text}))):
            ((got, reason),) = documents(write(tmp_path / name, data))
            assert "".join(got.split()) == "".join(text.split())
            assert reason == ("" if text.strip() else "empty")


def test_paragraphs_and_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n \t\r\n\r\nthree\n\n\n\nfour")
    pieces = list(read([path], "paragraph"))
    assert [p.text.split() for p in pieces] == [["one", "two"], ["three"], ["four"]]
    data = path.read_bytes()
    assert [data[p.offset :].split()[0] for p in pieces] == [b"one", b"three", b"four"]
    lines = list(read([path], "line"))
    assert [p.text for p in lines if not p.rejected] == ["one", "two", "three", "four"]
    assert {p.rejected for p in lines} == {"", "empty"} and len(lines) == data.count(b"\n") + 1
    assert [data[p.offset :].split()[0].decode() for p in lines if not p.rejected] == ["one", "two", "three", "four"]


def test_invalid_utf8_rejects_one_document(tmp_path: Path) -> None:
    bad = b"bad \xff here"
    line = write(tmp_path / "a.txt", b"one\n" + bad + b"\nthree\n")
    assert documents(line, documents="line") == [
        ("one", ""),
        ("", "invalid UTF-8: byte 0xff at offset 8"),
        ("three", ""),
    ]
    jsonl = write(tmp_path / "a.jsonl", b'{"text": "one"}\n{"text": "' + bad + b'"}\n{"text": "three"}\n')
    assert kinds(documents(jsonl)) == ["", "invalid UTF-8", ""]
    table = write(tmp_path / "a.csv", b"text,n\none,1\n" + bad + b",2\nthree," + bad + b"\n")
    assert documents(table) == [
        ("one", ""),
        ("", "invalid UTF-8: byte 0xff in the row at offset 13"),
        ("three", ""),
    ]


def test_invalid_utf8_late_in_a_long_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PIECE_CHARACTERS", 100)
    small_blocks(monkeypatch, 50)
    data = "字 ".encode() * 100 + b"\xe5\xad" + b"\n" + b"fine\n"
    pieces = list(read([write(tmp_path / "a.txt", data)], "line"))
    assert [p.ordinal for p in pieces if not p.rejected] == [0] * (len(pieces) - 2) + [1]
    assert pieces[-2].rejected == "invalid UTF-8: byte 0xe5 at offset 400" and not pieces[-2].first
    assert pieces[-1].text == "fine" and pieces[-1].offset == 403


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"ELF\0\1\2", "binary file"),
        ("hello\n".encode("utf-16"), "UTF-16 file"),
        ("hello\n".encode("utf-16-le"), "binary file"),
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv", ".txt.gz", ".jsonl.gz"])
def test_a_file_that_is_not_text_is_one_rejected_document(tmp_path: Path, data: bytes, kind: str, suffix: str) -> None:
    bad, good = write(tmp_path / f"a{suffix}", data), write(tmp_path / "b.txt", "good")
    assert kinds(documents(bad, good)) == [kind, ""]


@pytest.mark.parametrize("mode", ["file", "line", "paragraph"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "garbage after"])
def test_damaged_gzip_rejects_the_document_being_read(tmp_path: Path, mode: str, damage: str) -> None:
    """Everything before the damage is kept, the rest of the file is one rejected document, the next file is read."""
    path = tmp_path / "a.txt.gz"
    lines = [f"line {number} {number * 7919 % 1000}" for number in range(20000)]
    data = gzip.compress("\n\n".join(lines).encode())
    half = len(data) // 2
    broken = {
        "truncated": data[:half],
        "flipped": data[:half] + bytes([data[half] ^ 255]) * 40 + data[half + 40 :],
        "garbage after": data + b"garbage",
    }
    path.write_bytes(broken[damage])
    found = documents(path, write(tmp_path / "b.txt", "good"), documents=mode)
    assert found[-1] == ("good", "") and kinds(found)[-2] == "damaged gzip"
    kept = [text.strip() for text, reason in found[:-2] if not reason]
    assert kept[:5000] == ([] if mode == "file" else lines[:5000])
    if damage != "flipped":  # deflate notices a flipped byte only some bytes later
        assert kept == lines[: len(kept)]


def test_bad_json_lines(tmp_path: Path) -> None:
    lines = ['{"text": "good"}', "{", '{"body": "x"}', '{"text": 5}', "[1]", '{"text": " "}', "", '{"text": "\\ud800"}']
    lines += ["[" * 100000, '{"text": "\\ud83d\\ude00"}']
    assert documents(write(tmp_path / "a.jsonl", "\n".join(lines))) == [
        ("good", ""),
        ("", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "no column 'text': the record has 'body'"),
        ("", "not a string: column 'text' holds a int"),
        ("", "not a JSON object: a list"),
        ("", "empty"),
        ("", "empty"),
        ("", "not Unicode: half a surrogate pair, \\ud800"),
        ("", "not JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
        ("😀", ""),
    ]


def test_tables(tmp_path: Path) -> None:
    rows = 'id,text\n1,"two\nlines, ""quoted"""\n2\n\n3,  \n4,plain\r\n5,"never closed\n6,kept\n'
    assert documents(write(tmp_path / "a.csv", rows)) == [
        ('two\nlines, "quoted"', ""),
        ("", "too few columns: 1, the text is in column 2"),
        ("", "empty"),
        ("", "empty"),
        ("plain", ""),
        ("", "unclosed quote: it begins in this row and never ends"),
        ("kept", ""),
    ]
    tsv = write(tmp_path / "a.tsv", 'text\tn\n"half quoted\t1\n')
    assert documents(tsv) == [('"half quoted', "")]
    assert [t for t, _ in documents(tsv, column="1")] == ["text", '"half quoted']
    with pytest.raises(UserError, match=r"a\.tsv: there is no column 'body' in its header; it has 'text', 'n'"):
        read([tsv], column="body")


def test_long_records_are_rejected_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.text.rows.RECORD_BYTES", 1000)
    small_blocks(monkeypatch, 64)
    for size, kind in ((500, ""), (5000, "record too long")):
        long = json.dumps({"text": "x" * size})
        assert kinds(documents(write(tmp_path / "a.jsonl", f'{long}\n{{"text": "b"}}\n'))) == [kind, ""]
        found = documents(write(tmp_path / "a.csv", f"text\n{'x' * size}\nb\n"))
        assert kinds(found) == [kind, ""] and found[-1] == ("b", "")
    # An unclosed quote loses its own line only.
    found = documents(write(tmp_path / "a.csv", 'text\n"' + "x\n" * 1000 + "b\n"))
    assert kinds(found)[0] == "unclosed quote" and found[1:] == [("x", "")] * 999 + [("b", "")]


def test_a_long_line_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"some words without end " * (1 << 20 >> 4))
    tracemalloc.start()
    try:
        length = sum(len(piece.text) for piece in read([path], "line"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert length == path.stat().st_size > 90e6
    assert peak < 16e6


@pytest.mark.parametrize("mode", ["line", "paragraph", "file"])
def test_reading_resumes_at_any_document(tmp_path: Path, mode: str) -> None:
    files = [
        write(tmp_path / "a.txt", b"one\n\n\xff\n\nthree\n\n"),
        write(tmp_path / "b.jsonl", '{"text": "four"}\n{}\n{"text": "six"}\n'),
        write(tmp_path / "c.csv", "text\nseven\neight\n"),
    ]
    whole = list(read(files, mode))
    for place, piece in enumerate(whole):
        start = (files.index(Path(piece.file)), piece.ordinal)
        assert list(read(files, mode, start=start)) == whole[place:]
    last = whole[-1]
    assert list(read(files, mode, start=(2, last.ordinal + 1))) == []


def test_find_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("in/b.txt", "in/a.jsonl.gz", "in/deep/c.csv", "in/readme.md", "in/train.de.gz", "z.tsv"):
        write(tmp_path / name, "x")
    names = lambda *paths: [str(path) for path in find_files(paths)]  # noqa: E731
    assert names("z.tsv", "in") == ["z.tsv", "in/a.jsonl.gz", "in/b.txt", "in/deep/c.csv"]
    assert names("in/*.txt", "in/b.txt", "**/*.csv") == ["in/b.txt", "in/deep/c.csv"]
    assert names("in/train.de.gz") == names("in/*.de.gz") == ["in/train.de.gz"], (
        "parallel texts have a language code as their suffix"
    )
    assert [piece.text for piece in read([Path("in/train.de.gz")])] == ["x"]
    assert names(str(tmp_path / "in" / "*.txt")) == [str(tmp_path / "in" / "b.txt")]
    for given_path, message in {
        "in/b.tx": r"in/b\.tx: no such file or folder; did you mean in/b\.txt\?",
        "nowhere": "nowhere: no such file or folder; check the path",
        "in/readme.md": r"in/readme\.md: unknown kind of file; Keel reads \.txt",
        "*.nothing": r"matches no file",
    }.items():
        with pytest.raises(UserError, match=message):
            find_files([given_path])
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="none: no file in this folder"):
        find_files(["none"])
    with pytest.raises(UserError, match="documents = 'word'; choose one of"):
        read([Path("z.tsv")], documents="word")


def test_progress_counts_bytes_on_disk(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": f"text {n * 7919}"}) + "\n" for n in range(20000))
    path = write(tmp_path / "a.jsonl.gz", lines)
    pieces: list[Piece] = list(read([path]))
    positions = [piece.position for piece in pieces]
    assert positions == sorted(positions)
    assert 0 < positions[0] < positions[-1] <= path.stat().st_size
