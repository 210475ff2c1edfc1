"""Reads documents from files: .txt, .jsonl, .csv and .tsv, each also .gz; and .parquet.

In: files, folders, globs. Out: `Piece`s of documents in the order of the files, with bounded memory, and for every
document that cannot be read a piece with the reason (`kind: detail`). Nothing is dropped silently.

.txt       one document per file, per line, or per paragraph (separated by blank lines), of any length. A file that is
           given by its name may also end in a language code: train.en
.jsonl     the string under the key `column` of each line
.csv .tsv  the column named `column` in the header row; a number counts columns from 1 and means there is no header row.
           .csv is the excel dialect (quoted fields may contain newlines), .tsv has no quoting at all
.parquet   the column named `column`; offsets are numbers of rows

Notable choices
- Bytes are decoded document by document, so invalid UTF-8 rejects one document and not the rest of the file.
- Where a long document is split into pieces depends on its text only, not on how it was read: same text, same pieces.
"""

from __future__ import annotations

import codecs
import difflib
import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from keel.errors import UserError
from keel.text.blocks import PART, TextSource, Unreadable, check_regular
from keel.text.records import (
    check_column,
    check_parquet_column,
    decode,
    json_texts,
    not_utf8,
    parquet_texts,
    table_texts,
)

PIECE_CHARACTERS = 1 << 20
SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
_LANGUAGES = (
    "ar bg bn ca cs da de el en es et fa fi fr ga he hi hr hu id is it ja kk ko lt lv ms nl no pl pt ro ru sk sl sr sv "
    "ta th tr uk ur vi zh"
)
LANGUAGE_SUFFIXES = frozenset(f".{code}" for code in _LANGUAGES.split())
DOCUMENTS = ("auto", "file", "line", "paragraph")
CUT_WINDOW = 20_000  # characters by which a piece may be shortened to end with a sentence or a word

_SENTENCE_END = re.compile(r"[.!?]\s|[。！？；]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A document, or a part of a long one."""

    text: str
    file: str
    ordinal: int  # the document's number inside its file, rejected ones included
    offset: int  # byte offset of the document in the decompressed file
    first: bool
    last: bool
    rejected: str = ""  # why the document is rejected; its earlier pieces must be discarded
    position: int = 0  # how many bytes of the file on disk have been read


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files that the paths name, each once: in the given order, sorted within a folder or a glob."""
    files: dict[Path, None] = {}  # an ordered set
    for name in paths:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p) in SUFFIXES)
            if not inside:
                raise UserError(f"{name}: no file in this folder ends in {_known()}; give a folder that has some")
            files |= dict.fromkeys(inside)
        elif path.exists():
            check_regular(path)
            if not _kind(path):
                raise UserError(f"{name}: unknown kind of file; Keel reads {_known()}, and texts named like train.en")
            files[path] = None
        else:
            files |= dict.fromkeys(_matching(name))
    if not files:
        raise UserError(f"no text was given; name files, folders or globs of {_known()}")
    return list(files)


def _matching(pattern: str) -> list[Path]:
    if any(sign in pattern for sign in "*?["):
        matches = [Path(name) for name in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - absolute patterns too
        files = [p for m in matches for p in (m.rglob("*") if m.is_dir() else [m])]
        wanted = {*SUFFIXES, _suffix(Path(pattern))} if _kind(Path(pattern)) else SUFFIXES  # *.en
        readable = sorted({p for p in files if p.is_file() and _suffix(p) in wanted})
        if not readable:
            raise UserError(f"{pattern}: matches no file that ends in {_known()}; check the pattern")
        return readable
    path = Path(pattern)
    neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, neighbours, n=3)
    hint = f"did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else "check the path"
    raise UserError(f"{pattern}: no such file or folder; {hint}")


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _kind(path: Path) -> str:
    """The suffix that determines how to read the file, without .gz; empty if Keel does not read it."""
    suffix = _suffix(path)
    return ".txt" if suffix in LANGUAGE_SUFFIXES else suffix if suffix in SUFFIXES else ""


def _known() -> str:
    return ", ".join(SUFFIXES) + " (also with .gz)"


def read(
    files: Sequence[Path], documents: str = "auto", column: str = "text", start: tuple[int, int] = (0, 0)
) -> Iterator[Piece]:
    """All documents of all files. `start`: (index of the file, ordinal of the document) to resume from."""
    if documents not in DOCUMENTS:
        raise UserError(f"documents = '{documents}'; choose one of {', '.join(DOCUMENTS)}")
    for path in files:
        if _kind(path) in (".csv", ".tsv"):
            check_column(path, _kind(path), column)
        elif _kind(path) == ".parquet":
            check_parquet_column(path, column)
    return _read(files, [_size(path) for path in files], documents, column, start)


def _size(path: Path) -> int | None:
    """The size of a file before the first is read; None if it is missing, which is reported when it is opened."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _read(
    files: Sequence[Path], sizes: Sequence[int | None], documents: str, column: str, start: tuple[int, int]
) -> Iterator[Piece]:
    first_file, first_document = start
    for index in range(first_file, len(files)):
        skipped = first_document if index == first_file else 0
        pieces = _read_file(TextSource(files[index], sizes[index]), documents, column)
        yield from pieces if not skipped else (p for p in pieces if p.ordinal >= skipped)


