"""How words are spelt, as the numbers that a character network reads (`layers/word_characters.py`).

In: words, or the entries of a tokenizer. Out: (words, longest) codes: a mark where the word begins, its bytes in UTF-8,
a mark where it ends, and zeros. Special tokens have a code of their own between the marks.

Notable choice: bytes, not characters, as Peters et al. 2018: 256 of them spell every script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # this room is used where torch is not loaded
    from keel.interfaces import Tokenizer

NOTHING, FIRST_BYTE, BEGIN, END = 0, 1, 257, 258
ROLES = ("pad", "unk", "cls", "sep", "mask")
CODES = END + 1 + len(ROLES)


def spell(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, longest) int16. Of a word that is too long, the beginning is kept."""
    codes = np.full((len(words), longest), NOTHING, np.int16)
    for row, word in zip(codes, words, strict=True):
        _write(row, [FIRST_BYTE + byte for byte in word.encode(errors="replace")[: longest - 2]])
    return codes


def spell_vocabulary(tokenizer: Tokenizer, longest: int) -> np.ndarray:
    """(V, longest): every entry of a tokenizer."""
    codes = spell([tokenizer.token(id) for id in range(tokenizer.size)], longest)
    for number, role in enumerate(ROLES):
        id = getattr(tokenizer, role)
        if id >= 0:
            codes[id] = NOTHING
            _write(codes[id], [END + 1 + number])
    return codes


def _write(row: np.ndarray, middle: Sequence[int]) -> None:
    row[: len(middle) + 2] = [BEGIN, *middle, END]


def unspell(codes: np.ndarray) -> str:
    """The word that a row of codes spells, as far as it was kept."""
    inside = codes[(codes >= FIRST_BYTE) & (codes < BEGIN)] - FIRST_BYTE
    return bytes(inside.astype(np.uint8)).decode(errors="replace")


def grams(word: str, least: int, most: int, buckets: int) -> list[int]:
    """The n-grams of `<word>`, from `least` to `most` characters long, as numbers below `buckets`.

    They are hashed (FNV-1a, 32 bits): different n-grams may share a number."""
    marked = f"<{word}>"
    found = []
    for size in range(least, most + 1):
        for start in range(len(marked) - size + 1):
            if 0 < size < len(marked):  # the whole of it has a vector of its own
                found.append(_hash(marked[start : start + size].encode(errors="replace")) % buckets)
    return found


def _hash(content: bytes) -> int:
    value = 2166136261
    for byte in content:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value
