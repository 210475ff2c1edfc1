"""Masked tokens: whole words where requested, about the requested share, and never special tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.objectives._masking import Unit, WordGroups, ordinary_tokens, select_tokens
from keel.values import Rows

SIZE = 90


class Vocabulary:
    size, pad, unk, cls, sep, mask, between = SIZE, 0, 1, 2, 3, 4, 1


@pytest.fixture(scope="module")
def make(make_rows: Callable[..., Rows]) -> Callable[..., Rows]:
    def made(lengths: tuple[int, ...], seed: int, unknown: float = 0.05) -> Rows:
        rows = make_rows(lengths, SIZE, seed)
        source = np.random.default_rng(seed)
        ids = np.where((source.random(len(rows.ids)) < unknown) & ~rows.special, 1, rows.ids)
        return replace(rows, ids=ids, word_starts=rows.special | (source.random(len(rows.ids)) < 0.6))

    return made


lengths = st.lists(st.integers(4, 60), min_size=1, max_size=6).map(lambda some: tuple(sorted(some, reverse=True)))


@settings(deadline=None, max_examples=150)
@given(lengths, st.integers(0, 1000), st.sampled_from(["word", "ngram", "span"]), st.floats(0.05, 0.5))
def test_whole_words_and_nothing_special(
    make: Callable[..., Rows], lengths: tuple[int, ...], seed: int, unit: Unit, share: float
) -> None:
    rows = make(lengths, seed)
    chosen = select_tokens(rows, share, Vocabulary(), unit, 4)  # type: ignore[arg-type]
    ordinary = ordinary_tokens(rows, Vocabulary())  # type: ignore[arg-type]
    words = WordGroups.of(rows, ordinary)
    assert not (chosen & ~ordinary).any()
    counts = np.bincount(words.of_token, weights=chosen)
    assert set((counts / words.size).tolist()) <= {0.0, 1.0}, "a word is masked as a whole or not at all"
    for row, (start, length) in enumerate(zip(rows.starts, rows.lengths, strict=True)):
        part = slice(start, start + length)
        whole = words.ordinary[words.row == row]
        wanted = max(1, round(share * ordinary[part].sum()))
        longest = words.size.max() * (1 if unit == "word" else 4)
        assert chosen[part].sum() <= wanted + longest
        if whole.any() and unit == "word":
            assert chosen[part].any()
    again = select_tokens(rows.pick([0]), share, Vocabulary(), unit, 4)  # type: ignore[arg-type]
    assert np.array_equal(chosen[: rows.lengths[0]], again), "the masks of a row do not depend on the other rows"


@pytest.mark.parametrize("unit", ["token", "word", "ngram", "span"])
def test_the_share_is_kept_on_average(make: Callable[..., Rows], unit: Unit) -> None:
    rows = make((128,) * 400, 3, 0.0)
    ordinary = ordinary_tokens(rows, Vocabulary())  # type: ignore[arg-type]
    share = select_tokens(rows, 0.15, Vocabulary(), unit, 10 if unit == "span" else 3)[ordinary].mean()  # type: ignore[arg-type]
    assert share == pytest.approx(0.15, abs=0.008)


def test_runs_have_the_lengths_of_their_papers(make: Callable[..., Rows]) -> None:
    """With one token per word and few of them selected, spans rarely touch: runs of selected tokens are the spans."""
    rows = make((512,) * 400, 5, 0.0)
    rows = replace(rows, word_starts=np.ones(len(rows.ids), bool))
    for unit, longest, mean in (("ngram", 3, 3 / (1 + 1 / 2 + 1 / 3)), ("span", 10, 3.8)):
        chosen = select_tokens(rows, 0.02, Vocabulary(), unit, longest)  # type: ignore[arg-type]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
        assert np.mean(edges[1::2] - edges[::2]) == pytest.approx(mean, rel=0.08)
