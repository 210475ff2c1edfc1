"""Word starts in Chinese text, for whole-word masking and inspection.

In: sentences and their ids. Out: for each sentence, which tokens start a word. Outside Chinese that is every token
without `##`. BERT makes each Chinese character a token, so there a segmenter decides: a character inside a segmented
word does not start one.

Notable choices
- rjieba instead of jieba: the same segmentation, many times faster. It gets all sentences in one call, joined by
  newlines: it splits at white space first, so the result is the same as for each sentence alone.
- No offsets in the common case. Chinese characters become tokens one by one and in order, so if a sentence has as many
  Chinese tokens as Chinese characters, the n-th token belongs to the n-th character; likewise if the [UNK] tokens make
  up exactly the difference. Other sentences (some [UNK]s for Chinese characters, some for other text) are encoded again
  with offsets.
- A word of letters and Chinese characters (T恤) starts at its first token; a run of letters after a Chinese character
  starts a word, because BERT never joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from keel.errors import UserError
from keel.tokenizers.characters import chinese_characters, code_points
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.wordpiece import CONTINUATION, WordPiece


def word_starts(texts: Sequence[str], ids: Sequence[np.ndarray], tokenizer: LibraryTokenizer) -> list[np.ndarray]:
    """Which tokens start a word. `ids` is the result of `tokenizer.encode(texts)`."""
    if not texts:
        return []
    if not isinstance(tokenizer, WordPiece):
        return _by_characters(texts, ids, tokenizer)
    block = "\n".join(texts)
    points = code_points(block)
    chinese = chinese_characters(points)
    cuts = segment(block, len(points))
    text_sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1  # plus the newline after each
    row_sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    tokens = np.concatenate(ids)
    starts = ~tokenizer.continues[tokens]

    expected = _sums(chinese, text_sizes)
    matches = _chinese_tokens(tokenizer)[tokens]
    aligned = _sums(matches, row_sizes) == expected
    if _one_each(tokenizer):
        unknown = tokens == tokenizer.unk
        by_unknown = ~aligned & (_sums(matches | unknown, row_sizes) == expected)
        matches |= unknown & np.repeat(by_unknown, row_sizes)
        aligned |= by_unknown
    characters = chinese & np.repeat(aligned, text_sizes)[: len(points)]
    starts[matches & np.repeat(aligned, row_sizes)] = cuts[characters]

    first_character, first_token = np.cumsum(text_sizes) - text_sizes, np.cumsum(row_sizes) - row_sizes
    for row in np.flatnonzero(~aligned).tolist():
        in_text = slice(first_character[row], first_character[row] + text_sizes[row])
        in_row = slice(first_token[row], first_token[row] + row_sizes[row])
        starts[in_row] &= _starts_by_offsets(texts[row], chinese[in_text], cuts[in_text], tokenizer)
    # The first character of a word may be deleted by normalisation; the first token of a row starts a word anyway.
    starts[first_token[row_sizes > 0]] = True
    return [starts[a:b] for a, b in zip(first_token.tolist(), np.cumsum(row_sizes).tolist(), strict=True)]


def _by_characters(texts: Sequence[str], ids: Sequence[np.ndarray], tokenizer: LibraryTokenizer) -> list[np.ndarray]:
    """For tokens that may be a part of a Chinese character or several characters: a token starts a word if it contains
    the first character of one, and no token before it does."""
    rows = []
    for text, starts in zip(texts, tokenizer.word_starts(ids), strict=True):
        first, end = np.array(tokenizer.encode_with_offsets(text)[1], dtype=np.int64).reshape(-1, 2).T
        begun = np.concatenate([[0], np.cumsum(segment(text, len(text)))])  # words that begin before each character
        chinese = np.append(chinese_characters(code_points(text)), False)
        covered = np.maximum.accumulate(np.concatenate([[0], end]))[:-1]  # by earlier tokens, at least in part
        new = np.maximum(first, covered)
        inside = chinese[first] | chinese[np.maximum(end - 1, first)]
        words = begun[np.maximum(end, new)] > begun[new]
        words[1:] &= first[:-1] < end[:-1]  # a space that was added before the text belongs to the word after it
        rows.append(np.where(inside, words, starts))
        rows[-1][:1] = True
    return rows


def _starts_by_offsets(text: str, chinese: np.ndarray, cuts: np.ndarray, tokenizer: WordPiece) -> np.ndarray:
    """The same from the offsets of the library: exact for every text, but slow. Does not consider `##`."""
    first, end = np.array(tokenizer.encode_with_offsets(text)[1], dtype=np.int64).reshape(-1, 2).T
    return ~((end - first == 1) & chinese[first]) | cuts[first]


def _sums(flags: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How many flags are set in each segment of these sizes; the last segment may extend past the end."""
    running = np.concatenate([[0], np.cumsum(flags)])
    ends = np.minimum(np.cumsum(sizes), len(flags))
    return running[ends] - running[np.cumsum(sizes) - sizes]


def segment(block: str, length: int) -> np.ndarray:
    """Which characters begin a segmented word."""
    words = _segmenter()(block)
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    cuts = np.zeros(length, dtype=bool)
    cuts[np.cumsum(sizes) - sizes] = True
    return cuts


@lru_cache(maxsize=4)
def _chinese_tokens(tokenizer: WordPiece) -> np.ndarray:
    """Which entries of the vocabulary are a single Chinese character."""
    return chinese_characters(np.array([ord(t) if len(t) == 1 else 0 for t in tokenizer.vocabulary], dtype=np.uint32))


@lru_cache(maxsize=4)
def _one_each(tokenizer: WordPiece) -> bool:
    """Whether every Chinese character becomes one token: true for BERT, unless an added token has several of them."""
    longer = "".join(token for token in tokenizer.vocabulary if len(token.removeprefix(CONTINUATION)) > 1)
    isolated = bool(tokenizer.normalisation["handle_chinese_chars"])
    return isolated and not chinese_characters(code_points(longer)).any()


def _segmenter() -> Callable[[str], list[str]]:
    try:
        import rjieba
    except ImportError:
        raise UserError("word starts of Chinese text need the segmenter: pip install 'keel-nlp[zh]'") from None
    cut: Callable[[str], list[str]] = rjieba.cut
    return cut
