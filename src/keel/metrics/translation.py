"""Machine translation: BLEU (Papineni et al. 2002) and chrF (Popovic 2015), equal to sacrebleu's with its defaults.

In: translations and one reference for each, as plain (detokenized) text, group by group. Out: scores from 0 to 100.

Notable choice: both scores are ratios of n-gram counts, so only their sums are kept. sacrebleu counts the n-grams; for
chrF it has no function that computes the score from sums, so the formula is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keel.errors import UserError


class TranslationCounts:
    """Corpus BLEU (cased, 13a tokenization, exponential smoothing) and chrF2 (character n-grams up to 6, no words)."""

    def __init__(self) -> None:
        metrics = need_sacrebleu().metrics
        self._metric = metrics.BLEU()
        self._ngrams = np.zeros((2, self._metric.max_ngram_order), np.int64)  # correct, all
        self._words = np.zeros(2, np.int64)  # translations, references
        self._characters = np.zeros((metrics.CHRF.CHAR_ORDER, 3), np.int64)  # n-grams: translated, in gold, in both

    def update(self, translations: Sequence[str], references: Sequence[str]) -> None:
        if not translations:
            return
        found = self._metric.corpus_score(list(translations), [list(references)])
        self._ngrams += [found.counts, found.totals]
        self._words += [found.sys_len, found.ref_len]
        for translation, reference in zip(translations, references, strict=True):
            self._characters += _common_ngrams(translation, reference)

    @property
    def bleu(self) -> float:
        (correct, total), (translated, gold) = self._ngrams.tolist(), self._words.tolist()
        return float(self._metric.compute_bleu(correct, total, translated, gold, smooth_method="exp").score)

    @property
    def chrf(self) -> float:
        return _chrf(self._characters)


def sentence_chrf(translation: str, reference: str) -> float:
    return _chrf(_common_ngrams(translation, reference))


def _common_ngrams(translation: str, reference: str) -> np.ndarray:
    """(orders, 3): the number of character n-grams of the translation, of the reference, and in both."""
    metrics = need_sacrebleu().metrics
    order = metrics.CHRF.CHAR_ORDER
    extract = metrics.helpers.extract_all_char_ngrams
    counts = []
    for ours, gold in zip(extract(translation, order, False), extract(reference, order, False), strict=True):
        common = sum(min(count, gold[ngram]) for ngram, count in ours.items())
        counts.append((ours.total() if gold else 0, gold.total(), common))
    return np.array(counts)


def _chrf(counts: np.ndarray) -> float:
    """F2 of the mean precision and the mean recall, over the orders that both sides have (Popovic 2015)."""
    ours, gold, common = counts[(counts[:, 0] > 0) & (counts[:, 1] > 0)].T
    if not common.any():
        return 0.0
    precision, recall = float((common / ours).mean()), float((common / gold).mean())
    return 100 * 5 * precision * recall / (4 * precision + recall)


def need_sacrebleu() -> Any:
    """The library; an error explains how to install it."""
    try:
        import sacrebleu
    except ImportError:
        raise UserError("translations are scored with sacrebleu: pip install 'keel-nlp[translate]'") from None
    return sacrebleu
