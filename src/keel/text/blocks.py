"""Reads one file as bytes: decompressed, in blocks or in lines, with bounded memory.

In: a path, plain or .gz. Out: blocks of bytes without the UTF-8 byte-order mark; or lines with their byte offset in the
decompressed file. A file that is not text (binary, UTF-16, damaged gzip) raises `Unreadable`, after everything before
the damage has been yielded.

Notable choices
- There is no maximum line length. A long line is yielded in several parts, so that the caller decides what is too long:
  a .txt document never is, a JSON record can be.
- A file that was truncated, extended or overwritten while it was read raises `UserError`, and so does a disk that
  cannot be read: otherwise the rest of the text would be lost without a word.
"""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from keel.errors import UserError

BLOCK = 1 << 18
HEAD = 1 << 13  # a file is binary if its first HEAD bytes contain a NUL
PART = 1 << 20  # a line longer than this is yielded in parts
UNPACKED = 2 << 30  # what a .gz with labelled data may decompress to,
UNPACKED_FREELY = 100 << 20  # and above this,
UNPACKED_RATIO = 100  # at most this many times its size

_RESTORE = "restore it, let nothing write to it, and run the same command again"


class Unreadable(Exception):
    """The rest of the file is not text. The message is the reason, `kind: detail`."""

    offset = 0  # start of the line that could not be read to its end


def check_regular(path: Path) -> None:
    """Raises if reading could wait for ever, or never end: a pipe, a device or a socket."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a regular file but a pipe, a device or a socket; save its content as a file")


class TextSource:
    """A file being read. `position` is how many bytes of the file on disk have been read, for progress bars.

    `size` is what the file had when the work was planned; default: when it is opened. `bounded` refuses a .gz whose
    content is too large to be kept in memory.
    """

    def __init__(self, path: Path, size: int | None = None, *, bounded: bool = False) -> None:
        self.path = path
        self.size = size
        self.bounded = bounded
        self.position = 0
        self.start = 0  # where the text begins: after the byte-order mark, if there is one

    def blocks(self) -> Iterator[bytes]:
        """Blocks of text; raises `Unreadable` if the file is not text."""
        return self._text(self.raw_blocks())

    def raw_blocks(self) -> Iterator[bytes]:
        """Blocks of any file, decompressed."""
        try:
            check_regular(self.path)
            raw = self.path.open("rb", buffering=0)
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be opened ({error.strerror}); check the path and permissions"
            ) from None
        with raw:
            before = os.fstat(raw.fileno())
            self._check_size(before.st_size if self.size is None else self.size, before.st_size)
            stream = gzip.GzipFile(fileobj=raw, mode="rb") if self.path.suffix == ".gz" else raw
            try:
                total = 0
                while block := self._read(stream, raw):
                    total += len(block)
                    if self.bounded and stream is not raw:
                        self._check_total(total, before.st_size)
                    yield block
            except Unreadable:
                self._check_same(before, os.fstat(raw.fileno()))
                raise
            self._check_same(before, os.fstat(raw.fileno()))

    def _check_same(self, before: os.stat_result, after: os.stat_result) -> None:
        self._check_size(before.st_size, after.st_size)
        if before.st_mtime_ns != after.st_mtime_ns:
            raise UserError(f"{self.path}: was written to while it was read; {_RESTORE}")

    def _check_size(self, before: int, after: int) -> None:
        if before != after:
            raise UserError(f"{self.path}: had {before:,} bytes at first, and {after:,} while it was read; {_RESTORE}")

    def _check_total(self, total: int, size: int) -> None:
        if total > UNPACKED or (total > UNPACKED_FREELY and total > UNPACKED_RATIO * size):
            raise UserError(
                f"{self.path}: {size:,} bytes that decompress to more than {total >> 20:,} MB; labelled data are kept"
                " in memory, so split the file, or decompress it yourself if you trust it"
            )

    def _text(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        head, damage = b"", None
        try:
            while len(head) < HEAD and (block := next(blocks, b"")):
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
        yield from blocks

    def _read(self, stream: IO[bytes] | gzip.GzipFile, raw: IO[bytes]) -> bytes:
        try:
            # read1, because read would discard the data before the damage.
            block = stream.read1(BLOCK) if isinstance(stream, gzip.GzipFile) else stream.read(BLOCK)
        except EOFError:
            raise Unreadable("damaged gzip: the file ends too early") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise Unreadable(f"damaged gzip: {error}") from None
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be read after byte {self.position:,} ({error.strerror or error}); check the disk,"
                " or restore the file from a copy, and run the same command again"
            ) from None
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
