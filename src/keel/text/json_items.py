"""Reads the items of a list inside one large JSON object, one by one: {"version": "1.1", "data": [item, item, ...]}.

In: a .json file, also .gz, and the key of the list. Out: the items, parsed; other keys are skipped.

Notable choices
- The buffer holds one item or one skipped value, not the file. Where it ends inside a value, twice as much is read and
  the value parsed again, which costs at most twice the time. A value of more than ITEM_CHARACTERS is an error.
- Invalid bytes are kept as lone surrogates, so that whoever reads an item can reject only what contains them.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.text.blocks import TextSource, Unreadable
from keel.text.tables import empty_file

ITEM_CHARACTERS = 64 << 20
LONGEST_TOKEN = 16  # other than strings and numbers: the longest is -Infinity
WHITE_SPACE = " \t\n\r"


def json_items(path: Path, key: str, format: str) -> Iterator[Any]:
    """The items; `format` is the name of the file's format, for error messages."""
    text = _Text(path)
    expected = f'{path}: not {format}; expected {{"{key}": [...]}}, found'
    if not text.peek():
        raise empty_file(path)
    if text.peek() != "{":
        text.value()  # an error if it is no JSON at all
        raise UserError(f"{expected} no object")
    keys, found = list[str](), False
    for name in text.members("{", "}"):
        keys.append(name)
        if name == key and text.peek() == "[" and not found:
            found = True
            for _ in text.members("[", "]"):
                yield text.value()
        else:
            text.value()
    if text.peek():
        raise text.error("Extra data")
    if not found:
        raise UserError(f"{expected} an object with the keys {keys!r:.60}")


class _Text:
    """A JSON text that is read as far as it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks = self._decoded()
        self.buffer, self.place = "", 0
        self.lines, self.column = 1, 1  # where the buffer begins in the file
        self.scan = json.JSONDecoder().raw_decode

    def _decoded(self) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        try:
            for block in TextSource(self.path, bounded=True).blocks():
                yield decode(block)
        except Unreadable as unreadable:
            raise UserError(f"{self.path}: {unreadable}") from None
        yield decode(b"", final=True)

    def more(self, size: int) -> bool:
        """Forgets what was parsed, and reads until the rest has at least `size` characters; False: the file ends."""
        gone = self.buffer[: self.place]
        newlines = gone.count("\n")
        self.lines += newlines
        self.column = len(gone) - gone.rfind("\n") if newlines else self.column + len(gone)
        parts = [self.buffer[self.place :]]
        self.place, held, before = 0, len(parts[0]), len(parts[0])
        while held < size and (part := next(self.blocks, None)) is not None:
            parts.append(part)
            held += len(part)
        self.buffer = "".join(parts)
        return held > before

    def peek(self) -> str:
        """The next character that is not white space; empty at the end of the file."""
        while True:
            while self.place < len(self.buffer) and self.buffer[self.place] in WHITE_SPACE:
                self.place += 1
            if self.place < len(self.buffer):
                return self.buffer[self.place]
            if not self.more(1):
                return ""

    def members(self, opening: str, closing: str) -> Iterator[str]:
        """The key of each member of an object, or "" for each item of a list; the caller reads the value."""
        self.take(opening)
        first = True
        while self.peek() != closing:
            if not first:
                self.take(",")
            first = False
            key = ""
            if opening == "{":
                if self.peek() != '"':
                    raise self.error("Expecting property name enclosed in double quotes")
                key = self.value()
                self.take(":")
            yield key
        self.take(closing)

    def take(self, wanted: str) -> None:
        if self.peek() != wanted:
            raise self.error(f"Expecting '{wanted}'")
        self.place += 1

    def value(self) -> Any:
        """Parses the next value."""
        if not self.peek():
            raise self.error("Expecting value")
        while True:
            try:
                value, end = self.scan(self.buffer, self.place)
            except json.JSONDecodeError as error:
                length = error.pos - self.place
                if self._may_continue(error) and self._longer():
                    continue
                self.place += length
                raise self.error(error.msg) from None
            except (ValueError, RecursionError) as error:
                raise UserError(f"{self.path}: not JSON ({error})") from None
            length = end - self.place
            if end == len(self.buffer) and self._longer():
                continue  # it may be the beginning of a longer number
            self.place += length
            return value

    def _longer(self) -> bool:
        return self.more(2 * (len(self.buffer) - self.place) + 1)

    def _may_continue(self, error: json.JSONDecodeError) -> bool:
        """Whether a value that could not be parsed may only be cut off by the end of the buffer."""
        if len(self.buffer) - self.place > ITEM_CHARACTERS:
            raise UserError(
                f"{self.path}, line {self.lines}: one item of more than {ITEM_CHARACTERS >> 20} million characters;"
                " split it"
            )
        return error.msg.startswith("Unterminated string") or error.pos > len(self.buffer) - LONGEST_TOKEN

    def error(self, message: str) -> UserError:
        before = self.buffer[: self.place]
        newlines = before.count("\n")
        column = len(before) - before.rfind("\n") if newlines else self.column + len(before)
        hint = "; for one object per line the suffix is .jsonl" if message == "Extra data" else ""
        return UserError(f"{self.path}, line {self.lines + newlines}, column {column}: not JSON ({message}){hint}")
