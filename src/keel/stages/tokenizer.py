"""`keel tokenizer`: trains a vocabulary, and measures how well one fits a text.

In: text files; a tokenizer. Out: a tokenizer folder with its manifest; statistics of a tokenizer on a text.

Notable choices
- Training reads the files twice (for the alphabet first, see `tokenizers/alphabet.py`) and never keeps more than a
  block in memory.
- For tokens per word, a word is a run of letters and digits, as BERT splits it: punctuation and Chinese characters are
  one token each in any vocabulary and would only dilute the ratio.
- Characters without an entry are counted separately from known characters inside a word that became [UNK]: the first
  are the cause, the second a consequence.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keel.errors import UserError, suggest
from keel.files.folders import check_free, write_folder
from keel.hugging_face.cache import find_folder
from keel.text.readers import find_files, read
from keel.tokenizers.alphabet import BLOCK_CHARACTERS
from keel.tokenizers.byte_bpe import ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.characters import chinese_characters, code_points
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.whole_words import learn_words
from keel.tokenizers.wordpiece import learn

MOSTLY_CHINESE = 0.3  # share of Chinese characters above which tokens per Chinese character is reported
WORDS_SHOWN = 20


@dataclass(frozen=True)
class Progress:
    done: int  # bytes read so far, over all passes
    total: int
    documents: int


class Texts:
    """The texts of some files; can be iterated repeatedly. Counts what it reads in the first pass."""

    def __init__(
        self,
        paths: Sequence[str],
        documents: str,
        column: str,
        report: Callable[[Any], None] | None,
        readings: int = 1,
    ) -> None:
        self.files = find_files(paths)
        self.sizes = {str(file): file.stat().st_size for file in self.files}
        self.documents, self.column, self.report = documents, column, report
        self.readings = readings  # how many passes there will be
        self.passes = 0
        self.read: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        before, file, reported = self.passes * sum(self.sizes.values()), "", 0
        counts: Counter[str] = Counter()
        rejected: Counter[str] = Counter()
        for piece in read(self.files, self.documents, self.column):
            if piece.file != file:
                before, file = before + self.sizes.get(file, 0), piece.file
            counts["documents"] += piece.last and not piece.rejected
            if piece.rejected:
                rejected[piece.rejected.partition(":")[0]] += 1
                continue
            counts["characters"] += len(piece.text)
            if self.report and counts["characters"] - reported >= BLOCK_CHARACTERS:
                reported = counts["characters"]
                total = self.readings * sum(self.sizes.values())
                self.report(Progress(before + piece.position, total, counts["documents"]))
            yield piece.text
        self.passes += 1
        self.read, self.rejected = counts, rejected


KINDS = ("wordpiece", "words", "byte-bpe", "byte-fallback")


def train(
    texts: Sequence[str],
    out: str | Path,
    *,
    kind: str = "wordpiece",
    vocab_size: int = 30522,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    min_frequency: int = 2,
    documents: str = "auto",
    column: str = "text",
    report: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """Trains a vocabulary on files, folders and globs, and writes the tokenizer folder `out`.

    `lowercase` and `strip_accents` are for WordPiece and words; the other kinds do not change the text.
    """
    out = Path(out)
    if kind not in KINDS:
        raise UserError(f"there is no kind of tokenizer called '{kind}'.{suggest(kind, KINDS)}")
    check_free(out)
    source = Texts(texts, documents, column, report, readings=1 if kind in ("byte-bpe", "words") else 2)
    settings: dict[str, Any] = {"kind": kind, "vocab_size": vocab_size, "min_frequency": min_frequency}
    if kind in ("wordpiece", "words"):
        settings |= {"lowercase": lowercase, "strip_accents": strip_accents}
    try:
        tokenizer, more = _learn(source, settings)
    except UserError:
        if source.passes and not source.read["characters"]:
            raise UserError(_nothing(source)) from None
        raise
    if not source.read["characters"]:
        raise UserError(_nothing(source))
    made_by = {
        "stage": "tokenizer train",
        "files": [str(file) for file in source.files],
        "settings": settings,
        "fingerprint": tokenizer.fingerprint(),
    }
    with write_folder(out, made_by) as folder:
        tokenizer.save(folder)
    note = more.pop("note", "")
    if not note and tokenizer.size < vocab_size:
        note = f"the texts give no more entries at min_frequency {min_frequency}; {vocab_size} were requested"
    return {
        "out": str(out),
        "kind": kind,
        "size": tokenizer.size,
        "lowercase": tokenizer.lowercase,
        "documents": source.read["documents"],
        "characters": source.read["characters"],
        "rejected": dict(source.rejected),
        **more,
        "fingerprint": tokenizer.fingerprint(),
        "note": note,
    }


def _learn(source: Texts, settings: dict[str, Any]) -> tuple[LibraryTokenizer, dict[str, Any]]:
    """The tokenizer, and further facts to report."""
    size, least = settings["vocab_size"], settings["min_frequency"]
    if settings["kind"] == "byte-bpe":
        return ByteBpe.train(source, size, least), {}
    if settings["kind"] == "byte-fallback":
        return ByteFallback.train(source, size, least), {}
    if settings["kind"] == "words":
        words = learn_words(source, size, settings["lowercase"], settings["strip_accents"], least)
        return words, {"segmented": words.segments}
    tokenizer, alphabet = learn(source, size, settings["lowercase"], settings["strip_accents"], least)
    facts: dict[str, Any] = {
        "alphabet": {"kept": len(alphabet.characters), "left_out": alphabet.left_out, "covered": alphabet.covered},
        "continuations": int(tokenizer.continues.sum()),
    }
    if alphabet.crowded:
        facts["note"] = (
            f"vocab_size {size} has no room for every character: {alphabet.left_out} rarer ones are [UNK]; "
            f"those kept make up {alphabet.covered:.4%} of the text"
        )
    return tokenizer, facts


def _nothing(source: Texts) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in source.rejected.most_common())
    where = str(source.files[0]) if len(source.files) == 1 else f"{source.files[0]} and {len(source.files) - 1} more"
    return f"{where}: no text to train on ({reasons or 'nothing but empty documents'}); give files that contain text"


def inspect(
    path: str | Path, texts: Sequence[str] = (), *, documents: str = "auto", column: str = "text"
) -> dict[str, Any]:
    """Statistics of a tokenizer and, if texts are given, of how it splits them."""
    tokenizer = open_tokenizer(find_folder(path))
    result: dict[str, Any] = {
        "size": tokenizer.size,
        "lowercase": tokenizer.lowercase,
        "strip_accents": tokenizer.strips_accents,
        "kind": tokenizer.kind,
        "fingerprint": tokenizer.fingerprint(),
    }
    return result | _Tally(tokenizer).add_all(Texts(texts, documents, column, None)) if texts else result


class _Tally:
    """Counts what a tokenizer does to lines of text."""

    def __init__(self, tokenizer: LibraryTokenizer) -> None:
        bare = [tokenizer.shown(id).strip() for id in range(tokenizer.size)]
        firsts = np.array([ord(text[0]) if text else 0 for text in bare], dtype=np.uint32)
        self.tokenizer = tokenizer
        self.begins_word = np.array([text[:1].isalnum() for text in bare]) & ~chinese_characters(firsts)
        self.counts: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.harmed: Counter[str] = Counter()
        self.unknown_words: Counter[str] = Counter()
        self.known: dict[str, bool] = {}

    def add_all(self, texts: Texts) -> dict[str, Any]:
        held: list[str] = []
        size = 0
        for text in texts:
            # White space ends a token, so lines can be encoded separately: all cores are used, fewer lines are reread.
            held += text.split("\n")
            self.counts["characters"] += len(text)
            size += len(text)
            if size >= BLOCK_CHARACTERS:
                self._add(held)
                held, size = [], 0
        self._add(held)
        if not self.counts["characters"]:
            raise UserError(_nothing(texts))
        return {"documents": texts.read["documents"], "rejected": dict(texts.rejected)} | self._figures()

    def _add(self, lines: list[str]) -> None:
        rows = self.tokenizer.encode(lines)
        ids = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        self.counts["tokens"] += len(ids)
        starts = np.concatenate([np.zeros(0, bool), *self.tokenizer.word_starts(rows)])
        self.counts["words"] += int(self.begins_word[ids[starts]].sum())
        self.counts["continuations"] += int((~starts).sum())
        self.counts["chinese"] += int(chinese_characters(code_points("\n".join(lines))).sum())
        for line, row in zip(lines, rows, strict=True):
            if (row == self.tokenizer.unk).any():
                self._look_closer(line)

    def _look_closer(self, line: str) -> None:
        ids, offsets = self.tokenizer.encode_with_offsets(line)
        for id, (start, end) in zip(ids, offsets, strict=True):
            if id != self.tokenizer.unk:
                continue
            word = line[start:end]
            self.counts["unknown"] += 1
            self.unknown_words[word] += 1
            for character in word:
                if character not in self.known:
                    self.known[character] = self.tokenizer.knows(character)
                (self.harmed if self.known[character] else self.missing)[character] += 1

    def _figures(self) -> dict[str, Any]:
        counts = self.counts
        figures: dict[str, Any] = {
            "characters": counts["characters"],
            "words": counts["words"],
            "tokens": counts["tokens"],
            "tokens_per_word": (counts["words"] + counts["continuations"]) / counts["words"]
            if counts["words"]
            else None,
            "tokens_per_character": counts["tokens"] / counts["characters"],
        }
        if counts["chinese"] >= MOSTLY_CHINESE * counts["characters"]:
            figures["chinese_characters"] = counts["chinese"]
            figures["tokens_per_chinese_character"] = counts["tokens"] / counts["chinese"]
        return figures | {
            "unknown": counts["unknown"],
            "unknown_share": counts["unknown"] / max(1, counts["tokens"]),
            "unknown_characters": _table(self.missing),
            "characters_in_unknown_words": _table(self.harmed),
            "unknown_words": [{"word": w, "count": n} for w, n in _ranked(self.unknown_words)[:WORDS_SHOWN]],
        }


def _ranked(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda entry: (-entry[1], entry[0]))


def _table(counter: Counter[str]) -> list[dict[str, Any]]:
    return [
        {"character": c, "codepoint": f"U+{ord(c):04X}", "name": unicodedata.name(c, ""), "count": n}
        for c, n in _ranked(counter)
    ]
