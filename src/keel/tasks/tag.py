"""Sequence tagging: a label for every word (named entities, parts of speech, chunks).

In: CoNLL columns, CoNLL-U, or jsonl with character spans. Learns: cross-entropy at the first token of each word, or a
CRF over the words of a row (Lafferty et al. 2001). Out: the entities with their character spans, or a label per word.

Notable choices
- Entity labels are read as IOB1, IOB2 or BIOES and learned in the scheme that the recipe names; other labels (parts of
  speech) are learned as they are.
- A long text is always split into overlapping windows, whatever the strategy: each word is predicted in the one window
  where it is farthest from an edge, so every word gets exactly one label.
- Entities are scored as character spans: one that begins or ends inside a word counts as missed. (For labels on words
  this is the same as scoring words, and equal to seqeval.)
- Words that the tokenizer drops entirely (control characters) get the label O.

Shapes: T tokens, P predicted words, C labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.configs import TaskConfig
from keel.errors import Rejected, UserError, locate
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Objective, Task, Tokenizer
from keel.layers.crf import CRF
from keel.layers.dropout import Dropout
from keel.metrics.entities import spans
from keel.tasks._tag_scorer import EntityScorer, TagScorer
from keel.text.conll import Sentence, read_conll
from keel.text.labelled import LabelledData, as_text
from keel.text.long_text import window_starts
from keel.text.spans import Spanned, read_spans, read_word_rows, word_columns
from keel.text.tables import OBJECTS, TABLES, Record, kind_of, read_table
from keel.text.word_spans import word_spans
from keel.tokenizers.special_tokens import frame
from keel.values import Batch, ExampleFile, ObjectiveNeeds, Rows, Score, Scorer, TaskNeeds, Truncation, Window

ENTITY = re.compile(r"O|[BIESLUM]-.+")
OUTSIDE = "O"
Span = tuple[int, int]


class TagConfig(TaskConfig):
    kind: Literal["tag"] = "tag"
    labels: list[str] | None = Field(None, description="null: those of the training data")
    scheme: Literal["iob2", "bioes"] = Field("iob2", description="how entities are encoded as word labels")
    entities: bool | None = Field(None, description="labels mark entities; null: if they look like B-PER")
    crf: bool = Field(False, description="score label sequences with a CRF instead of each word alone")
    dropout: float = Field(0.1, ge=0, lt=1)


@dataclass(frozen=True)
class TaggedText:
    """A text, the character spans of its words, their labels (None: unknown), and the entities as character spans."""

    text: str
    words: list[Span]
    tags: list[str] | None
    entities: list[tuple[int, int, str]] | None = None
    where: str = ""


class Tag(Task):
    Config = TagConfig
    needs = TaskNeeds(long=("windows",))
    config: TagConfig
    data: LabelledData

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        return ExampleFile(lambda: self._rows(source, labelled), self.data)

    def _rows(self, source: Source, labelled: bool) -> Iterator[TaggedText | Rejected]:
        kind, data = kind_of(source), self.data
        if columns := word_columns(source, data.text, data.label):
            words, tags = columns
            sentences = read_word_rows(source, words, tags if labelled else None)
        elif kind in OBJECTS and labelled:
            return map(_from_spans, read_spans(source, data.text or "text", data.label or "label"))
        elif kind in TABLES and not labelled:
            return map(_from_record, read_table(source, {"text": data.text or "text"}))
        else:
            sentences = read_conll(str(source), data.text, data.label, tags_needed=labelled)
        return (_from_sentence(sentence, labelled) for sentence in sentences)

    def example(self, given: Any) -> TaggedText:
        if isinstance(given, str):
            return TaggedText(given, word_spans(given), None)
        return TaggedText(*_join_words([str(word) for word in given]), None)

    def fit_labels(self, examples: Sequence[TaggedText]) -> Self:
        tags = {tag for e in examples for tag in e.tags or ()}
        entities = self.config.entities
        if entities is None:
            entities = all(ENTITY.fullmatch(tag) for tag in tags)
        labels = self.config.labels
        if labels is None and entities:
            kinds = sorted({kind for e in examples for kind, _, _ in spans(e.tags or [])})
            prefixes = "BI" if self.config.scheme == "iob2" else "BIES"
            labels = [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in prefixes)]
        labels = labels or sorted(tags)
        if len(labels) < 2:
            raise UserError(f"all words have the label '{''.join(labels)}'; tagging needs at least two labels")
        return self.replace(config={"entities": entities, "labels": labels})

    def objective(self, backbone: Backbone) -> TagObjective:
        return TagObjective(self.config, backbone)

    def windows(self, examples: Sequence[TaggedText], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        numbers = {name: number for number, name in enumerate(self.config.labels or [])}
        windows, truncation = [], Truncation()
        for number, example in enumerate(examples):
            ids, offsets = tokenizer.encode_with_offsets(example.text)
            firsts = first_tokens(example.words, offsets)
            tags = self._to_scheme(example.tags) if example.tags else [OUTSIDE] * len(example.words)
            targets = np.full(len(ids), -1)
            words_of: dict[int, list[int]] = {}  # a token's target is the label of the first of its words
            for word, (token, tag) in enumerate(zip(firsts, tags, strict=True)):
                if token >= 0 and token not in words_of:
                    targets[token] = numbers.get(tag, 0)
                words_of.setdefault(token, []).append(word)
            flat = np.asarray(ids)
            for kept, own in self._window_places(len(ids)):
                row_targets = np.full(len(kept) + 2, -1)
                row_targets[1:-1][own] = targets[kept][own]
                row = frame(tokenizer, [flat[kept]])
                low, high = kept[own[0]], kept[own[-1]]
                words = [words_of[token] for token in range(low, high + 1) if token in words_of]
                windows.append(Window(*row, number, token_answers={"tag": row_targets}, place=words))
            truncation += Truncation(1, 0, len(ids), 0)
        return windows, truncation

    def token_windows(self, texts: Sequence[np.ndarray], tokenizer: Tokenizer) -> list[Window]:
        """Windows in which every token of these texts is predicted, not only the first of each word; `place`: which."""
        windows = []
        for number, ids in enumerate(texts):
            for kept, own in self._window_places(len(ids)):
                answers = np.full(len(kept) + 2, -1)
                answers[1:-1][own] = 0
                row = frame(tokenizer, [ids[kept]])
                windows.append(Window(*row, number, token_answers={"tag": answers}, place=kept[own]))
        return windows

    def _window_places(self, length: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Windows, and for each the positions that are predicted in it: those nearest to its middle."""
        room = self.data.length - 2
        if not length:
            return []
        starts = window_starts(length, room, self.data.long.overlap)
        stops = [min(length, start + room) for start in starts]
        borders = [0, *((a + b) // 2 for a, b in zip(starts[1:], stops, strict=False)), length]
        return [
            (np.arange(start, stop), np.arange(low - start, high - start))
            for start, stop, low, high in zip(starts, stops, borders, borders[1:], strict=False)
        ]

    def _to_scheme(self, tags: list[str]) -> list[str]:
        """Entity labels converted to the scheme that is learned."""
        if not self.config.entities:
            return tags
        written = [OUTSIDE] * len(tags)
        for kind, start, stop in spans(tags):
            written[start:stop] = [f"B-{kind}"] + [f"I-{kind}"] * (stop - start - 1)
            if self.config.scheme == "bioes":
                written[stop - 1] = f"{'E' if stop - start > 1 else 'S'}-{kind}"
        return written

    def answer(
        self, examples: Sequence[TaggedText], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        labels = self.config.labels or []
        nothing = OUTSIDE if OUTSIDE in labels else labels[0]
        tags = [[nothing] * len(e.words) for e in examples]
        chances = [[1.0] * len(e.words) for e in examples]
        for window, output in zip(windows, outputs, strict=True):
            best, chance = output[:, 0].astype(int), output[:, 1]
            for words, label, probability in zip(window.place, best, chance, strict=True):
                for word, tag in zip(words, self._spread_label(labels[label], len(words)), strict=True):
                    tags[window.example][word] = tag
                    chances[window.example][word] = float(probability)
        return [self.format_answer(e, t, c) for e, t, c in zip(examples, tags, chances, strict=True)]

    def _spread_label(self, label: str, words: int) -> list[str]:
        """The labels of words that share a token: only the first word of an entity gets B."""
        prefix, kind = label[:2], label[2:]
        if words == 1 or not self.config.entities or label == OUTSIDE:
            return [label] * words
        prefixes = ["B-" if prefix in ("B-", "S-") else "I-", *["I-"] * (words - 1)]
        if prefix in ("E-", "S-"):
            prefixes[-1] = "E-"
        return [prefix + kind for prefix in prefixes]

    def format_answer(self, example: TaggedText, tags: list[str], chances: list[float]) -> dict[str, Any]:
        """The answer that gives each word this label with this probability."""
        if not self.config.entities:
            words = [
                {"text": example.text[a:b], "start": a, "end": b, "label": tag, "probability": p}
                for (a, b), tag, p in zip(example.words, tags, chances, strict=True)
            ]
            return {"words": words, "tags": tags}
        entities = []
        for kind, first, last in spans(tags):
            start, end = example.words[first][0], example.words[last - 1][1]
            chance = min(chances[first:last])
            entities.append(
                {"text": example.text[start:end], "label": kind, "start": start, "end": end, "probability": chance}
            )
        return {"entities": entities, "tags": tags}

    def scorer(self) -> Scorer:
        return (EntityScorer if self.config.entities else TagScorer)(self._to_scheme)


class TagObjective(Objective):
    name = "tag"
    needs = ObjectiveNeeds(vectors="places")

    def __init__(self, config: TagConfig, backbone: Backbone) -> None:
        super().__init__()
        assert config.labels is not None, "labels are known before the head is built"
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, len(config.labels))
        self.crf = CRF(len(config.labels)) if config.crf else None

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        places = np.flatnonzero(rows.token_answers["tag"] >= 0)
        counts = rows.count(places)
        targets = {"tag.places": places, "tag.answers": rows.token_answers["tag"][places], "tag.counts": counts}
        if self.crf is not None:
            table = np.full((len(counts), max((1, *counts))), -1)
            table[np.arange(table.shape[1]) < np.array(counts)[:, None]] = np.arange(len(places))
            targets["tag.table"] = table
        return rows, targets

    def logits(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, C)"""
        vectors = encoder(batch).vectors[batch.targets["tag.places"]]
        scores: Tensor = self.out(self.dropout(vectors))
        return scores

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, 2): each word's best label, and its probability."""
        logits = self.logits(encoder, batch).float()
        if self.crf is not None:
            return self.crf.decode(logits, batch.targets["tag.table"])
        chance, label = logits.softmax(1).max(1)
        return torch.stack([label.to(chance.dtype), chance], 1)

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.logits(encoder, batch).float(), batch.targets["tag.answers"]
        if self.crf is not None:
            loss = self.crf.loss(logits, answers, batch.targets["tag.table"])
        else:
            loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}


def _from_sentence(sentence: Sentence | Rejected, labelled: bool) -> TaggedText | Rejected:
    if isinstance(sentence, Rejected):
        return sentence
    text, words = _join_words(sentence.words)
    tags = [_to_bioes(tag) for tag in sentence.tags] if labelled else None
    entities = [(words[a][0], words[b - 1][1], kind) for kind, a, b in spans(tags)] if tags else None
    return TaggedText(text, words, tags, entities, locate(sentence.file, sentence.line))


def _from_spans(row: Spanned | Rejected) -> TaggedText | Rejected:
    if isinstance(row, Rejected):
        return row
    words = word_spans(row.text)
    tags = [OUTSIDE] * len(words)
    for start, stop, label in row.spans:
        inside = [n for n, (a, b) in enumerate(words) if start < b and a < stop]
        for n in inside:
            tags[n] = f"{'B' if n == inside[0] else 'I'}-{label}"
    return TaggedText(row.text, words, tags, list(row.spans), locate(row.file, row.line))


def _from_record(record: Record | Rejected) -> TaggedText | Rejected:
    """A text without labels."""
    if isinstance(record, Rejected):
        return record
    text = as_text(record.fields["text"])
    if text is None:
        return Rejected(record.file, record.line, "no text")
    return TaggedText(text, word_spans(text), None, where=record.where)


def first_tokens(words: Sequence[Span], offsets: Sequence[Span]) -> list[int]:
    """For each word the first token that covers a part of it; -1: none, because the tokenizer dropped the word.

    Words without a token of their own share the token they are in: a tokenizer of Chinese words gives fewer tokens than
    there are characters.
    """
    firsts, token = list[int](), 0
    for start, stop in words:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        own = token + 1 if firsts and firsts[-1] == token else token
        reached = (t for t in (own, token) if t < len(offsets) and offsets[t][0] < stop)
        token = next(reached, token)
        firsts.append(token if token < len(offsets) and offsets[token][0] < stop else -1)
    return firsts


def _to_bioes(tag: str) -> str:
    """Replaces the letters of BILOU and BMES that BIOES does not have."""
    return {"L-": "E-", "U-": "S-", "M-": "I-"}.get(tag[:2], tag[:2]) + tag[2:]


def _join_words(words: Sequence[str]) -> tuple[str, list[Span]]:
    """The words with a space between them, and the span of each."""
    if not words:
        return "", []
    starts = np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])[:-1]]).astype(int).tolist()
    return " ".join(words), [(start, start + len(word)) for start, word in zip(starts, words, strict=True)]
