"""The corpus on disk. Its format is defined only here.

In: tokenised sentences and document ends, in order (`CorpusWriter`). Out: memory-mapped arrays (`Corpus`).

    corpus.json        format, dtype, shards with their counts, account, settings, tokenizer, held-out threshold
    tokenizer/         a copy of the tokenizer that made the ids
    shards/00000.ids        uint16 (uint32 from 65,536 tokens up), one per token
    shards/00000.words      one bit per token, 1 if it starts a word; lowest bit first
    shards/00000.sentences  int64, the token at which each sentence starts, then the end of the last one
    shards/00000.documents  int64, the sentence at which each document starts, then the end of the last one
    shards/00000.hashes     uint64, BLAKE2b of each document's text
    rejected.jsonl     file, offset, ordinal and reason of every document that was not kept
    manifest.json      SHA-256 of every file; written last, so a folder without one is unfinished

All numbers are little-endian. A shard is closed after the document that fills it: documents never cross shards.

Notable choices
- Offsets are int64: they take a seventh of the space of the ids, are memory-mapped without conversion, and no document
  is too long for them.
- Whether a document is held out depends on its content alone: copies are always in the same split, and adding files
  moves no document from one split to the other.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from keel.errors import UserError
from keel.files import folders

FORMAT = 1
INFO, REJECTED, SHARDS, TOKENIZER, JOURNAL = "corpus.json", "rejected.jsonl", "shards", "tokenizer", "journal.json"
SHARD_TOKENS = 64 << 20
COUNTED = ("documents", "sentences", "tokens")
KINDS = ("ids", "words", "sentences", "documents", "hashes")


def id_dtype(vocabulary: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocabulary < 1 << 16 else "<u4")


def shard_path(folder: Path, shard: int, kind: str) -> Path:
    return folder / SHARDS / f"{shard:05d}.{kind}"


@dataclass(frozen=True)
class Encoded:
    """Tokenised text to be written: N tokens, S sentences, D documents that end in it."""

    ids: np.ndarray  # (N,) in the dtype of the store
    words: np.ndarray  # (N,) bool
    sentences: np.ndarray  # (S,) int64: where each sentence ends in `ids`
    documents: np.ndarray  # (D,) int64: where each document ends in `sentences`
    hashes: np.ndarray  # (D,) uint64


@dataclass(frozen=True)
class ShardPosition:
    """How much has been written to the open shard."""

    tokens: int = 0
    sentences: int = 0
    documents: int = 0
    loose: int = 0  # the word bits of the last `tokens % 8` tokens, which do not fill a byte yet

    def bytes(self, dtype: np.dtype[Any]) -> dict[str, int]:
        """The sizes of the shard's files. Offset files begin with a 0 that is not counted in the position."""
        return {
            "ids": self.tokens * dtype.itemsize,
            "words": self.tokens // 8,
            "sentences": 8 * (self.sentences + 1),
            "documents": 8 * (self.documents + 1),
            "hashes": 8 * self.documents,
        }


