"""What a model reads: the tokens of a text, or of a pair, with their places in the text.

In: a loaded model, texts. Out: a `Reading`: one row with its tokens and words.

Notable choices
- An explanation speaks about every token of the text, so a text that does not fit into one row is an error, also where
  `keel predict` would truncate it or split it into windows.
- `text` is as the tokenizer read it: [MASK] is replaced by the model's own mask token, and offsets refer to that.
- Words are those of `text/word_spans.py`; a token belongs to the first word that it covers a part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from keel.configs import brief
from keel.errors import UserError
from keel.hugging_face.sentence_encoder import SentenceEncoder
from keel.interfaces import Task
from keel.learner.learner import Learner
from keel.text.word_spans import word_spans
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.special_tokens import frame
from keel.values import Window


class ExplainedModel(Protocol):
    """The parts of a loaded model that explanations need."""

    learner: Learner
    tokenizer: LibraryTokenizer
    path: Path
    device: torch.device
    task: Task | None

    @property
    def sentence_encoder(self) -> SentenceEncoder: ...

    def predict(self, inputs: Any) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Token:
    text: str  # as it stands in the text; of a special token its name
    token: str  # as it stands in the vocabulary
    id: int
    start: int | None  # its first character in the text, or in the pair if `segment` is 1; None: it stands in neither
    end: int | None
    special: bool
    segment: int

    @property
    def label(self) -> str:
        """For a table or a drawing."""
        return self.text.strip() or self.token


@dataclass(frozen=True)
class Word:
    text: str
    start: int
    end: int
    segment: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    model_kind: str
    text: str
    pair: str | None
    tokens: tuple[Token, ...]
    words: tuple[Word, ...]
    window: Window

    def as_json(self, method: str) -> dict[str, Any]:
        """What the JSON of every method begins with."""
        return {
            "method": method,
            "model_kind": self.model_kind,
            "text": self.text,
            "pair": self.pair,
            "tokens": [asdict(token) for token in self.tokens],
        }

    @property
    def ids(self) -> np.ndarray:
        return self.window.ids

    @property
    def shown_texts(self) -> list[str]:
        """The texts that have tokens in the row."""
        texts = [self.text, *([] if self.pair is None else [self.pair])]
        return texts[: 1 + max(token.segment for token in self.tokens)]

    @property
    def labels(self) -> list[str]:
        return [token.label for token in self.tokens]


def read(model: ExplainedModel, text: str, pair: str | None = None) -> Reading:
    """The row that the encoder reads for a text or a pair."""
    parts = [_checked(text, "text"), *([] if pair is None else [_checked(pair, "pair")])]
    if model.task is None and model.tokenizer.mask >= 0:
        parts = [model.tokenizer.with_masks(part) for part in parts]
    encoded = [model.tokenizer.encode_with_offsets(part) for part in parts]
    window = Window(*frame(model.tokenizer, [np.asarray(ids, np.int64) for ids, _ in encoded]), 0)
    longest = model.learner.backbone.max_length
    if len(window.ids) > longest:
        raise UserError(
            f"a text of {len(window.ids)} tokens is longer than this model's {longest} positions: shorten it"
        )
    return _reading(model, parts, [offsets for _, offsets in encoded], window)


def read_for_task(model: ExplainedModel, given: Any, texts: Sequence[str], row: int = 0) -> Reading:
    """The row that a fine-tuned model reads for an example, `given` as in `predict`; `texts`: those of that row."""
    assert model.task is not None
    parts = [_checked(part, "text") for part in texts]
    windows, _ = model.task.windows([model.task.example(given)], model.tokenizer)
    encoded = [model.tokenizer.encode_with_offsets(part) for part in parts]
    ids, _, _ = frame(model.tokenizer, [np.asarray(part, np.int64) for part, _ in encoded])
    if len(windows) <= row or not np.array_equal(windows[row].ids, ids):
        raise UserError(
            f"a text of {len(ids)} tokens is longer than the {model.task.data.length} that this model was fine-tuned "
            "to read at once, and an explanation is about all of it: shorten it"
        )
    return _reading(model, parts, [offsets for _, offsets in encoded], windows[row])


def _checked(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"the {name} to explain is {brief(text)}, not a text")
    if not text.strip():
        raise UserError(f"the {name} to explain is empty")
    return text


def _reading(
    model: ExplainedModel, parts: Sequence[str], offsets: Sequence[Sequence[tuple[int, int]]], window: Window
) -> Reading:
    spans = iter([(number, span) for number, part in enumerate(offsets) for span in part])
    tokenizer, tokens = model.tokenizer, list[Token]()
    for id, segment, framing in zip(
        window.ids.tolist(), window.segments.tolist(), window.special.tolist(), strict=True
    ):
        name = tokenizer.shown(id).strip() or tokenizer.shown(id)
        if framing:
            tokens.append(Token(name, tokenizer.token(id), id, None, None, True, segment))
            continue
        number, (start, end) = next(spans)
        special = id == tokenizer.mask
        shown = name if special else parts[number][start:end]
        tokens.append(Token(shown, tokenizer.token(id), id, start, end, special, number))
    text, *rest = parts
    kind = str(model.learner.backbone.config.kind)
    return Reading(kind, text, rest[0] if rest else None, tuple(tokens), _words(parts, tokens), window)


def _words(parts: Sequence[str], tokens: Sequence[Token]) -> tuple[Word, ...]:
    """The words of the texts that have tokens. Tokens of no word (white space) are words of their own."""
    spans = [word_spans(part) for part in parts]
    members: dict[tuple[int, int, int], list[int]] = {}
    for place, token in enumerate(tokens):
        if token.start is None or token.end is None:
            continue
        start, end = token.start, token.end
        whole = ((token.segment, a, b) for a, b in spans[token.segment] if start < b and a < end)
        first = next(whole, (token.segment, start, end))
        members.setdefault((token.segment, start, end) if token.special else first, []).append(place)
    found = []
    for (segment, start, end), places in members.items():
        stop = max(end, *(tokens[place].end or 0 for place in places), 0)
        found.append(Word(parts[segment][start:stop], start, stop, segment, tuple(places)))
    return tuple(found)
