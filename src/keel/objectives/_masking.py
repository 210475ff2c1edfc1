"""Selects the tokens to mask: single tokens, whole words, n-grams or spans of words.

In: rows with word starts, and the fraction of tokens to mask. Out: a mask over the tokens, a function of the row's key.

token   exactly round(mask_prob x ordinary tokens) of each row, at least one (Devlin et al. 2018)
word    whole words in random order, up to the same number as closely as words allow (Cui et al. 2019)
ngram   1 to `max_words` words at a time, n words with probability proportional to 1/n (Lan et al. 2019)
span    a geometric number of words at a time, p = 0.2, at most `max_words` (Joshi et al. 2019)

Special tokens and [UNK] are never selected, nor is a word that contains one. A word that is cut off at the end of a row
counts as a word.

Shapes: T tokens, R rows, G words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from keel.errors import UserError
from keel.interfaces import Tokenizer
from keel.randomness import Draw, uniform
from keel.values import Rows

STOP = 0.2

Unit = Literal["token", "word", "ngram", "span"]


def special_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Unique ids of the special tokens; some vocabularies use one token for several roles, or lack one."""
    ids = np.unique([tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk])
    return ids[ids >= 0]


def ordinary_tokens(rows: Rows, tokenizer: Tokenizer) -> np.ndarray:
    """(T,) bool"""
    return ~(rows.special | np.isin(rows.ids, special_ids(tokenizer)))


def select_tokens(
    rows: Rows, mask_prob: float, tokenizer: Tokenizer, unit: Unit = "token", max_words: int = 3
) -> np.ndarray:
    """(T,) bool"""
    ordinary, row = ordinary_tokens(rows, tokenizer), rows.row_of_token
    available = np.bincount(row, weights=ordinary, minlength=len(rows.lengths)).astype(np.int64)
    wanted = np.minimum(np.maximum(1, np.rint(mask_prob * available)), available)
    if unit == "token":
        return _choose_tokens(rows, ordinary, wanted)
    words = WordGroups.of(rows, ordinary)
    taken = _choose_words(rows, words, wanted) if unit == "word" else _choose_runs(rows, words, wanted, unit, max_words)
    return taken[words.of_token] & ordinary


def _choose_tokens(rows: Rows, ordinary: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """In each row the tokens with the smallest random numbers."""
    row = rows.row_of_token
    number = np.where(ordinary, uniform(rows.keys[row], Draw.MASKED_TOKENS, rows.position_of_token), 2.0)
    order = np.lexsort((number, row))
    rank = np.empty(len(row), np.int64)
    rank[order] = rows.position_of_token  # the sort keeps rows in place, so positions are ranks within each row
    chosen: np.ndarray = rank < wanted[row]
    return chosen


@dataclass(frozen=True)
class WordGroups:
    of_token: np.ndarray  # (T,) the word of each token
    first: np.ndarray  # (G,) a word's first token
    size: np.ndarray  # (G,)
    row: np.ndarray  # (G,)
    ordinary: np.ndarray  # (G,) bool: all of its tokens are ordinary

    @staticmethod
    def of(rows: Rows, ordinary: np.ndarray) -> WordGroups:
        starts = rows.word_starts | rows.special
        starts[1:] |= rows.special[:-1]  # a segment may begin inside a word
        starts[rows.starts] = True
        first = np.flatnonzero(starts)
        size = np.diff([*first, len(starts)])
        whole = np.minimum.reduceat(ordinary, first) if len(first) else np.zeros(0, bool)
        return WordGroups(np.cumsum(starts) - 1, first, size, rows.row_of_token[first], whole.astype(bool))


def _choose_words(rows: Rows, words: WordGroups, wanted: np.ndarray) -> np.ndarray:
    """(G,) bool: words in random order, as long as at least half of the next word fits into the wanted number."""
    number = uniform(rows.keys[words.row], Draw.MASKED_TOKENS, rows.position_of_token[words.first])
    order = np.lexsort((number, ~words.ordinary, words.row))
    size = np.where(words.ordinary, words.size, 0)[order]
    before = np.cumsum(size) - size
    row = words.row[order]
    begins = np.searchsorted(row, np.arange(len(rows.lengths)))
    before -= before[begins][row]
    taken = np.zeros(len(order), bool)
    taken[order] = words.ordinary[order] & ((before + size / 2 <= wanted[row]) | (before == 0))
    return taken


def _choose_runs(rows: Rows, words: WordGroups, wanted: np.ndarray, unit: Unit, max_words: int) -> np.ndarray:
    """(G,) bool: runs of consecutive words with random starts, in random order."""
    key, position = rows.keys[words.row], rows.position_of_token[words.first]
    number, draw = uniform(key, Draw.MASKED_TOKENS, position), uniform(key, Draw.SPAN_LENGTH, position)
    chances = np.cumsum(_chances(unit, max_words))
    count = np.searchsorted(chances, draw * chances[-1], side="right") + 1
    taken = np.zeros(len(words.first), bool)
    bounds = np.searchsorted(words.row, np.arange(len(rows.lengths) + 1))
    for row, (start, stop) in enumerate(pairwise(bounds)):
        done = 0
        for word in start + np.argsort(number[start:stop]):
            run = slice(word, min(word + count[word], stop))
            if taken[run].any() or not words.ordinary[run].all():
                continue
            size = int(words.size[run].sum())
            if done and done + size / 2 > wanted[row]:
                break
            taken[run] = True
            done += size
    return taken


def _chances(unit: Unit, max_words: int) -> np.ndarray:
    n = np.arange(1, max_words + 1)
    return 1 / n if unit == "ngram" else STOP * (1 - STOP) ** (n - 1)


def need_mask_token(objective: str, tokenizer: Tokenizer) -> None:
    if tokenizer.mask < 0:
        raise UserError(
            f"the tokenizer has no mask token, which {objective} needs; use a causal recipe, or a corpus built with "
            "another tokenizer"
        )
