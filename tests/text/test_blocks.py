"""Files as sources: what changes, fails, grows or never ends while it is read is reported in one line."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keel.errors import UserError
from keel.text import blocks
from keel.text.blocks import TextSource
from keel.text.conll import read_conll
from keel.text.parallel import two_files
from keel.text.readers import find_files, read
from keel.text.squad import read_squad
from keel.text.tables import read_table, unicode_lines
from keel.text.vector_files import read_vectors

LINE = b"some words, 1\n"
SUFFIXES = [".txt", ".jsonl", ".csv", ".tsv", ".txt.gz"]
LABELLED: dict[str, Callable[[Path], Any]] = {
    "a.csv": lambda path: read_table(path, {"text": "1"}),
    "a.jsonl": lambda path: read_table(path, {"text": "text"}),
    "a.conll": read_conll,
    "a.conllu": read_conll,
    "a.json": read_squad,
    "a.txt": unicode_lines,
    "a.vec": read_vectors,
}


def message(path: Path, action: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        found = action()
        if isinstance(found, Iterator):
            deque(found, maxlen=0)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text and ";" in text
    return text


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", ["truncate", "append", "overwrite"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, change: str
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 1 << 12)
    noise = os.urandom(40_000).hex().encode()
    path = write(tmp_path / f"a{suffix}", b"text\n" + b"\n".join(noise[n : n + 40] for n in range(0, len(noise), 40)))
    pieces = read([path], "line", column="1" if "sv" in suffix else "text")
    next(pieces)
    size = path.stat().st_size
    with path.open("r+b") as file:
        if change == "truncate":
            file.truncate(size // 2)
        else:
            file.seek(0 if change == "overwrite" else size)
            file.write(LINE)
    os.utime(path, ns=(0, 0))
    text = message(path, lambda: list(pieces))
    assert "run the same command again" in text
    assert (f"had {size:,} bytes at first" in text) == (change != "overwrite")


def test_a_file_that_changes_before_it_is_its_turn(tmp_path: Path) -> None:
    """Sizes are those from before the first file was read: that may have been hours ago."""
    first, second = (write(tmp_path / name, LINE * 10) for name in ("a.txt", "b.txt"))
    pieces = read([first, second], "line")
    next(pieces)
    second.write_bytes(LINE)
    assert f"had {10 * len(LINE)} bytes at first, and {len(LINE)}" in message(second, lambda: list(pieces))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    class Failing(io.FileIO):
        def read(self, size: int = -1, /) -> bytes:
            if self.tell() >= 1 << 12:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(min(size, 1 << 12)) or b""

        def readinto(self, buffer: Any, /) -> int:
            data = self.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    path = write(tmp_path / f"a{suffix}", b"text\n" + os.urandom(40_000).hex().encode())
    monkeypatch.setattr(Path, "open", lambda self, *_, **__: Failing(self))
    for action in (lambda: list(read([path], "line")), lambda: read_table(path, {"text": "text"})):
        assert "Input/output error" in message(path, action)


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_files_do_not_decompress_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write(tmp_path / f"{name}.gz", b" " * (4 << 20) + b"\n")
    monkeypatch.setattr(blocks, "UNPACKED_FREELY", 1 << 20)
    assert "decompress to more than 1 MB" in message(path, lambda: LABELLED[name](path))
    monkeypatch.setattr(blocks, "UNPACKED_RATIO", 1e9)
    monkeypatch.setattr(blocks, "UNPACKED", 2 << 20)
    assert "decompress to more than 2 MB" in message(path, lambda: LABELLED[name](path))
    assert sum(map(len, TextSource(path).blocks())) == (4 << 20) + 1, "texts of a corpus are streamed, and not bounded"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
@pytest.mark.parametrize("name", LABELLED)
def test_a_pipe_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    assert "not a regular file" in message(path, lambda: LABELLED[name](path))
    if path.suffix in (".csv", ".jsonl", ".txt"):
        assert "not a regular file" in message(path, lambda: find_files([str(path)]))
    assert two_files(str(path)) is None
    other = write(tmp_path / "b.txt", LINE)
    assert find_files([str(tmp_path)]) == find_files([str(tmp_path / "*")]) == [other]
