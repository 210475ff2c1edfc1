"""Spellings of words as codes, for character CNNs (`layers/word_characters.py`) and character n-grams.

In: words, or the entries of a tokenizer. Out: (words, longest) codes: a begin mark, the UTF-8 bytes of the word, an end
mark, and zeros. A special token has a code of its own between the marks.

Notable choice: bytes instead of characters, as in Peters et al. 2018: 256 of them spell every script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # tokenizers must not load torch
    from keel.interfaces import Tokenizer

NOTHING, FIRST_BYTE, BEGIN, END = 0, 1, 257, 258
ROLES = ("pad", "unk", "cls", "sep", "mask")
CODES = END + 1 + len(ROLES)


def spell(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, longest) int16. A word that is too long is truncated."""
    codes = np.full((len(words), longest), NOTHING, np.int16)
    for row, word in zip(codes, words, strict=True):
        _write(row, [FIRST_BYTE + byte for byte in word.encode(errors="replace")[: longest - 2]])
    return codes


def spell_vocabulary(tokenizer: Tokenizer, longest: int) -> np.ndarray:
    """(V, longest) int16: every entry of a tokenizer."""
    codes = spell([tokenizer.token(id) for id in range(tokenizer.size)], longest)
    special = (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask)  # in the order of ROLES
    for number, id in enumerate(special):
        if id >= 0:
            codes[id] = NOTHING
            _write(codes[id], [END + 1 + number])
    return codes


def _write(row: np.ndarray, middle: Sequence[int]) -> None:
    row[: len(middle) + 2] = [BEGIN, *middle, END]


def unspell(codes: np.ndarray) -> str:
    """The word that a row of codes spells; truncated if the codes are."""
    inside = codes[(codes >= FIRST_BYTE) & (codes < BEGIN)] - FIRST_BYTE
    return bytes(inside.astype(np.uint8)).decode(errors="replace")


def grams(word: str, least: int, most: int, buckets: int) -> list[int]:
    """The n-grams of `<word>`, from `least` to `most` characters long, as bucket numbers below `buckets`.

    They are hashed (FNV-1a, 32 bits), so different n-grams may share a bucket."""
    marked = f"<{word}>"
    numbers = []
    for size in range(least, most + 1):
        for start in range(len(marked) - size + 1):
            if 0 < size < len(marked):  # the complete word has a vector of its own
                numbers.append(_hash(marked[start : start + size].encode(errors="replace")) % buckets)
    return numbers


def _hash(content: bytes) -> int:
    value = 2166136261
    for byte in content:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value
