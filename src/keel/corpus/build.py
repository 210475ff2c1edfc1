"""Builds a corpus from texts: one streaming pass over the files, on all cores.

In: files and a tokenizer. Out: the folder described in `store.py`, and its account: read = kept + rejected by reason.

This process reads documents, hashes them and groups them into chunks; workers split and tokenise them (`encode.py`);
this process writes the results in order. Every few seconds it syncs the data and writes a journal: the next document to
read and the sizes of the files. A build that was killed and is started again truncates the files to the sizes in the
journal and resumes.

Notable choices
- The bytes on disk depend on the documents alone: not on the number of workers, the chunks, or interruptions. So no
  code here may depend on where a chunk ends, and nothing written contains a time.
- Memory is bounded by the number of chunks in flight, whatever the input.
- The journal is in the corpus folder itself; the folder becomes a corpus when the journal is removed and the manifest
  is written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keel import __version__
from keel.corpus.encode import Tokens, encode_here, encode_in_processes
from keel.corpus.store import INFO, JOURNAL, REJECTED, TOKENIZER, CorpusWriter, Encoded
from keel.errors import UserError
from keel.files import folders
from keel.files.locks import LOCK, locked
from keel.text.readers import Piece, find_files, read
from keel.tokenizers import chinese
from keel.tokenizers.library import LibraryTokenizer

CHUNK_BYTES = 1 << 20
JOURNAL_SECONDS = 5.0
BYTES_PER_WORKER = 2 << 20  # with less input than this, another process costs more than it gains
SAMPLE_LETTERS = 100_000
CHINESE_SHARE = 0.3
LANGUAGES = ("auto", "en", "zh")

_CHINESE_LETTER = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True)
class BuildProgress:
    """How far the build has got; `done` and `total` are bytes of the files on disk."""

    done: int
    total: int
    documents: int
    tokens: int


class PieceRecord(NamedTuple):
    """Metadata of a piece, kept in this process while a worker has its text."""

    file: int
    ordinal: int
    offset: int
    last: bool
    hash: int
    rejected: str


@dataclass
class Chunk:
    """Pieces of about CHUNK_BYTES in all. `position`: how far the file of the last piece has been read."""

    texts: list[str] = field(default_factory=list)
    pieces: list[PieceRecord] = field(default_factory=list)
    position: int = 0
    drops: bool = False  # the last piece rejects a document whose earlier pieces were already emitted


def build(
    files: Sequence[str | Path],
    tokenizer: LibraryTokenizer,
    out: str | Path,
    *,
    documents: str = "auto",
    column: str = "text",
    language: str = "auto",
    workers: int | None = None,
    held_out: float = 0.01,
    report: Callable[[BuildProgress], None] | None = None,
) -> dict[str, Any]:
    """Builds the corpus, or resumes an interrupted build; returns the account."""
    if language not in LANGUAGES:
        raise UserError(f"language = '{language}'; choose one of {', '.join(LANGUAGES)}")
    if not 0 <= held_out <= 1:
        raise UserError(f"held_out = {held_out}; give a fraction between 0 and 1")
    if workers is not None and workers < 1:
        raise UserError(f"workers = {workers}; give at least 1")
    paths = find_files([str(file) for file in files])
    out = Path(out)
    task = {
        "files": [{"path": str(path), "bytes": path.stat().st_size} for path in paths],
        "documents": documents,
        "column": column,
        "language": language,
        "held_out": held_out,
        "tokenizer": tokenizer.fingerprint(),
    }
    try:
        with _alone_in(out):
            if _is_written(out, task):
                return _seal(out)
            journal = _find_journal(out, task)
            pieces = read(paths, documents, column, tuple(journal["cursor"]) if journal else (0, 0))
            if journal is None:  # errors in the arguments have been raised by now, before anything is written
                resolved, pieces = _settle_language(language, pieces, tokenizer)
                journal = {"task": _identity(task), "language": resolved, "writer": None}
                journal |= {"cursor": [0, 0], "read_before": 0, "kept": 0, "rejected": {}}
                folders.write_file(out / JOURNAL, json.dumps(journal))
            return _Build(paths, tokenizer, out, task, journal, report).run(pieces, workers)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(f"{out}: the disk is full; make room and run the same command again to resume") from None


class _Build:
    """A build in progress. Everything that must survive a kill is in `journal`."""

    def __init__(
        self,
        paths: list[Path],
        tokenizer: LibraryTokenizer,
        out: Path,
        task: dict[str, Any],
        journal: dict[str, Any],
        report: Callable[[BuildProgress], None] | None,
    ) -> None:
        self.paths = paths
        self.tokenizer = tokenizer
        self.out = out
        self.task = task
        self.journal = journal
        self.report = report
        self.rejected = Counter(journal["rejected"])
        self.writer = CorpusWriter(out, tokenizer.size)
        self.saved = time.monotonic()

    def run(self, pieces: Iterator[Piece], workers: int | None) -> dict[str, Any]:
        self.tokenizer.save(self.out / TOKENIZER)
        self.writer.open(self.journal["writer"])
        *before, total = accumulate((file["bytes"] for file in self.task["files"]), initial=0)
        encoded = self._encoded(_chunks(pieces, self.paths), workers, total)
        with contextlib.closing(self.writer), contextlib.closing(encoded):
            for chunk, tokens in encoded:
                self._store(chunk, tokens)
                if time.monotonic() - self.saved >= JOURNAL_SECONDS:
                    self._save()
                if self.report:
                    done = before[chunk.pieces[-1].file] + chunk.position
                    self.report(BuildProgress(done, total, self.journal["kept"], self.writer.counts["tokens"]))
            return self._finish()

    def _encoded(self, chunks: Iterator[Chunk], workers: int | None, size: int) -> Generator[tuple[Chunk, Tokens]]:
        if workers is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            workers = max(1, min(cores, size // BYTES_PER_WORKER))
        language = self.journal["language"]
        if workers == 1:
            return encode_here(chunks, self.tokenizer, language)
        return encode_in_processes(chunks, workers, self.out / TOKENIZER, language)

    def _store(self, chunk: Chunk, tokens: Tokens) -> None:
        """Writes the tokens of a chunk, and keeps or rejects each document that ends in it."""
        journal, writer = self.journal, self.writer
        ends: list[int] = []
        hashes: list[int] = []
        begin = writer.kept.sentences - writer.position.sentences  # negative if the document began in an earlier chunk
        for piece, end in zip(chunk.pieces, tokens.texts.tolist(), strict=True):
            if not piece.last:
                continue
            reason = piece.rejected or ("" if end > begin else "no tokens")
            if reason:
                writer.reject(self.task["files"][piece.file]["path"], piece.offset, piece.ordinal, reason)
                self.rejected[reason.partition(":")[0]] += 1
            else:
                ends.append(end)
                hashes.append(piece.hash)
            begin = end
            file, read_so_far = journal["cursor"]
            if piece.file != file:
                journal["read_before"] += read_so_far
            journal["cursor"] = [piece.file, piece.ordinal + 1]
        journal["kept"] += len(ends)
        documents = np.array(ends, np.int64), np.array(hashes, np.uint64)
        writer.write(Encoded(tokens.ids, tokens.words, tokens.sentences, *documents))
        if chunk.drops:
            writer.drop()

    def _save(self) -> None:
        """Syncs the data first, then writes the journal that refers to it."""
        self.journal["writer"] = self.writer.sync()
        self.journal["rejected"] = dict(self.rejected)
        folders.write_file(self.out / JOURNAL, json.dumps(self.journal))
        self.saved = time.monotonic()

    def _finish(self) -> dict[str, Any]:
        self._save()
        # `read` comes from the numbering of the readers, so a document lost in between would be noticed here.
        read_in_all = self.journal["read_before"] + self.journal["cursor"][1]
        kept, rejected = self.journal["kept"], dict(sorted(self.rejected.items()))
        assert read_in_all == kept + sum(rejected.values()), (read_in_all, kept, rejected)
        assert kept == self.writer.counts["documents"], (kept, self.writer.counts)
        if not kept:
            raise self._nothing_kept()
        account = {"files": len(self.paths), "read": read_in_all, "kept": kept, "rejected": rejected}
        self.writer.finish(
            self.task["held_out"],
            {
                "account": account | {name: self.writer.counts[name] for name in ("sentences", "tokens")},
                "settings": self.task | {"language": self.journal["language"]},
                "tokenizer": self.task["tokenizer"],
            },
        )
        (self.out / JOURNAL).unlink()
        return _seal(self.out)

    def _nothing_kept(self) -> UserError:
        """An error with the reason; also removes the folder, so that it does not block the next attempt."""
        (kind, count), *_ = self.rejected.most_common(1)
        with (self.out / REJECTED).open(encoding="utf-8") as lines:
            example = next(line for line in map(json.loads, lines) if line["reason"].partition(":")[0] == kind)
        shutil.rmtree(self.out)
        return UserError(
            f"{example['file']}: nothing to keep; {count:,} of {self.rejected.total():,} documents were rejected as"
            f" '{example['reason']}' (first at byte {example['offset']}); check --documents, --column and the files"
        )


def _chunks(pieces: Iterator[Piece], paths: list[Path]) -> Iterator[Chunk]:
    """Groups pieces into chunks, and hashes the text of each document."""
    numbers = {str(path): number for number, path in enumerate(paths)}
    chunk, size = Chunk(), 0
    hasher = hashlib.blake2b(digest_size=8)
    for piece in pieces:
        if piece.first:
            hasher = hashlib.blake2b(digest_size=8)
        data = piece.text.encode()
        hasher.update(data)
        hash = int.from_bytes(hasher.digest(), "little") if piece.last else 0
        number = numbers[piece.file]
        chunk.texts.append(piece.text)
        chunk.pieces.append(PieceRecord(number, piece.ordinal, piece.offset, piece.last, hash, piece.rejected))
        chunk.position = piece.position
        chunk.drops = bool(piece.rejected) and not piece.first
        size += len(data) + 100  # rejected and tiny documents take memory too
        if size >= CHUNK_BYTES or chunk.drops:
            yield chunk
            chunk, size = Chunk(), 0
    if chunk.texts:
        yield chunk


def _settle_language(
    language: str, pieces: Iterator[Piece], tokenizer: LibraryTokenizer
) -> tuple[str, Iterator[Piece]]:
    """Resolves `auto` from the first letters of the input; also returns all pieces, including those it read."""
    if language == "auto":
        taken: list[Piece] = []
        letters = wide = 0
        for piece in pieces:
            taken.append(piece)
            start = piece.text[:SAMPLE_LETTERS]
            letters += sum(map(str.isalpha, start))
            wide += len(_CHINESE_LETTER.findall(start))
            if letters >= SAMPLE_LETTERS or len(taken) >= SAMPLE_LETTERS:
                break
        language = "zh" if wide > CHINESE_SHARE * letters else "en"
        pieces = chain(taken, pieces)
    if language == "zh":  # fails now if the segmenter is not installed
        chinese.word_starts(["字"], tokenizer.encode(["字"]), tokenizer)
    return language, pieces


# ---------------------------------------------------------------------------------------------------------------------
# The folder: locking it, and the state of the build in it


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Creates the folder and locks it; the lock is released when the process ends, however it ends."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; give --out a folder")
    out.mkdir(parents=True, exist_ok=True)
    try:
        with locked(out):
            yield
    finally:
        with contextlib.suppress(OSError):
            out.rmdir()  # succeeds only if nothing was written


def _is_written(out: Path, task: dict[str, Any]) -> bool:
    """True if only the manifest is missing; raises if there is a finished corpus."""
    if not (out / INFO).is_file() or (out / JOURNAL).is_file():
        return False
    settings = _load(out / INFO).get("settings", {})
    same = all(settings.get(name) == value for name, value in task.items() if name != "language")
    if (out / folders.MANIFEST).is_file() or not same:
        raise UserError(f"{out}: holds a finished corpus already; choose another --out, or remove it first")
    return True


def _seal(out: Path) -> dict[str, Any]:
    """Writes the manifest, which turns the folder into a corpus; returns the account."""
    folders.remove_temporary(out)
    folders.write_manifest(out, {"keel": __version__, "verb": "corpus build"})
    account: dict[str, Any] = _load(out / INFO)["account"]
    return account


def _find_journal(out: Path, task: dict[str, Any]) -> dict[str, Any] | None:
    """The journal of an interrupted build of the same task; None in an empty folder."""
    if not (out / JOURNAL).is_file():
        if any(not path.name.startswith((folders.TEMPORARY, LOCK)) for path in out.iterdir()):
            raise UserError(f"{out}: not empty, and not a corpus; choose another --out")
        return None
    journal = _load(out / JOURNAL)
    changed = [name for name, value in _identity(task).items() if journal["task"].get(name) != value]
    if changed:
        raise UserError(
            f"{out}: holds an unfinished build with other {', '.join(changed)};"
            f" repeat that command to resume it, or remove {out} to start again"
        )
    return journal


def _identity(task: dict[str, Any]) -> dict[str, Any]:
    """The settings that must be equal for a build to be resumed. The list of files is hashed: it may be long, and the
    journal is written often."""
    files = [(file["path"], file["bytes"], Path(file["path"]).stat().st_mtime_ns) for file in task["files"]]
    return task | {"files": hashlib.sha256(json.dumps(files).encode()).hexdigest()}


def _load(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path}: damaged (not the JSON Keel wrote); remove {path.parent} and build again") from None
    return content
