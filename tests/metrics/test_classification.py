"""The scores equal scikit-learn's with `labels=range(labels), zero_division=0`, on any input."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.metrics.classification import (
    Bin,
    Calibration,
    F1Scores,
    confusion,
    f1_scores,
    matthews,
    multilabel_counts,
    multilabel_f1_scores,
)

LABELS = 5
anything = settings(deadline=None, max_examples=100)
few_labels = st.integers(1, LABELS).flatmap(lambda n: st.tuples(*[st.integers(0, n - 1)] * 2))
guesses = st.lists(few_labels, min_size=1, max_size=30).map(lambda pairs: tuple(zip(*pairs, strict=True)))
flags = st.tuples(st.booleans(), st.booleans())  # gold, guessed
flag_rows = st.integers(2, 4).flatmap(lambda n: st.lists(st.lists(flags, min_size=n, max_size=n), min_size=1))


def calibration(confidence: Any, correct: Any, bins: int = 15) -> tuple[float, list[Bin]]:
    found = Calibration(bins)
    found.update(confidence, correct)
    return found.error, found.bins


def assert_is_scikit_learns(ours: F1Scores, gold: object, guessed: object, labels: int) -> None:
    choices = {"labels": range(labels), "zero_division": 0}
    precisions, recalls, f1s, supports = sk.precision_recall_fscore_support(gold, guessed, **choices)
    assert [label.precision for label in ours.per_label] == pytest.approx(precisions)
    assert [label.recall for label in ours.per_label] == pytest.approx(recalls)
    assert [label.f1 for label in ours.per_label] == pytest.approx(f1s)
    assert [label.support for label in ours.per_label] == list(supports)
    assert ours.macro == pytest.approx(sk.f1_score(gold, guessed, average="macro", **choices))
    assert ours.micro == pytest.approx(sk.f1_score(gold, guessed, average="micro", **choices))


@given(guesses)
@anything
def test_one_label_per_example(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    gold, guessed = pair
    table = confusion(gold, guessed, LABELS)
    assert (table == sk.confusion_matrix(gold, guessed, labels=range(LABELS))).all()
    assert_is_scikit_learns(f1_scores(table), gold, guessed, LABELS)
    assert f1_scores(table).micro == pytest.approx(sk.accuracy_score(gold, guessed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's warning that there is only one label
        assert matthews(table) == pytest.approx(sk.matthews_corrcoef(gold, guessed), abs=1e-12)


@given(flag_rows)
@anything
def test_many_labels_per_example(rows: list[list[tuple[bool, bool]]]) -> None:
    gold, guessed = np.moveaxis(np.array(rows), 2, 0)
    counts = multilabel_counts(gold, guessed.tolist())
    assert_is_scikit_learns(multilabel_f1_scores(counts), gold, guessed, gold.shape[1])


def test_matthews_of_a_large_set_does_not_overflow() -> None:
    """Squares of counts beyond 2^31 multiply beyond 2^63."""
    gold = np.arange(400_000) % 2
    assert matthews(confusion(gold, gold, 2)) == pytest.approx(1)
    assert matthews(confusion(gold, 1 - gold, 2)) == pytest.approx(-1)


def test_an_unused_label_counts_in_the_macro_average() -> None:
    """scikit-learn without `labels=` gives 1.0 here."""
    assert f1_scores(confusion([0, 1], [0, 1], 4)).macro == 0.5


sureness = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])  # some on the edges of bins


@given(st.lists(st.tuples(sureness, st.booleans()), min_size=1, max_size=60), st.integers(1, 20))
@anything
def test_calibration_is_the_formula_of_the_paper(pairs: list[tuple[float, bool]], bins: int) -> None:
    """Guo et al. 2017, equation 3: the sum over bins of |B| / n * |accuracy(B) - confidence(B)|."""
    error, listed = calibration(*zip(*pairs, strict=True), bins)  # type: ignore[misc]
    edges = np.linspace(0, 1, bins + 1)
    expected = 0.0
    for place, found in enumerate(listed):
        low = edges[place] if place else -1
        inside = [pair for pair in pairs if low < pair[0] <= edges[place + 1]]
        assert found.count == len(inside)
        if inside:
            sure, right = (float(np.mean(side)) for side in zip(*inside, strict=True))
            assert (found.confidence, found.accuracy) == pytest.approx((sure, right))
            expected += len(inside) / len(pairs) * abs(right - sure)
        else:
            assert math.isnan(found.confidence) and math.isnan(found.accuracy)
    assert len(listed) == bins
    assert error == pytest.approx(expected, abs=1e-12)


def test_known_calibrations() -> None:
    assert calibration([1.0, 1.0], [True, True])[0] == 0
    assert calibration([1.0, 1.0], [False, False])[0] == 1
    assert calibration([0.75] * 4, [True, True, True, False])[0] == 0
    assert calibration([0.9, 0.6], [True, True])[0] == pytest.approx(0.25)
    assert [found.count for found in calibration([0, 0.5, 0.51, 1], [1, 1, 1, 1], 2)[1]] == [2, 2]


def test_without_examples_means_are_nan_and_ratios_zero() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error, listed = calibration([], [])
        assert math.isnan(error) and [found.count for found in listed] == [0] * 15
        assert confusion([], [], 2).tolist() == [[0, 0], [0, 0]]
        nobody = f1_scores(confusion([], [], 2))
        assert (nobody.macro, nobody.micro, matthews(confusion([], [], 2))) == (0, 0, 0)
        for nothing in ([], np.zeros((0, 3))):
            scores = multilabel_f1_scores(multilabel_counts(nothing, nothing))
            assert (scores.macro, scores.micro) == (0, 0)


def test_input_that_would_give_a_plausible_wrong_number_is_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        confusion(np.zeros((3, 1)), np.zeros(3), 1)
    with pytest.raises(ValueError, match=r"0 \.\. 2, found -100 \.\. 1"):
        confusion([0, 1, -100], [0, 1, 2], 3)
    with pytest.raises(ValueError, match=r"0 \.\. 2"):
        confusion([0, 1], [0, 3], 3)
