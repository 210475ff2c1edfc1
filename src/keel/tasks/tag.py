"""Tagging: a label for every word (names, parts of speech, chunks).

In: CoNLL columns, or jsonl with character spans. Learns: cross-entropy at the first token of each word, or a CRF over
the words of a row (Lafferty et al. 2001). Out: the entities with their characters in the text, or a label per word.

Notable choices
- Entity labels are read in any of IOB1, IOB2 and BIOES and learnt in the scheme the recipe names; labels that are not
  of this form (parts of speech) are learnt as they are.
- A long text is always cut into overlapping windows, whatever the strategy: each word is asked in the one window where
  it stands farthest from an edge, so every word gets exactly one label.
- Entities are scored as characters: one that begins or ends inside a word counts as missed. (For labels on words this
  is the same as scoring words, and equal to seqeval.)
- Words that the tokenizer drops altogether (control characters) get the label of no entity.

Shapes: T tokens, P words asked about, C labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Cut, Objective, Plot, Rows, Score, Table, Task, Tokenizer, Window
from keel.layers.crf import CRF
from keel.layers.dropout import Dropout
from keel.metrics.classification import accuracy
from keel.metrics.entities import span_scores, spans
from keel.text.conll import read_conll
from keel.text.labelled import LabelledData, as_text
from keel.text.long_text import window_starts
from keel.text.spans import read_spans
from keel.text.tables import Rejected, read_table
from keel.text.words import word_spans
from keel.tokenizers.frame import frame

ENTITY = re.compile(r"O|[BIESLUM]-.+")
OUTSIDE = "O"
WORST = 20
Span = tuple[int, int]


class TagConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["tag"] = "tag"
    labels: list[str] | None = Field(None, description="null: those of the training data")
    scheme: Literal["iob2", "bioes"] = Field("iob2", description="how entities are written as labels of words")
    entities: bool | None = Field(None, description="labels mark entities; null: if they look like B-PER")
    crf: bool = Field(False, description="score whole sequences of labels instead of each word alone")
    dropout: float = Field(0.1, ge=0, lt=1)


@dataclass(frozen=True)
class TaggedText:
    """A text, where its words are, the label of each (None: not known), and the entities as characters."""

    text: str
    words: list[Span]
    tags: list[str] | None
    entities: list[tuple[int, int, str]] | None = None
    where: str = ""


class Tag(Task):
    Config = TagConfig

    def __init__(self, config: TagConfig, data: LabelledData) -> None:
        self.config = config
        self.data = data
        self.headline = "accuracy" if config.entities is False else "f1"
        self.gist = "tags" if config.entities is False else "entities"

    def read(self, path: str, labelled: bool = True) -> tuple[list[TaggedText], list[Rejected]]:
        plain = path.removesuffix(".gz")
        if plain.endswith(".jsonl") and labelled:
            return self._read_spans(path)
        if plain.endswith((".jsonl", ".csv", ".tsv", ".txt")) and not labelled:
            return self._read_texts(path)
        sentences, rejected = read_conll(path, *self._columns(), tags_needed=labelled)
        examples = []
        for sentence in sentences:
            text, words = _joined(sentence.words)
            tags = [_bioes(tag) for tag in sentence.tags] if labelled else None
            entities = [(words[a][0], words[b - 1][1], kind) for kind, a, b in spans(tags)] if tags else None
            examples.append(TaggedText(text, words, tags, entities, f"{sentence.file}, line {sentence.line}"))
        return examples, rejected

    def _read_texts(self, path: str) -> tuple[list[TaggedText], list[Rejected]]:
        records, rejected = read_table(path, {"text": self.data.text or "text"})
        examples = []
        for r in records:
            text = as_text(r.fields["text"])
            if text is None:
                rejected.append(Rejected(r.file, r.line, "no text"))
            else:
                examples.append(TaggedText(text, word_spans(text), None, where=f"{r.file}, line {r.line}"))
        return examples, rejected

    def _columns(self) -> tuple[int, int]:
        """The word's and the label's column in CoNLL files: --text and --label as numbers, else first and last."""
        try:
            return int(self.data.text or 1), int(self.data.label or -1)
        except ValueError:
            raise UserError("columns of CoNLL files have no names: give --text and --label as numbers") from None

    def _read_spans(self, path: str) -> tuple[list[TaggedText], list[Rejected]]:
        given, rejected = read_spans(path, self.data.text or "text", self.data.label or "label")
        examples = []
        for row in given:
            words = word_spans(row.text)
            tags = [OUTSIDE] * len(words)
            for start, stop, label in row.spans:
                inside = [n for n, (a, b) in enumerate(words) if start < b and a < stop]
                for n in inside:
                    tags[n] = f"{'B' if n == inside[0] else 'I'}-{label}"
            examples.append(TaggedText(row.text, words, tags, list(row.spans), f"{row.file}, line {row.line}"))
        return examples, rejected

    def example(self, given: Any) -> TaggedText:
        if isinstance(given, str):
            return TaggedText(given, word_spans(given), None)
        return TaggedText(*_joined([str(word) for word in given]), None)

    def settle(self, examples: Sequence[TaggedText]) -> Tag:
        found = Counter(tag for e in examples for tag in e.tags or ())
        entities = self.config.entities
        if entities is None:
            entities = all(ENTITY.fullmatch(tag) for tag in found)
        config = self.config.model_copy(update={"entities": entities})
        labels = config.labels
        if labels is None and entities:
            kinds = sorted({kind for e in examples for kind, _, _ in spans(e.tags or [])})
            marks = "BI" if config.scheme == "iob2" else "BIES"
            labels = [OUTSIDE, *(f"{mark}-{kind}" for kind in kinds for mark in marks)]
        labels = labels or sorted(found)
        if len(labels) < 2:
            raise UserError(f"all words have the label '{''.join(labels)}'; tagging needs at least two labels")
        return Tag(config.model_copy(update={"labels": labels}), self.data)

    def objective(self, backbone: Backbone) -> TagObjective:
        return TagObjective(self.config, backbone)

    def windows(self, examples: Sequence[TaggedText], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        place = {name: number for number, name in enumerate(self.config.labels or [])}
        windows, cut = [], Cut()
        for number, example in enumerate(examples):
            ids, offsets = tokenizer.encode_with_offsets(example.text)
            firsts = first_tokens(example.words, offsets)
            tags = self._in_scheme(example.tags) if example.tags else [OUTSIDE] * len(example.words)
            asked = np.full(len(ids), -1)
            words_of: dict[int, list[int]] = {}  # the first of a token's words is the one it learns from
            for word, (token, tag) in enumerate(zip(firsts, tags, strict=True)):
                if token >= 0 and token not in words_of:
                    asked[token] = place.get(tag, 0)
                words_of.setdefault(token, []).append(word)
            flat = np.asarray(ids)
            for kept, own in self._cut(len(ids)):
                marks = np.full(len(kept) + 2, -1)
                marks[1:-1][own] = asked[kept][own]
                row = frame(tokenizer, [flat[kept]])
                low, high = kept[own[0]], kept[own[-1]]
                words = [words_of[token] for token in range(low, high + 1) if token in words_of]
                windows.append(Window(*row, number, marks={"tag": marks}, place=words))
            cut += Cut(1, 0, len(ids), 0)
        return windows, cut

    def _cut(self, length: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Windows, and for each the places in it whose words are asked there: those nearest to its middle."""
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

    def _in_scheme(self, tags: list[str]) -> list[str]:
        """Labels of entities rewritten in the scheme that is learnt."""
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
        sure = [[1.0] * len(e.words) for e in examples]
        for window, output in zip(windows, outputs, strict=True):
            best, chance = output[:, 0].astype(int), output[:, 1]
            for words, label, probability in zip(window.place, best, chance, strict=True):
                for word, tag in zip(words, self._share_out(labels[label], len(words)), strict=True):
                    tags[window.example][word] = tag
                    sure[window.example][word] = float(probability)
        return [self._shown(e, t, s) for e, t, s in zip(examples, tags, sure, strict=True)]

    def _share_out(self, label: str, words: int) -> list[str]:
        """The labels of words that one token stands for: inside an entity only the first begins it."""
        mark, kind = label[:2], label[2:]
        if words == 1 or not self.config.entities or label == OUTSIDE:
            return [label] * words
        tags = ["B-" if mark in ("B-", "S-") else "I-", *["I-"] * (words - 1)]
        if mark in ("E-", "S-"):
            tags[-1] = "E-"
        return [tag + kind for tag in tags]

    def _shown(self, example: TaggedText, tags: list[str], sure: list[float]) -> dict[str, Any]:
        if not self.config.entities:
            words = [
                {"text": example.text[a:b], "start": a, "end": b, "label": tag, "probability": p}
                for (a, b), tag, p in zip(example.words, tags, sure, strict=True)
            ]
            return {"words": words, "tags": tags}
        found = []
        for kind, first, last in spans(tags):
            start, end = example.words[first][0], example.words[last - 1][1]
            chance = min(sure[first:last])
            found.append(
                {"text": example.text[start:end], "label": kind, "start": start, "end": end, "probability": chance}
            )
        return {"entities": found, "tags": tags}

    def score(self, examples: Sequence[TaggedText], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        gold_tags = [tag for e in examples for tag in self._in_scheme(e.tags or [])]
        words = [gold_tags, [tag for a in answers for tag in a["tags"]]]
        right = accuracy(*(np.array(tags) for tags in words))
        if not self.config.entities:
            return {"accuracy": right}
        scores = span_scores(*_spans(examples, answers)).overall
        return {"f1": scores.f1, "precision": scores.precision, "recall": scores.recall, "word_accuracy": right}

    def gold(self, example: TaggedText) -> Any:
        return example.entities if self.config.entities else example.tags

    def degenerate(self, examples: Sequence[TaggedText], answers: Sequence[dict[str, Any]]) -> bool:
        said = {tag for answer in answers for tag in answer["tags"]}
        return len(said) == 1 and len({tag for e in examples for tag in e.tags or ()}) > 1

    def details(self, examples: Sequence[TaggedText], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        if not self.config.entities:
            pairs = Counter(
                (right, said)
                for e, a in zip(examples, answers, strict=True)
                for right, said in zip(e.tags or (), a["tags"], strict=True)
                if right != said
            )
            rows = [(right, said, count) for (right, said), count in pairs.most_common(WORST)]
            return [Table("Most frequent errors", ("right", "said", "words"), rows)]
        gold, guessed = _spans(examples, answers)
        kinds = span_scores(gold, guessed).types.items()
        table = [(kind, f.precision, f.recall, f.f1, f.support) for kind, f in kinds]
        order = sorted(range(len(gold)), key=lambda n: -len(gold[n] ^ guessed[n]))
        worst = [n for n in order[:WORST] if gold[n] ^ guessed[n]]
        texts = [e.text for e in examples]
        errors = [
            (texts[n], _listed(texts[n], gold[n] - guessed[n]), _listed(texts[n], guessed[n] - gold[n])) for n in worst
        ]
        return [
            Table("Kinds of entities", ("kind", "precision", "recall", "F1", "entities"), table),
            Table("Worst errors", ("text", "missed", "wrong"), errors),
        ]


def _spans(
    examples: Sequence[TaggedText], answers: Sequence[dict[str, Any]]
) -> tuple[list[set[tuple[str, int, int]]], list[set[tuple[str, int, int]]]]:
    """Right and found entities of each text, as characters."""
    gold = [{(label, start, stop) for start, stop, label in e.entities or ()} for e in examples]
    return gold, [{(f["label"], f["start"], f["end"]) for f in a["entities"]} for a in answers]


def _listed(text: str, entities: set[tuple[str, int, int]]) -> str:
    return "; ".join(f"{text[a:b]} ({kind})" for kind, a, b in sorted(entities, key=lambda e: e[1]))


class TagObjective(Objective):
    name = "tag"
    looks_at = "places"
    one_for = "mark"

    def __init__(self, config: TagConfig, backbone: Backbone) -> None:
        super().__init__()
        assert config.labels is not None, "labels are settled before the head is built"
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(backbone.width, len(config.labels))
        self.crf = CRF(len(config.labels)) if config.crf else None

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        places = np.flatnonzero(rows.marks["tag"] >= 0)
        targets = {"tag.places": places, "tag.answers": rows.marks["tag"][places]}
        if self.crf is not None:
            counts = np.bincount(rows.row_of_token[places], minlength=len(rows.lengths))
            targets["tag.table"] = np.full((len(counts), max(1, counts.max())), -1)
            targets["tag.table"][np.arange(max(1, counts.max())) < counts[:, None]] = np.arange(len(places))
        return rows, targets

    def logits(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(P, C)"""
        vectors = backbone(batch).vectors[batch.targets["tag.places"]]
        scores: Tensor = self.out(self.dropout(vectors))
        return scores

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(P, 2): each word's best label, and its probability."""
        logits = self.logits(backbone, batch).float()
        if self.crf is not None:
            return self.crf.decode(logits, batch.targets["tag.table"])
        chance, label = logits.softmax(1).max(1)
        return torch.stack([label.to(chance.dtype), chance], 1)

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        logits, answers = self.logits(backbone, batch).float(), batch.targets["tag.answers"]
        if self.crf is not None:
            loss = self.crf.loss(logits, answers, batch.targets["tag.table"])
        else:
            loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}


def first_tokens(words: Sequence[Span], offsets: Sequence[Span]) -> list[int]:
    """The first token that stands for a part of each word; -1: none, for the tokenizer dropped the word.

    Words that have no token of their own share the one they lie in: a tokenizer of Chinese words has fewer tokens than
    there are characters.
    """
    found, token = list[int](), 0
    for start, stop in words:
        while token < len(offsets) and offsets[token][1] <= start:
            token += 1
        own = token + 1 if found and found[-1] == token else token
        reached = (t for t in (own, token) if t < len(offsets) and offsets[t][0] < stop)
        token = next(reached, token)
        found.append(token if token < len(offsets) and offsets[token][0] < stop else -1)
    return found


def _bioes(tag: str) -> str:
    """BILOU's and BMES' own letters as those of BIOES."""
    return {"L-": "E-", "U-": "S-", "M-": "I-"}.get(tag[:2], tag[:2]) + tag[2:]


def _joined(words: Sequence[str]) -> tuple[str, list[Span]]:
    """Words with a blank between them, and where each is."""
    if not words:
        return "", []
    starts = np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])[:-1]]).astype(int).tolist()
    return " ".join(words), [(start, start + len(word)) for start, word in zip(starts, words, strict=True)]
