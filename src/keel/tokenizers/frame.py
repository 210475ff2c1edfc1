"""Texts as a row that BERT reads: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with segment 1 for B.

In: the ids of one or two texts. Out: ids, segments, and which tokens are special.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # this room is used where torch is not loaded
    from keel.interfaces import Tokenizer


def frame(tokenizer: Tokenizer, parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pieces, segments = [np.array([tokenizer.cls])], [np.zeros(1, np.int64)]
    for number, part in enumerate(parts):
        pieces += [part, np.array([tokenizer.sep])]
        segments.append(np.full(len(part) + 1, number))
    ids = np.concatenate(pieces).astype(np.int64)
    special = np.zeros(len(ids), bool)
    special[0] = True
    special[np.cumsum([len(part) + 1 for part in parts])] = True
    return ids, np.concatenate(segments).astype(np.int64), special
