"""Token-classification as `transformers` aggregates it: `none`, `simple`, `first`, `average`, `max`.

In: the label probabilities of every token. Out: entities with `entity` (none) or `entity_group`.

Notable choices
- A word begins at a token without `##`, or, for tokenizers without such a mark, after a space: as there.
- Tokens with the same label belong together unless the second begins with `B-`. `E-` and `S-` (bioes), which
  `transformers` does not know, continue an entity and begin one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from keel.inference.token_labels import TokenLabels
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.wordpiece import WordPiece

STRATEGIES = ("none", "simple", "first", "average", "max")
STARTS, CONTINUES = ("B-", "S-"), ("I-", "E-")


@dataclass(frozen=True)
class Piece:
    """A token, or the tokens of a word."""

    label: str
    score: float
    tokens: list[str]
    start: int
    end: int


def aggregate(
    found: TokenLabels, labels: Sequence[str], tokenizer: LibraryTokenizer, strategy: str, ignored: Sequence[str]
) -> list[dict[str, Any]]:
    tokens = [_shown(tokenizer, id, found.text[a:b]) for id, (a, b) in zip(found.ids, found.spans, strict=True)]

    def piece(start: int, stop: int, scores: np.ndarray) -> Piece:
        best = int(scores.argmax())
        spans = found.spans
        return Piece(labels[best], float(scores[best]), tokens[start:stop], spans[start][0], spans[stop - 1][1])

    if strategy in ("none", "simple"):
        pieces = [piece(n, n + 1, scores) for n, scores in enumerate(found.probabilities)]
    else:
        combine = COMBINATIONS[strategy]
        starts = _word_starts(found, tokenizer)
        pieces = [piece(a, b, combine(found.probabilities[a:b])) for a, b in pairwise(starts)]
    if strategy == "none":
        entities = [{"entity": p.label, "index": n, **_described(p.tokens[0], [p])} for n, p in enumerate(pieces, 1)]
    else:
        entities = [
            {
                "entity_group": _kind(group[0].label)[1],
                **_described(tokenizer.join([token for one in group for token in one.tokens]), group),
            }
            for group in _groups(pieces)
        ]
    return [one for one in entities if one.get("entity", one.get("entity_group")) not in ignored]


COMBINATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # the scores of a word, from those of its tokens
    "first": lambda scores: scores[0],
    "max": lambda scores: scores[scores.max(1).argmax()],
    "average": lambda scores: scores.mean(0),
}


def _shown(tokenizer: LibraryTokenizer, id: int, text: str) -> str:
    """The token, or what it stands for where the vocabulary has none."""
    return text if id == tokenizer.unk or id >= tokenizer.size else tokenizer.token(id)


def _word_starts(found: TokenLabels, tokenizer: LibraryTokenizer) -> list[int]:
    """The first token of each word, and the number of tokens."""
    if not found.ids:
        return [0]
    if isinstance(tokenizer, WordPiece):
        marks = tokenizer.word_starts([np.asarray(found.ids, np.int64)])[0]
    else:
        marks = np.array([start == 0 or " " in found.text[start - 1 : start + 1] for start, _ in found.spans])
    marks[0] = True
    return [*np.flatnonzero(marks).tolist(), len(found.ids)]


def _kind(label: str) -> tuple[bool, str]:
    """Whether the label begins an entity, and the entity's kind. Labels without a prefix continue."""
    named = label[2:] if label.startswith((*STARTS, *CONTINUES)) else label
    return label.startswith(STARTS), named


def _groups(pieces: Sequence[Piece]) -> list[list[Piece]]:
    groups = list[list[Piece]]()
    for one in pieces:
        begins, kind = _kind(one.label)
        if groups and not begins and kind == _kind(groups[-1][-1].label)[1]:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _described(word: str, group: Sequence[Piece]) -> dict[str, Any]:
    score = float(np.mean([one.score for one in group]))
    return {"score": score, "word": word, "start": group[0].start, "end": group[-1].end}
