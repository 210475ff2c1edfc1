"""Reads one file as bytes: decompressed, in blocks or in lines, with bounded memory.

In: a path, plain or .gz. Out: blocks of bytes without the UTF-8 byte-order mark; or lines with their byte offset in the
decompressed file. A file that is not text (binary, UTF-16, damaged gzip) raises `Unreadable`, after everything before
the damage has been yielded.

Notable choice: there is no maximum line length. A long line is yielded in several parts, so that the caller decides
what is too long: a .txt document never is, a JSON record can be.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from keel.errors import UserError

BLOCK = 1 << 18
HEAD = 1 << 13  # a file is binary if its first HEAD bytes contain a NUL
PART = 1 << 20  # a line longer than this is yielded in parts


class Unreadable(Exception):
    """The rest of the file is not text. The message is the reason, `kind: detail`."""

    offset = 0  # start of the line that could not be read to its end


class TextSource:
    """A file being read. `position` is how many bytes of the file on disk have been read, for progress bars."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.start = 0  # where the text begins: after the byte-order mark, if there is one

    def blocks(self) -> Iterator[bytes]:
        try:
            raw = self.path.open("rb", buffering=0)
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be opened ({error.strerror}); check the path and permissions"
            ) from None
        with raw:
            stream = gzip.GzipFile(fileobj=raw, mode="rb") if self.path.suffix == ".gz" else raw
            yield from self._text(stream, raw)

    def _text(self, stream: IO[bytes] | gzip.GzipFile, raw: IO[bytes]) -> Iterator[bytes]:
        head, damage = b"", None
        try:
            while len(head) < HEAD and (block := self._read(stream, raw)):
                head += block
        except Unreadable as unreadable:
            damage = unreadable
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise Unreadable("UTF-16 file: convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`")
        if b"\0" in head[:HEAD]:
            raise Unreadable(f"binary file: NUL byte at offset {head.index(0)}; convert it to UTF-8 text")
        if head.startswith(codecs.BOM_UTF8):
            self.start = len(codecs.BOM_UTF8)
        if len(head) > self.start:
            yield head[self.start :]
        if damage:
            raise damage
        while block := self._read(stream, raw):
            yield block

    def _read(self, stream: IO[bytes] | gzip.GzipFile, raw: IO[bytes]) -> bytes:
        try:
            # read1, because read would discard the data before the damage.
            block = stream.read1(BLOCK) if isinstance(stream, gzip.GzipFile) else stream.read(BLOCK)
        except EOFError:
            raise Unreadable("damaged gzip: the file ends too early") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise Unreadable(f"damaged gzip: {error}") from None
        except OSError as error:
            raise Unreadable(f"read error: {error.strerror}") from None
        self.position = raw.tell()
        return block

    def lines(self) -> Iterator[tuple[int, bytes, bool]]:
        """Yields (offset, bytes without the newline, whether the line ends here). The last line may have no newline."""
        held: list[bytes] = []
        offset, size, within = -1, 0, False
        try:
            for block in self.blocks():
                offset = self.start if offset < 0 else offset
                *ended, rest = block.split(b"\n")
                for line in ended:
                    if held:
                        line = b"".join((*held, line))
                        held, size = [], 0
                    yield offset, line, True
                    offset += len(line) + 1
                    within = False
                if rest:
                    held.append(rest)
                    size += len(rest)
                if size > PART:
                    yield offset, b"".join(held), False
                    offset += size
                    held, size, within = [], 0, True
        except Unreadable as unreadable:
            unreadable.offset = max(offset, 0)
            raise
        if held or within:
            yield offset, b"".join(held), True