def _read_file(source: TextSource, documents: str, column: str) -> Iterator[Piece]:
    kind = _kind(source.path)
    if kind == ".jsonl":
        pieces = _read_records(source, json_texts(source, column))
    elif kind == ".parquet":
        pieces = _read_records(source, parquet_texts(source, column))
    elif kind in (".csv", ".tsv"):
        pieces = _read_records(source, table_texts(source, column, kind))
    else:
        parts = {"line": _lines, "paragraph": _paragraphs}.get(documents, _whole_file)
        pieces = _read_parts(source, parts(source))
    number = -1
    for piece in pieces:
        number = piece.ordinal
        yield piece
    if number < 0:
        yield Piece("", str(source.path), 0, 0, True, True, "empty", source.position)


# ---------------------------------------------------------------------------------------------------------------------
# .txt: documents of any length, in parts: (offset, bytes, whether the document ends here)


def _whole_file(source: TextSource) -> Iterator[tuple[int, bytes, bool]]:
    offset = -1
    for block in source.blocks():
        offset = source.start if offset < 0 else offset
        yield offset, block, False
        offset += len(block)
    if offset >= 0:
        yield offset, b"", True


def _lines(source: TextSource) -> Iterator[tuple[int, bytes, bool]]:
    for offset, line, ended in source.lines():
        yield offset, line.removesuffix(b"\r") if ended else line, ended


def _paragraphs(source: TextSource) -> Iterator[tuple[int, bytes, bool]]:
    """Joins lines up to the next blank one, in parts of about PART bytes, so that a paragraph may be of any length."""
    held: list[bytes] = []
    size, start, within, in_line = 0, 0, False, False
    try:
        for offset, line, ended in source.lines():
            blank = ended and not in_line and not line.strip()
            if blank:
                if held or within:
                    yield start, b"".join(held), True
                held, size, within = [], 0, False
                continue
            joined = (held or within) and not in_line  # a newline separates it from the line before
            start = start if held else offset - bool(joined)
            held += (b"\n", line) if joined else (line,)
            in_line = not ended
            size += len(line) + 1
            if size > PART:
                part = b"".join(held)
                yield start, part, False
                start += len(part)  # the offset of the document's end, if nothing follows
                held, size, within = [], 0, True
    except Unreadable as unreadable:
        unreadable.offset = start if held else unreadable.offset
        raise
    if held or within:
        yield start, b"".join(held), True


