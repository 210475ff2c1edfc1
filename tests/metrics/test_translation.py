"""BLEU and chrF of groups of translations equal sacrebleu's of all of them, and BLEU the published formula."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.metrics.translation import TranslationCounts, sentence_chrf

words = st.sampled_from(["the", "a", "harbour", "boats", "sailing", ",", ".", "港", "口", "!", "don't", "3.5"])
texts = st.lists(words, max_size=9).map(" ".join) | st.text(max_size=12)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=8)


def scores(translations: list[str], references: list[str], size: int = 3) -> tuple[float, float]:
    counts = TranslationCounts()
    for place in range(0, len(translations), size):
        counts.update(translations[place : place + size], references[place : place + size])
    return counts.bleu, counts.chrf


@settings(deadline=None, max_examples=150)
@given(pairs, st.integers(1, 8))
def test_groups_give_what_sacrebleu_gives_for_all(given: list[tuple[str, str]], size: int) -> None:
    translations, references = [pair[0] for pair in given], [pair[1] for pair in given]
    bleu, chrf = scores(translations, references, size)
    assert bleu == pytest.approx(sacrebleu.corpus_bleu(translations, [references]).score, abs=1e-9)
    assert chrf == pytest.approx(sacrebleu.corpus_chrf(translations, [references]).score, abs=1e-9)
    for translation, reference in given:
        expected = sacrebleu.sentence_chrf(translation, [reference]).score
        assert sentence_chrf(translation, reference) == pytest.approx(expected, abs=1e-9)


def test_bleu_is_the_published_formula() -> None:
    """Papineni et al. 2002: the geometric mean of four precisions, times exp(1 - r/c) where c is shorter than r."""
    right = ["a b c d e f", "g h i j"]
    assert scores(right, right) == pytest.approx((100, 100))
    precisions = [(5 + 4) / 10, (4 + 3) / 8, (3 + 2) / 6, (2 + 1) / 4]  # of both texts together; one word is wrong
    assert scores(["a b c d e x", "g h i j"], right)[0] == pytest.approx(100 * float(np.prod(precisions)) ** 0.25)
    assert scores(["a b c d e", "g h i j"], right)[0] == pytest.approx(100 * np.exp(1 - 10 / 9))


def test_chrf_compares_letters() -> None:
    right = ["remembers the harbour"]
    near, far = scores(["remembered the harbours"], right)[1], scores(["forgets every mast"], right)[1]
    assert 100 > near > 60 > 30 > far
    assert scores(["xyz"], ["abc"])[1] == 0.0
