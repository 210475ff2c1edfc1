"""Adds special tokens: [CLS] A [SEP] for one text, [CLS] A [SEP] B [SEP] with segment 1 for B for two.

In: the ids of one or two texts. Out: the ids of a row, its segments, and which tokens are special. RoBERTa has two
separators between texts (`Tokenizer.between`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # tokenizers must not load torch
    from keel.interfaces import Tokenizer


def framing(tokenizer: Tokenizer, texts: int) -> int:
    """The number of special tokens in a row of this many texts."""
    return 1 + texts + (tokenizer.between - 1) * (texts - 1)


def frame(tokenizer: Tokenizer, parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, segments, special = [np.array([tokenizer.cls])], [np.zeros(1)], [np.ones(1)]
    for number, part in enumerate(parts):
        before = tokenizer.between - 1 if number else 0  # additional separators
        ids += [np.full(before, tokenizer.sep), part, np.array([tokenizer.sep])]
        segments.append(np.full(before + len(part) + 1, number))
        special += [np.ones(before), np.zeros(len(part)), np.ones(1)]
    return (
        np.concatenate(ids).astype(np.int64),
        np.concatenate(segments).astype(np.int64),
        np.concatenate(special).astype(bool),
    )
