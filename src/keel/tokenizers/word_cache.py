"""Encodes by caching words: the ids of the tokenizers library, several times faster.

In: texts. Out: their ids. The few texts for which caching is not safe are encoded by the library.

Notable choices
- BERT splits a text into words first, and the ids of a word do not depend on the text around it. Texts repeat their
  words, so each distinct word is encoded by the library once and cached; numpy finds the words. The library itself
  caches nothing, and tracks the origin of every change character by character.
- Characters that are always a word by themselves (Chinese, punctuation) need no cache: a table holds their ids.
- Special and added tokens may cross word boundaries, so the library encodes texts that contain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from keel.tokenizers.characters import CODE_POINTS, ODD, STANDS_ALONE, Characters, code_points

WORDS_CACHED = 100_000
LONGEST_CACHED = 40  # characters
NOTHING, UNTRIED = -1, -2


class WordCache:
    def __init__(self, tokenizer: Tokenizer, continues: np.ndarray) -> None:
        added = tokenizer.get_added_tokens_decoder().values()
        self._tokenizer = tokenizer
        self._continues = continues
        # A token that is matched in normalised text cannot be found in the raw text; "" is in every text.
        self._whole = [""] if any(token.normalized for token in added) else [token.content for token in added]
        self._characters = Characters(tokenizer)
        self._alone = np.full(CODE_POINTS, UNTRIED, dtype=np.int32)
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of some texts (of moderate size in all), without [CLS] and [SEP]."""
        block = "\n".join(texts)
        if any(token in block for token in self._whole):
            return self._encode_apart(texts, [any(token in text for token in self._whole) for text in texts])
        points = code_points(block)
        kinds = self._characters.kinds(points)
        bounds = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        if (kinds == ODD).any():
            odd = np.searchsorted(bounds, np.flatnonzero(kinds == ODD), side="right")
            return self._encode_apart(texts, np.isin(np.arange(len(texts)), odd).tolist())
        ids, offsets = self._assemble(points, kinds)
        stops = offsets[bounds - 1].tolist()
        return [ids[a:b] for a, b in zip([0, *stops[:-1]], stops, strict=True)]

    def _encode_apart(self, texts: Sequence[str], hard: list[bool]) -> list[np.ndarray]:
        easy = iter(self.encode([text for text, h in zip(texts, hard, strict=True) if not h]) if not all(hard) else [])
        whole = iter(self._encode_by_library([text for text, h in zip(texts, hard, strict=True) if h]))
        return [np.array(next(whole), dtype=np.int32) if h else next(easy) for h in hard]

    def _encode_by_library(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode_words(self, words: list[str]) -> list[list[int]]:
        """The ids of each word, encoded together: the library's overhead per text equals that of many words."""
        ids = self._encode_by_library([" ".join(words)])[0]
        starts = np.flatnonzero(~self._continues[ids]).tolist() if ids else []
        if len(starts) != len(words) or not words:  # normalisation deleted some word
            return self._encode_by_library(words)
        return [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]

    def _assemble(self, points: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All ids of a block, and the number of ids before each character and before the end."""
        alone = kinds == STANDS_ALONE
        in_word = ~alone
        firsts = in_word.copy()
        firsts[1:] &= alone[:-1]
        words = self._look_up(_cut(points, in_word))

        symbols = np.full(len(points), NOTHING, dtype=np.int32)
        symbols[alone] = self._stand_alone(points[alone])
        counts = (symbols != NOTHING).astype(np.int64)
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        counts[firsts] = sizes
        offsets = np.concatenate([[0], np.cumsum(counts)])

        ids = np.empty(offsets[-1], dtype=np.int32)
        shown = symbols != NOTHING
        ids[offsets[:-1][shown]] = symbols[shown]
        places = np.repeat(offsets[:-1][firsts] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        ids[places] = np.fromiter(chain.from_iterable(words), np.int32, len(places))
        return ids, offsets

    def _stand_alone(self, points: np.ndarray) -> np.ndarray:
        ids = self._alone[points]
        if (ids == UNTRIED).any():
            new = np.unique(points[ids == UNTRIED]).tolist()
            for point, encoded in zip(new, self._encode_by_library([chr(point) for point in new]), strict=True):
                self._alone[point] = encoded[0] if encoded else NOTHING
            ids = self._alone[points]
        return ids

    def _look_up(self, words: list[str]) -> list[tuple[int, ...]]:
        cached = list(map(self._words.get, words))
        missing = list(dict.fromkeys(word for word, ids in zip(words, cached, strict=True) if ids is None))
        fresh = dict(zip(missing, map(tuple, self._encode_words(missing)), strict=True))
        if len(self._words) + len(fresh) > WORDS_CACHED:
            self._words.clear()
        self._words.update((word, ids) for word, ids in fresh.items() if len(word) <= LONGEST_CACHED)
        return [fresh[word] if ids is None else ids for word, ids in zip(words, cached, strict=True)]


def _cut(points: np.ndarray, in_word: np.ndarray) -> list[str]:
    """The words of a block: joined by single spaces and split by `str.split`, at the speed of C."""
    kept = in_word.copy()
    kept[1:] |= in_word[:-1]
    text = np.where(in_word, points, ord(" "))[kept].astype("<u4").tobytes().decode("utf-32-le")
    return text.removesuffix(" ").split(" ") if text else []