class CorpusWriter:
    """Appends to the shards. Text after the last document end belongs to an open document, which `drop` removes."""

    def __init__(self, folder: Path, vocabulary: int, shard_tokens: int = SHARD_TOKENS) -> None:
        self.folder = folder
        self.dtype = id_dtype(vocabulary)
        self.shard_tokens = shard_tokens
        self.closed: list[dict[str, int]] = []  # the counts of the full shards
        self.position = ShardPosition()
        self.kept = ShardPosition()  # the position at the end of the last document

    def open(self, journal: dict[str, Any] | None = None) -> None:
        """Starts, or resumes from what `sync` returned: whatever was written after that is truncated."""
        rejected = 0
        if journal:
            self.closed, self.kept, rejected = journal["closed"], ShardPosition(**journal["kept"]), journal["rejected"]
            self._check_sizes(rejected)
        (self.folder / SHARDS).mkdir(exist_ok=True)
        for path in (self.folder / SHARDS).iterdir():
            if int(path.stem) > len(self.closed):
                path.unlink()
        self.rejected = _open(self.folder / REJECTED)
        _truncate(self.rejected, rejected)
        self._open_shard()

    def _check_sizes(self, rejected: int) -> None:
        sizes = {self.folder / REJECTED: rejected}
        for kind, size in self.kept.bytes(self.dtype).items():
            sizes[shard_path(self.folder, len(self.closed), kind)] = size
        for path, size in sizes.items():
            if not path.is_file() or path.stat().st_size < size:
                raise UserError(f"{path}: shorter than recorded in {JOURNAL}; remove {self.folder} and build again")

    def _open_shard(self) -> None:
        self.files = {kind: _open(shard_path(self.folder, len(self.closed), kind)) for kind in KINDS}
        self.drop()

    @property
    def counts(self) -> dict[str, int]:
        """Complete documents, and their sentences and tokens, in all shards."""
        here = asdict(self.kept)
        return {name: here[name] + sum(shard[name] for shard in self.closed) for name in COUNTED}

    def write(self, encoded: Encoded) -> None:
        """Appends tokens and document ends; closes each shard after the document that fills it."""
        token_ends = np.concatenate([[0], encoded.sentences])[encoded.documents]
        token = sentence = first = 0
        while first < len(encoded.documents):
            room = self.shard_tokens - self.position.tokens
            filling = first + int(np.searchsorted(token_ends[first:] - token, room))
            stop = min(filling + 1, len(encoded.documents))
            token_stop, sentence_stop = int(token_ends[stop - 1]), int(encoded.documents[stop - 1])
            base = self.position.sentences - sentence
            self._append(encoded, slice(token, token_stop), slice(sentence, sentence_stop))
            self.files["documents"].write((encoded.documents[first:stop] + base).astype("<i8").tobytes())
            self.files["hashes"].write(encoded.hashes[first:stop].astype("<u8").tobytes())
            self.position = self.kept = replace(self.position, documents=self.position.documents + stop - first)
            token, sentence, first = token_stop, sentence_stop, stop
            if self.position.tokens >= self.shard_tokens:
                self._close_shard()
                self._open_shard()
        self._append(encoded, slice(token, None), slice(sentence, None))

    def _append(self, encoded: Encoded, tokens: slice, sentences: slice) -> None:
        position, ids = self.position, encoded.ids[tokens]
        ends = encoded.sentences[sentences] - tokens.start + position.tokens
        bits = np.concatenate([_bits(position.loose, position.tokens % 8), encoded.words[tokens]])
        whole = len(bits) // 8 * 8
        self.files["ids"].write(ids.astype(self.dtype, copy=False).tobytes())
        self.files["words"].write(np.packbits(bits[:whole], bitorder="little").tobytes())
        self.files["sentences"].write(ends.astype("<i8").tobytes())
        loose = int(np.packbits(bits[whole:], bitorder="little")[0]) if len(bits) > whole else 0
        counts = position.tokens + len(ids), position.sentences + len(ends), position.documents
        self.position = ShardPosition(*counts, loose)

    def reject(self, file: str, offset: int, ordinal: int, reason: str) -> None:
        line = {"file": file, "offset": offset, "ordinal": ordinal, "reason": reason}
        self.rejected.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    def drop(self) -> None:
        """Removes the open document from the files."""
        for kind, size in self.kept.bytes(self.dtype).items():
            _truncate(self.files[kind], size)
        self.position = self.kept

    def sync(self) -> dict[str, Any]:
        """Flushes everything to disk, and returns what `open` needs to resume after the last complete document."""
        for file in (*self.files.values(), self.rejected):
            file.flush()
            os.fsync(file.fileno())
        return {"closed": self.closed, "kept": asdict(self.kept), "rejected": self.rejected.tell()}

    def _close_shard(self) -> None:
        if self.kept.tokens % 8:
            self.files["words"].write(bytes([self.kept.loose]))
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        self.closed.append({name: getattr(self.kept, name) for name in COUNTED})
        self.kept = self.position = ShardPosition()

    def finish(self, share: float, info: dict[str, Any]) -> None:
        """Closes the last shard and writes corpus.json. The folder is a corpus only once its manifest is written."""
        self.drop()
        if self.kept.documents or not self.closed:
            self._close_shard()
        else:
            self.close()
            for kind in KINDS:
                shard_path(self.folder, len(self.closed), kind).unlink()
        self.rejected.close()
        hashes = [_map(shard_path(self.folder, n, "hashes"), "<u8") for n in range(len(self.closed))]
        content = {
            "format": FORMAT,
            "dtype": self.dtype.name,
            "shards": self.closed,
            **info,
            "held_out": {"share": share, "threshold": held_out_threshold(hashes, share)},
        }
        folders.write_file(self.folder / INFO, json.dumps(content, indent=2))  # ASCII: can hold any file name

    def close(self) -> None:
        for file in (*self.files.values(), self.rejected):
            file.close()


def held_out_threshold(hashes: Sequence[np.ndarray], share: float) -> int:
    """Documents with a hash below the threshold are held out: at least one and not all, if two of them differ."""
    if share == 0:
        return 0
    threshold = int(share * 2**64)
    low = min((int(h.min()) for h in hashes if len(h)), default=0)
    high = max((int(h.max()) for h in hashes if len(h)), default=0)
    if low == high:
        return 0
    return min(max(threshold, low + 1), high)


def _bits(byte: int, count: int) -> np.ndarray:
    return np.unpackbits(np.array([byte], np.uint8), count=count, bitorder="little").view(bool)


def _open(path: Path) -> IO[bytes]:
    path.touch()
    return path.open("r+b")


def _truncate(file: IO[bytes], size: int) -> None:
    file.truncate(size)
    file.seek(size)


def _map(path: Path, dtype: str | np.dtype[Any]) -> np.ndarray:
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


