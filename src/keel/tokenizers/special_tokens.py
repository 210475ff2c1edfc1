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
    length = framing(tokenizer, len(parts)) + sum(map(len, parts))
    ids = np.full(length, tokenizer.sep, np.int64)
    segments, special = np.zeros(length, np.int64), np.ones(length, bool)
    ids[0] = tokenizer.cls
    stop = 1
    for number, part in enumerate(parts):
        before = tokenizer.between - 1 if number else 0  # additional separators
        start = stop + before
        ids[start : start + len(part)] = part
        special[start : start + len(part)] = False
        if number:
            segments[stop : start + len(part) + 1] = number
        stop = start + len(part) + 1
    return ids, segments, special
