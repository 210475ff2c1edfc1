"""Word-level tokenizer: one entry for each frequent word, [UNK] for all others. For word2vec, fastText and ELMo.

In: texts to count, or a folder written here. Out: one id for each word or punctuation mark, normalised and split as in
BERT.

Notable choices
- This is WordPiece without pieces: a word without an entry cannot be assembled, so it is [UNK]. Everything else
  (normalisation, special tokens, offsets, the word cache) is the same code.
- A model that reads spellings can use out-of-vocabulary words: an `open` tokenizer gives each of them an id beyond the
  vocabulary, which is valid for the lifetime of the tokenizer object and is never saved.
- Chinese is written without spaces. If a substantial part of the texts is Chinese, a segmenter splits it into words
  first (extra `zh`); otherwise a Chinese character is a word by itself, as in BERT, and no segmenter is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer, models, trainers

from keel.errors import UserError
from keel.tokenizers.alphabet import blocks
from keel.tokenizers.characters import chinese_characters, code_points
from keel.tokenizers.chinese import segment
from keel.tokenizers.long_words import check_size
from keel.tokenizers.wordpiece import NO_PIECES, SPECIAL, WordPiece, assemble

SEGMENTED_SHARE = 0.3  # texts with more Chinese characters than this share of their letters are segmented


class WholeWords(WordPiece):
    kind = "words"
    whole_words = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.segments = not self.normalisation["handle_chinese_chars"]
        self._unlisted: dict[str, int] = {}
        self._unlisted_words: list[str] = []

    @staticmethod
    def of(opened: WordPiece) -> WholeWords:
        return WholeWords(opened._tokenizer)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        spaced, places = _spaced(text) if self.segments else (text, None)
        ids, offsets = super().encode_with_offsets(spaced)
        if self.open:
            words = (spaced[a:b] for a, b in offsets)
            ids = [self._unlisted_id(w) if id == self.unk else id for id, w in zip(ids, words, strict=True)]
        if places is None:
            return ids, offsets
        return ids, [(int(places[a]), int(places[b - 1]) + 1) if a < b else (int(places[a]),) * 2 for a, b in offsets]

    def token(self, id: int) -> str:
        return super().token(id) if id < self.size else self._unlisted_words[id - self.size]

    def shown(self, id: int) -> str:
        return super().shown(id) if id < self.size else self._unlisted_words[id - self.size]

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        if self.open:
            return [np.array(self.encode_with_offsets(text)[0], dtype=np.int32) for text in texts]
        return super()._encode([_spaced(text)[0] for text in texts] if self.segments else texts)

    def _unlisted_id(self, word: str) -> int:
        word = str(self._tokenizer.normalizer.normalize_str(word)).strip()
        if word not in self._unlisted:
            self._unlisted[word] = self.size + len(self._unlisted_words)
            self._unlisted_words.append(word)
        return self._unlisted[word]


def learn_words(
    texts: Iterable[str],
    size: int,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    min_frequency: int = 5,
) -> WholeWords:
    """Learns the `size` most frequent words that occur at least `min_frequency` times. `texts` is read once."""
    check_size(size, len(SPECIAL), f"the {len(SPECIAL)} special tokens")
    parts = blocks(texts)
    first = next(parts, "")
    segmented = _needs_segmenting(first)
    counter = assemble({}, lowercase, strip_accents, not segmented)
    counter.model = models.WordLevel({}, "[UNK]")
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_frequency, special_tokens=list(SPECIAL), show_progress=False
    )
    read: Iterator[str] = chain([first], parts)
    counter.train_from_iterator((_spaced(text)[0] for text in read) if segmented else read, trainer)
    vocabulary = counter.get_vocab()
    if len(vocabulary) == len(SPECIAL):
        raise UserError(
            f"no word occurs {min_frequency} times in the texts; give more text, or a lower --min-frequency"
        )
    return WholeWords(assemble(vocabulary, lowercase, strip_accents, not segmented, NO_PIECES))


def from_list(words: Sequence[str], lowercase: bool) -> WholeWords:
    """A vocabulary of these words, in this order, after the special tokens. Accents are kept."""
    vocabulary = {token: id for id, token in enumerate([*SPECIAL, *words])}
    if len(vocabulary) < len(SPECIAL) + len(words):
        raise UserError("a word occurs twice, or is spelt like a special token; remove it")
    return WholeWords(assemble(vocabulary, lowercase, False, not _needs_segmenting(" ".join(words)), NO_PIECES))


def _needs_segmenting(text: str) -> bool:
    points = code_points(text)
    letters = sum(map(str.isalpha, text))
    return bool(chinese_characters(points).sum() > SEGMENTED_SHARE * max(1, letters))


def _spaced(text: str) -> tuple[str, np.ndarray]:
    """The text with a space before every Chinese word, and the original position of each of its characters."""
    points = code_points(text)
    chinese = chinese_characters(points)
    places = np.arange(len(points))
    if not chinese.any():
        return text, places
    begins = segment(text, len(points))
    begins[1:] &= chinese[1:] | chinese[:-1]
    begins[0] = False
    before = np.flatnonzero(begins)
    spaced = np.insert(points, before, ord(" ")).astype("<u4").tobytes().decode("utf-32-le")
    return spaced, np.insert(places, before, before)