class Corpus:
    """An open corpus. Token, sentence and document numbers run through all shards."""

    def __init__(self, path: Path, info: dict[str, Any], fingerprint: str) -> None:
        self.path = path
        self.info = info
        self.fingerprint = fingerprint
        self.tokenizer_path = path / TOKENIZER
        shards = info["shards"]
        self.documents, self.sentences, self.tokens = (sum(shard[name] for shard in shards) for name in COUNTED)
        ids = np.dtype(info["dtype"]).newbyteorder("<")
        dtypes = {"ids": ids, "words": "u1", "sentences": "<i8", "documents": "<i8", "hashes": "<u8"}
        self._shards = [
            {kind: _map(shard_path(path, number, kind), dtype) for kind, dtype in dtypes.items()}
            for number in range(len(shards))
        ]
        self._first_token = [0, *accumulate(shard["tokens"] for shard in shards)]
        self._first_document = [0, *accumulate(shard["documents"] for shard in shards)]

    @staticmethod
    def open(path: str | Path, verify: bool = True) -> Corpus:
        """Opens a finished corpus. `verify` reads all of it once to check its SHA-256 sums."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; give a folder made by `keel corpus build`")
        if (path / JOURNAL).is_file() or ((path / INFO).is_file() and not (path / folders.MANIFEST).is_file()):
            raise UserError(f"{path}: unfinished; run the same `keel corpus build` again to resume it")
        if not (path / INFO).is_file():
            raise UserError(f"{path}: not a corpus (no {INFO}); give a folder made by `keel corpus build`")
        if verify:
            folders.verify_folder(path)
        try:
            info = json.loads((path / INFO).read_text(encoding="utf-8"))
            version = info["format"]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path / INFO}: damaged (not the JSON Keel wrote); build the corpus again") from None
        if version != FORMAT:
            raise UserError(f"{path / INFO}: format {version}, this Keel reads {FORMAT}; build the corpus again")
        _check_shards(path, info)
        return Corpus(path, info, _fingerprint(path, info))

    @cached_property
    def hashes(self) -> np.ndarray:
        """(D,) uint64: the hash of each document's text, equal for copies."""
        return _joined([shard["hashes"] for shard in self._shards])

    @cached_property
    def document_tokens(self) -> np.ndarray:
        """(D,) int64: the length of each document in tokens."""
        return _joined([np.diff(shard["sentences"][shard["documents"]]) for shard in self._shards])

    @cached_property
    def held_out(self) -> np.ndarray:
        """(D,) bool: which documents are reserved for evaluation."""
        return np.asarray(self.hashes < np.uint64(self.info["held_out"]["threshold"]))

    def sentence_bounds(self, document: int) -> np.ndarray:
        """(S + 1,) int64: the token at which each sentence of the document starts, then the end of the last one."""
        number = bisect_right(self._first_document, document) - 1
        if not 0 <= document < self.documents:
            raise IndexError(f"document {document} of {self.documents}")
        shard = self._shards[number]
        first, last = shard["documents"][document - self._first_document[number] :][:2]
        return np.asarray(shard["sentences"][first : last + 1] + self._first_token[number])

    def ids(self, start: int, stop: int) -> np.ndarray:
        """The ids of tokens [start, stop), which must belong to one document."""
        shard, first = self._shard_of_token(start)
        return shard["ids"][start - first : stop - first]

    def count_tokens(self, size: int) -> np.ndarray:
        """(size,) int64: how often each token occurs, including held-out documents."""
        return sum((np.bincount(shard["ids"], minlength=size) for shard in self._shards), np.zeros(size, np.int64))

    def word_starts(self, start: int, stop: int) -> np.ndarray:
        """Which of the tokens [start, stop), which must belong to one document, start a word."""
        shard, first = self._shard_of_token(start)
        start, stop = start - first, stop - first
        low = start // 8
        bits = np.unpackbits(shard["words"][low : (stop + 7) // 8], bitorder="little")
        return bits[start - 8 * low : stop - 8 * low].view(bool)

    def _shard_of_token(self, token: int) -> tuple[dict[str, np.ndarray], int]:
        """A token's shard, and the number of the first token in it. The end of the corpus is in the last shard."""
        number = bisect_right(self._first_token, token) - 1 if token < self.tokens else len(self._shards) - 1
        return self._shards[number], self._first_token[number]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fingerprint(path: Path, info: dict[str, Any]) -> str:
    """A hash of everything that affects training: tokens, tokenizer, and which documents are held out."""
    files = folders.read_manifest(path)["files"]
    learned = {name: entry for name, entry in sorted(files.items()) if name.startswith((f"{SHARDS}/", f"{TOKENIZER}/"))}
    return hashlib.sha256(json.dumps([learned, info["held_out"]]).encode()).hexdigest()


def _check_shards(path: Path, info: dict[str, Any]) -> None:
    """Checks file sizes even where SHA-256 sums are not: a short file would yield wrong tokens far from the cause."""
    for number, counts in enumerate(info["shards"]):
        sizes = ShardPosition(**counts).bytes(np.dtype(info["dtype"]))
        sizes["words"] = (counts["tokens"] + 7) // 8
        for kind, size in sizes.items():
            file = shard_path(path, number, kind)
            if not file.is_file() or file.stat().st_size != size:
                raise UserError(f"{file}: missing or not {size} bytes long; restore it from a copy or build again")
