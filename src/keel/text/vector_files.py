"""Word vectors as other programs write them: word2vec's text and binary formats, each also .gz.

In: a file. Out: words and their vectors, in the file's order. Both formats begin with a line that counts the words and
the values of each; then come a word and its values, as decimals up to the end of a line, or as so many floats.

text    word2vec.c, fastText, gensim; a space before the newline is allowed, for the first two write one
binary  word2vec.c puts a newline behind each vector, gensim none

Notable choices
- Nothing is guessed: a row that is too short or too long, a file that goes on after its last word, and a value that is
  not a number are errors with their line. A reader that lets them pass gives a word the values of another.
- Which of the two it is, what follows the first word says: decimals up to the end of the line, or bytes that are not
  even printable.
- Of a word that stands there twice the first vector counts, as in gensim; how many were passed over is told.
"""

from __future__ import annotations

import contextlib
import gzip
import mmap
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keel.errors import UserError
from keel.text.tables import check_file

HEADER_BYTES = 100
WORD_BYTES = 10_000  # no word is longer
PRINTABLE = re.compile(rb"[\t\r\n\x20-\x7e]*")
DECIMAL = re.compile(rb"[0-9.eE+-]+")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Content = bytes | mmap.mmap


@dataclass(frozen=True)
class VectorFile:
    """V words with a vector each."""

    words: list[str]
    vectors: np.ndarray  # (V, W) float32
    doubled: int  # rows of words that had one before


def write_vectors(path: Path, words: Sequence[str], vectors: np.ndarray, binary: bool) -> None:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
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
        # A value takes two bytes at least, and so does a word: a false count must not ask for all memory there is.
        if count * (2 * width + 2) > len(content) - start + 1:
            raise UserError(f"{path}: ends too early for the {count:,} words of {width:,} values that line 1 promises")
        rows = np.empty((count, width), np.float32)
        words = (_read_text if _is_text(content, start, width) else _read_binary)(path, content, start, rows)
    fresh = sorted({word: number for number, word in reversed(list(enumerate(words)))}.values())
    doubled = count - len(fresh)
    return VectorFile([words[n] for n in fresh] if doubled else words, rows[fresh] if doubled else rows, doubled)


@contextlib.contextmanager
def _content(path: Path) -> Iterator[Content]:
    """All bytes; those of a plain file stay on disk until they are looked at."""
    try:
        with path.open("rb") as file:
            if path.suffix == ".gz":
                yield gzip.decompress(file.read())
            elif not path.stat().st_size:
                yield b""
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    yield mapped
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip ({error}); restore it from a copy") from None


def _header(path: Path, content: Content) -> tuple[int, int, int]:
    """Words, values of each, and where the first word begins."""
    end = content.find(b"\n", 0, HEADER_BYTES)
    try:
        count, width = (int(part) for part in content[: max(end, 0)].split())
    except ValueError:
        raise UserError(
            f"{path}: does not begin with the number of words and of their values. Is it a file of word vectors? "
            "If only that line is missing, as in GloVe's files, put one such as `400000 100` before the first"
        ) from None
    if min(count, width) < 1:
        raise UserError(f"{path}, line 1: {count} words of {width} values; both numbers must be 1 at least")
    return count, width, end + 1


def _is_text(content: Content, start: int, width: int) -> bool:
    """Whether the first word has its values as decimals in its line, or printable bytes where floats would be."""
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
            raise UserError(f"{where}: no word, though line 1 promises {count:,} of them; {number:,} were read")
        if len(values) != width:
            raise UserError(f"{where}: expected a word and {width} numbers, as line 1 says, but found {len(values)}")
        try:
            words.append(word.decode("utf-8"))
            with np.errstate(over="ignore"):  # an overflow is no number, which is told below
                row[:] = [float(value) for value in values]
        except UnicodeDecodeError:
            raise UserError(f"{where}: the word is not UTF-8; convert the file") from None
        except ValueError:
            raise UserError(f"{where}: expected a word and {width} numbers") from None
        if not np.isfinite(row).all():
            raise UserError(f"{where}: '{words[-1]}' has values that are not numbers")
        start = end + 1 if end >= 0 else len(content)
    _nothing_behind(path, content, start, count)
    return words


def _read_binary(path: Path, content: Content, start: int, rows: np.ndarray) -> list[str]:
    count, width = rows.shape
    words = []
    for number, row in enumerate(rows):
        where = f"{path}: word {number + 1:,} of {count:,}"
        end = content.find(b" ", start, start + WORD_BYTES)
        values = content[end + 1 : end + 1 + 4 * width]
        if end < 0 or len(values) < 4 * width:
            raise UserError(f"{path}: ends within word {number + 1:,} of {count:,}; the file is not whole")
        words.append(content[start:end].decode("utf-8", errors="replace").lstrip("\n"))
        if not words[-1] or CONTROL.search(words[-1]):
            raise UserError(f"{where} is none; are there {width} values for each, as line 1 says?")
        row[:] = np.frombuffer(values, "<f4")
        if not np.isfinite(row).all():
            raise UserError(f"{where}, '{words[-1]}', has values that are not numbers")
        start = end + 1 + 4 * width
    _nothing_behind(path, content, start, count)
    return words


def _nothing_behind(path: Path, content: Content, start: int, count: int) -> None:
    if content[start:].strip():
        raise UserError(f"{path}: goes on after the {count:,} words that line 1 promises; correct that number")
