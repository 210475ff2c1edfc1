"""A minimal tokenizer for tests: splits at white space and hashes words to 65 ids.

In: texts. Out: ids from 5 to 69; 0 to 4 are the special tokens. The words `w5` to `w69` have the ids they name, so
`encode` inverts `decode`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

import numpy as np

SIZE = 70
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIAL, *(f"w{id}" for id in range(len(SPECIAL), SIZE)))
WORD = re.compile(r"\S+")
IDS = {word: id for id, word in enumerate(VOCABULARY)}


class StubTokenizer:
    size = SIZE
    pad, unk, cls, sep, mask = range(len(SPECIAL))
    between = 1

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([_id(word) for word in text.split()], np.int32) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        words = list(WORD.finditer(text))
        return [_id(word[0]) for word in words], [word.span() for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.token(id) for id in ids)

    def token(self, id: int) -> str:
        return VOCABULARY[id]

    def fingerprint(self) -> str:
        return "stub"


def _id(word: str) -> int:
    return IDS.get(word, len(SPECIAL) + crc32(word.encode()) % (SIZE - len(SPECIAL)))
