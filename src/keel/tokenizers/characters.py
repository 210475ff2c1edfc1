"""Determines how the tokenizers library treats each character, with one trial per distinct character.

In: code points. Out: whether a character is part of the word around it, and what normalisation turns it into.

Notable choices
- BERT's normaliser and pre-tokenizer process one character at a time, so trying each character between two letters
  determines their behaviour completely. No Unicode rules are repeated here, so none can diverge from the library's.
- Characters are arrays of code points, so that numpy can process large blocks of text.
"""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer

CODE_POINTS = 0x110000
UNSEEN, VANISHES, JOINS, STANDS_ALONE, ODD = range(5)  # the effect of a character on the word around it

# The blocks that BERT separates, as in the tokenizers library (its 0x2B920 is 0x2B820 in BERT's own code).
CHINESE_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def chinese_characters(points: np.ndarray) -> np.ndarray:
    """Which code points BERT treats as Chinese characters."""
    chinese = np.zeros(len(points), dtype=bool)
    for first, last in CHINESE_BLOCKS:
        chinese |= (points >= first) & (points <= last)
    return chinese


class Characters:
    """A table of characters that is filled as they are encountered."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._normalise = tokenizer.normalizer.normalize_str
        self._split = tokenizer.pre_tokenizer.pre_tokenize_str
        self._kinds = np.full(CODE_POINTS, UNSEEN, dtype=np.uint8)
        self.images: dict[int, list[str]] = {}  # the words, or parts of words, that a character turns into

    def kinds(self, points: np.ndarray) -> np.ndarray:
        kinds = self._kinds[points]
        if (kinds == UNSEEN).any():
            for point in np.unique(points[kinds == UNSEEN]).tolist():
                self._kinds[point], self.images[point] = self._try(chr(point))
            kinds = self._kinds[points]
        return kinds

    def _try(self, character: str) -> tuple[int, list[str]]:
        words = [word for word, _ in self._split(self._normalise(f"a{character}a"))]
        if len(words) == 1:
            image = words[0][1:-1]
            return (JOINS if image else VANISHES), [image]
        if words[0] == words[-1] == "a":
            return STANDS_ALONE, words[1:-1]
        return ODD, [words[0][1:], *words[1:-1], words[-1][:-1]]
