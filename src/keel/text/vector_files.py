"""Reads and writes word vectors in word2vec's text and binary formats, each also .gz.

In: a file. Out: words and their vectors, in the order of the file. Both formats begin with a line that gives the number
of words and the number of values per word. Each word is followed by its values: as decimals up to the end of the line,
or as that many floats.

text    word2vec.c, fastText, gensim; a space before the newline is allowed, because the first two write one
binary  word2vec.c writes a newline after each vector, gensim does not

Notable choices
- Nothing is guessed: a row that is too short or too long, data after the last word, and a value that is not a number
  are errors that name the line. A reader that accepts them assigns the values of one word to another.
- Text or binary is decided by what follows the first word: decimals up to the end of the line, or bytes that are not
  printable.
- If a word occurs twice, the first vector is kept, as in gensim; the number of rows skipped is reported.
"""

from __future__ import annotations

import contextlib
import gzip
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keel.errors import UserError
from keel.text.blocks import TextSource, Unreadable
from keel.text.tables import check_file

HEADER_BYTES = 100
WORD_BYTES = 10_000  # a longer word is an error
PRINTABLE = re.compile(rb"[\t\r\n\x20-\x7e]*")
DECIMAL = re.compile(rb"[0-9.eE+-]+")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Content = bytes | mmap.mmap


@dataclass(frozen=True)
class VectorFile:
    """V words with a vector each."""

    words: list[str]
    vectors: np.ndarray  # (V, W) float32
    doubled: int  # rows that were skipped because their word has a vector already


def write_vectors(path: Path, words: Sequence[str], vectors: np.ndarray, binary: bool, packed: bool = False) -> None:
    with gzip.open(path, "wb") if packed else path.open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            if binary:
                file.write(f"{word} ".encode() + vector.astype("<f4").tobytes() + b"\n")
            else:
                file.write(f"{word} {' '.join(repr(float(x)) for x in vector)}\n".encode())


def read_vectors(path: Path) -> VectorFile:
    check_file(path)
    with _content(path) as content:
        count, width, start = _header(path, content)
        # A value takes at least two bytes, and so does a word: a wrong count must not allocate all memory.
        if count * (2 * width + 2) > len(content) - start + 1:
            raise UserError(f"{path}: too short for the {count:,} words of {width:,} values that line 1 declares")
        rows = np.empty((count, width), np.float32)
        words = (_read_text if _is_text(content, start, width) else _read_binary)(path, content, start, rows)
    first = sorted({word: number for number, word in reversed(list(enumerate(words)))}.values())  # row of each word
    doubled = count - len(first)
    return VectorFile([words[n] for n in first] if doubled else words, rows[first] if doubled else rows, doubled)


@contextlib.contextmanager
def _content(path: Path) -> Iterator[Content]:
    """All bytes of a file; a plain one is memory-mapped."""
    if path.suffix == ".gz" or not path.stat().st_size:
        try:
            content = b"".join(TextSource(path, bounded=True).raw_blocks())
        except Unreadable as unreadable:
            raise UserError(f"{path}: {unreadable}; restore it from a copy") from None
        yield content
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def _header(path: Path, content: Content) -> tuple[int, int, int]:
    """The number of words, the number of values per word, and where the first word begins."""
    end = content.find(b"\n", 0, HEADER_BYTES)
    try:
        count, width = (int(part) for part in content[: max(end, 0)].split())
    except ValueError:
        raise UserError(
            f"{path}: does not begin with the number of words and of their values. Is it a file of word vectors? "
            "If only that line is missing, as in GloVe's files, put one such as `400000 100` before the first"
        ) from None
    if min(count, width) < 1:
        raise UserError(f"{path}, line 1: {count} words of {width} values; both numbers must be at least 1")
    return count, width, end + 1


def _is_text(content: Content, start: int, width: int) -> bool:
    """Whether the first word is followed by decimals on its line, or by printable bytes where floats would be."""
    first = content.find(b" ", start, start + WORD_BYTES) + 1
    end = content.find(b"\n", first)
    values = content[first : end if end >= 0 else len(content)].split(maxsplit=width)
    decimals = len(values) == width and all(DECIMAL.fullmatch(value) for value in values)
    return decimals or PRINTABLE.fullmatch(content[first : first + 4 * width]) is not None


def _read_text(path: Path, content: Content, start: int, rows: np.ndarray) -> list[str]:
    count, width = rows.shape
    words = []
    for number, row in enumerate(rows):
        where = f"{path}, line {number + 2}"
        end = content.find(b"\n", start)
        word, *values = content[start : end if end >= 0 else len(content)].split() or [b""]
        if not word:
            raise UserError(f"{where}: no word, though line 1 declares {count:,} of them; {number:,} were read")
        if len(values) != width:
            raise UserError(f"{where}: expected a word and {width} numbers, as line 1 says, but found {len(values)}")
        try:
            words.append(word.decode("utf-8"))
            with np.errstate(over="ignore"):  # an overflow gives inf, which is reported below
                row[:] = [float(value) for value in values]
        except UnicodeDecodeError:
            raise UserError(f"{where}: the word is not UTF-8; convert the file") from None
        except ValueError:
            raise UserError(f"{where}: expected a word and {width} numbers") from None
        if not np.isfinite(row).all():
            raise UserError(f"{where}: '{words[-1]}' has values that are not numbers")
        start = end + 1 if end >= 0 else len(content)
    _check_end(path, content, start, count)
    return words


def _read_binary(path: Path, content: Content, start: int, rows: np.ndarray) -> list[str]:
    count, width = rows.shape
    words = []
    for number, row in enumerate(rows):
        where = f"{path}: word {number + 1:,} of {count:,}"
        end = content.find(b" ", start, start + WORD_BYTES)
        values = content[end + 1 : end + 1 + 4 * width]
        if end < 0 or len(values) < 4 * width:
            raise UserError(f"{path}: ends within word {number + 1:,} of {count:,}; the file is incomplete")
        words.append(content[start:end].decode("utf-8", errors="replace").lstrip("\n"))
        if not words[-1] or CONTROL.search(words[-1]):
            raise UserError(f"{where} is not a word; does each have {width} values, as line 1 says?")
        row[:] = np.frombuffer(values, "<f4")
        if not np.isfinite(row).all():
            raise UserError(f"{where}, '{words[-1]}', has values that are not numbers")
        start = end + 1 + 4 * width
    _check_end(path, content, start, count)
    return words


def _check_end(path: Path, content: Content, start: int, count: int) -> None:
    if content[start:].strip():
        raise UserError(f"{path}: continues after the {count:,} words that line 1 declares; correct that number")
