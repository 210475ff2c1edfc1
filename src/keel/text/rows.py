"""Reads the rows of tables, .csv and .tsv, with bounded memory and in time proportional to the file.

In: the lines of a file. Out: a `Row` for each row, with its fields or the reason to reject it. Texts of a corpus and
labelled tables are both read here.

.csv  the excel dialect, strictly; quoted fields may contain newlines
.tsv  no quoting at all

Notable choices
- After a malformed row, reading continues with the line after the one where that row began. An unclosed quote therefore
  loses only its own line; a lenient parser would pair it with the next quote, however far away.
- No line is searched for a closing quote more than once. While the end of a row is searched for, every further line
  begins inside quotes; another row that begins in one of these lines and leaves a quote open reaches the same state,
  and so fails at the same place. It is rejected without searching again.
- A row has at most RECORD_BYTES bytes and ROW_LINES lines, because parsing takes several times its size in memory.
- Two stray quotes can make one valid row of all the rows between them. A row of at least SWALLOWED lines is rejected if
  nine in ten of the lines inside it are themselves rows with the same number of fields. With a single column, nothing
  distinguishes such lines from a text of many lines.
- Lines are decoded with invalid bytes kept as lone surrogates, so that an invalid byte rejects only its own row.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keel.text.blocks import TextSource, Unreadable

RECORD_BYTES = 32 << 20
ROW_LINES = 100_000
SWALLOWED = 20

TOO_LONG = f"record too long: more than {RECORD_BYTES >> 20} MB; split it, or give the text as .txt"


class Line(NamedTuple):
    number: int  # counted from 1
    offset: int
    data: bytes | None  # without the newline; None if it is longer than RECORD_BYTES

    @property
    def text(self) -> str:
        return (self.data or b"").decode("utf-8", "surrogateescape")


class Row(NamedTuple):
    line: int  # where it begins, counted from 1
    offset: int
    fields: list[str]  # empty for a blank line
    reason: str  # to reject it; empty if it can be used


def whole_lines(source: TextSource) -> Iterator[Line]:
    """The lines of a file. Those longer than RECORD_BYTES are read and discarded."""
    held: list[bytes] = []
    size, start, number = 0, 0, 0
    try:
        for offset, data, ended in source.lines():
            if ended and not size and len(data) <= RECORD_BYTES:  # the common case
                number += 1
                yield Line(number, offset, data)
                continue
            start = start if size else offset
            size += len(data)
            held.append(data)
            if size > RECORD_BYTES:
                held.clear()
            if ended:
                number += 1
                whole = None if size > RECORD_BYTES else held[0] if len(held) == 1 else b"".join(held)
                held, size = [], 0
                yield Line(number, start, whole)
    except Unreadable as unreadable:
        unreadable.offset = start if size else unreadable.offset
        raise


def table_rows(lines: Iterator[Line], kind: str) -> Iterator[Row]:
    """The rows of a .csv or a .tsv, blank lines included."""
    return _csv_rows(lines) if kind == ".csv" else _tsv_rows(lines)


def _tsv_rows(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        if line.data is None:
            yield Row(line.number, line.offset, [], TOO_LONG)
            continue
        text = line.text.strip("\r") and line.text.removesuffix("\r")
        yield Row(line.number, line.offset, text.split("\t") if text else [], "")


def _csv_rows(lines: Iterator[Line]) -> Iterator[Row]:
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_BYTES))
    feed = _RowLines(lines)
    reader = csv.reader(feed, strict=True)
    while feed.begin_row():
        fields: list[str] = []
        reason = ""
        try:
            fields = next(reader)
            reason = _swallowed(fields, feed.row)
        except _NoEnd as no_end:
            reason = str(no_end)
        except csv.Error as error:
            reason = _malformed(str(error), feed.row)
        except Unreadable as unreadable:
            unreadable.offset = feed.row[0].offset
            raise
        first = feed.row[0]
        if reason:
            fields = []
            feed.reject_row(reason)
        yield Row(first.number, first.offset, fields, reason)


class _NoEnd(Exception):
    """The row has no end within reach. The message is the reason to reject it."""


class _RowLines:
    """Lines for csv.reader that can be taken back. Not a generator: it must continue after raising."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.again: deque[Line] = deque()  # lines taken back from rejected rows
        self.row: list[Line] = []
        self.size = 0
        self.first: Line | None = None  # the first line of the row, until csv.reader takes it
        self.hopeless = 0  # a quote that is open at the end of a line before this one is never closed
        self.hopeless_reason = ""

    def begin_row(self) -> bool:
        """Whether there is another row."""
        self.row, self.size = [], 0
        self.first = self.again.popleft() if self.again else next(self.lines, None)
        return self.first is not None

    def reject_row(self, reason: str) -> None:
        last = self.row[-1].number
        if len(self.row) > 1 and last > self.hopeless:
            self.hopeless, self.hopeless_reason = last, reason
        self.again.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> _RowLines:
        return self

    def __next__(self) -> str:
        row, line = self.row, self.first
        if line is None:
            if row and row[-1].number < self.hopeless:
                raise _NoEnd(self.hopeless_reason)
            line = self.again.popleft() if self.again else next(self.lines, None)
            if line is None:
                raise StopIteration
        self.first = None
        row.append(line)
        data = line[2]
        if data is None and len(row) == 1:
            raise _NoEnd(TOO_LONG)
        self.size += 1 + len(data or b"")
        if data is None or self.size > RECORD_BYTES + 1 or len(row) > ROW_LINES:
            limits = f"{RECORD_BYTES >> 20} MB and {ROW_LINES:,} lines"
            raise _NoEnd(f"unclosed quote: it begins in this row and does not end within {limits}")
        return data.decode("utf-8", "surrogateescape") + "\n"


def _malformed(error: str, row: Sequence[Line]) -> str:
    if "unexpected end" in error:
        return "unclosed quote: it begins in this row and never ends"
    if "expected after" in error and len(row) > 1:
        return (
            f"unclosed quote: it begins in this row, and the next one, in line {row[-1].number}, does not end a field"
        )
    return f"malformed row: {error.partition(' - ')[0]}"  # the rest is advice for programmers


def _swallowed(fields: Sequence[str], row: Sequence[Line]) -> str:
    """Why the lines of a row are probably rows themselves; empty if they are not."""
    inside = row[1:-1]
    if len(inside) < SWALLOWED or len(fields) < 2:
        return ""
    alike = sum(_width(line.text) == len(fields) for line in inside)
    if 10 * alike < 9 * len(inside):
        return ""
    return f"unclosed quote: it begins in this row, and the next one, in line {row[-1].number}, is {alike:,} rows away"


def _width(text: str) -> int:
    try:
        return len(next(csv.reader([text], strict=True), []))
    except csv.Error:
        return 0
