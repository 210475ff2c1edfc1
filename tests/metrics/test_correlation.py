"""The correlations equal scipy's; where they are undefined, nan without a warning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keel.metrics.correlation import pearson, spearman

anything = settings(deadline=None, max_examples=150)
# Multiples of a quarter give many ties, and no differences so small that two sums round differently.
numbers = st.integers(-40, 40).map(lambda quarters: quarters / 4)
pairs = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=30).map(lambda rows: tuple(zip(*rows, strict=True)))


@given(pairs)
@anything
def test_equal_to_scipy(pair: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    a, b = pair
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert pearson(a, b) == pytest.approx(scipy.stats.pearsonr(a, b).statistic, abs=1e-9)
    assert spearman(list(a), np.array(b)) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-9)


@given(pairs, st.sampled_from([1e-300, 1e-5, 1.0, 1e5, 1e300]))
@anything
def test_scale_does_not_matter(pair: tuple[tuple[float, ...], tuple[float, ...]], scale: float) -> None:
    a, b = (np.array(side) for side in pair)
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert pearson(a * scale, b) == pytest.approx(pearson(a, b), abs=1e-9)
    assert spearman(np.exp(a), b) == pytest.approx(spearman(a, b), abs=1e-9)


@given(st.lists(st.floats(), max_size=8).flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))))
@anything
def test_any_floats_give_nan_or_a_correlation_without_a_warning(pair: tuple[list[float], list[float]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for measure in (pearson, spearman):
            assert math.isnan(measure(*pair)) or -1 <= measure(*pair) <= 1


@pytest.mark.parametrize("measure", [pearson, spearman])
def test_undefined_is_nan(measure: Callable[..., float]) -> None:
    undefined: list[tuple[list[float], list[float]]] = [
        ([], []),
        ([1], [2]),
        ([0.1] * 3, [1, 2, 3]),  # the mean of these is not 0.1
        ([1, 2, 3], [0] * 3),
        ([1, math.nan], [1, 2]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(math.isnan(measure(*pair)) for pair in undefined)
    with pytest.raises(ValueError, match="same length"):
        measure([1, 2, 3], [1])