def _read_parts(source: TextSource, parts: Iterator[tuple[int, bytes, bool]]) -> Iterator[Piece]:
    """Decodes parts and cuts them into pieces, one document at a time."""
    file, ordinal = str(source.path), 0
    document: _LongDocument | None = None
    try:
        for offset, data, ended in parts:
            if document is None and ended and len(data) <= PIECE_CHARACTERS:  # the common case
                text, reason = decode(data, offset)
                yield Piece(text, file, ordinal, offset, True, True, reason, source.position)
                ordinal += 1
                continue
            document = document or _LongDocument(source, ordinal, offset)
            yield from document.add(data, offset, ended)
            if ended:
                document, ordinal = None, ordinal + 1
    except Unreadable as unreadable:
        if document is None:
            yield Piece("", file, ordinal, unreadable.offset, True, True, str(unreadable), source.position)
        else:
            yield from document.reject(str(unreadable))


class _LongDocument:
    """A document that arrives in parts: decoded incrementally and buffered until a piece is complete."""

    def __init__(self, source: TextSource, ordinal: int, offset: int) -> None:
        self.source = source
        self.ordinal = ordinal
        self.offset = offset
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""
        self.emitted = False  # whether a piece of it has been yielded
        self.rejected = False

    def add(self, data: bytes, offset: int, ended: bool) -> Iterator[Piece]:
        if self.rejected:
            return
        try:
            self.text += self.decoder.decode(data, final=ended)
        except UnicodeDecodeError as error:
            held_before = len(error.object) - len(data)
            reason = not_utf8(error.object[error.start], offset - held_before + error.start)
            yield from self.reject(reason)
            return
        while len(self.text) > PIECE_CHARACTERS:
            cut = _cut(self.text)
            yield from self._emit(self.text[:cut], last=False)
            self.text = self.text[cut:]
        if not ended:
            return
        if self.emitted or self.text.strip():
            yield from self._emit(self.text, last=True)
        else:
            yield from self.reject("empty")

    def _emit(self, text: str, last: bool) -> Iterator[Piece]:
        if last or not text.isspace():
            yield self._piece(text, last, "")
            self.emitted = True

    def reject(self, reason: str) -> Iterator[Piece]:
        if not self.rejected:
            self.rejected = True
            yield self._piece("", True, reason)

    def _piece(self, text: str, last: bool, reason: str) -> Piece:
        source = self.source
        first = not self.emitted
        return Piece(text, str(source.path), self.ordinal, self.offset, first, last, reason, source.position)


def _cut(text: str) -> int:
    """Where to end a piece: after the last newline, else sentence end, else white space before PIECE_CHARACTERS."""
    low = max(1, PIECE_CHARACTERS - CUT_WINDOW)
    newline = text.rfind("\n", low, PIECE_CHARACTERS)
    if newline >= 0:
        return newline + 1
    window = text[low:PIECE_CHARACTERS]
    for pattern in (_SENTENCE_END.finditer(window), re.finditer(r"\s", window)):
        ends = [match.end() for match in pattern]
        if ends:
            return low + ends[-1]
    return PIECE_CHARACTERS


# ---------------------------------------------------------------------------------------------------------------------
# .jsonl, .csv, .tsv: records, each parsed in one piece: (offset, text, reason to reject it)


def _read_records(source: TextSource, records: Iterator[tuple[int, str, str]]) -> Iterator[Piece]:
    file = str(source.path)
    for ordinal, (offset, text, reason) in enumerate(records):
        if not reason and (not text or text.isspace()):
            reason = "empty"
        if reason:
            yield Piece("", file, ordinal, offset, True, True, reason, source.position)
            continue
        start, first = 0, True
        while len(text) - start > PIECE_CHARACTERS:
            stop = start + _cut(text[start : start + PIECE_CHARACTERS])
            yield Piece(text[start:stop], file, ordinal, offset, first, False, "", source.position)
            start, first = stop, False
        yield Piece(text[start:] if start else text, file, ordinal, offset, first, True, "", source.position)
