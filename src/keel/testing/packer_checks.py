"""The contract of packers: one check per rule, `check(name, corpus)`.

In: the name of a packer, and a corpus, or `SentenceLengths`, which has all that a packer uses of one. Out: nothing, or
an AssertionError that names the rule and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keel import catalog
from keel.corpus.row_plan import Packer, RowPlan

ROW_LENGTHS = (8, 33, 70)


class SentenceLengths:
    """A corpus without tokens: documents as lists of sentence lengths. No two are copies."""

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        starts = np.cumsum([0, *(sum(document) for document in documents)])
        self.bounds = [np.cumsum([start, *d]) for start, d in zip(starts, documents, strict=False)]
        self.hashes = np.arange(len(documents), dtype=np.uint64)

    def sentence_bounds(self, document: int) -> np.ndarray:
        return self.bounds[document]


def some_documents(seed: int = 0, count: int = 30) -> SentenceLengths:
    """Documents of one to twelve sentences, some of one token, some longer than a row."""
    source = np.random.default_rng(seed)
    return SentenceLengths([source.integers(1, 40, source.integers(1, 13)).tolist() for _ in range(count)])


def packer_is_declared(name: str, corpus: Any) -> None:
    kind = catalog.find("packers", name)
    assert issubclass(kind, Packer), f"{name}: {kind.__name__} must extend keel.corpus.row_plan.Packer"
    kind.Config()


def rows_fit(name: str, corpus: Any) -> None:
    for length in ROW_LENGTHS:
        plan = _plan(name, corpus, length)
        assert len(plan) > 0, f"{name}: no rows of {length} tokens from {len(corpus.hashes)} documents"
        assert (np.diff(plan.first) > 0).all(), f"{name}: a row without text: every row needs at least one range"
        longest = int(plan.lengths.max())
        assert longest <= length, (
            f"{name}: a row has {longest} tokens, but {length} are allowed: count [CLS] and a [SEP] after each range"
        )
        assert plan.first[0] == 0 and plan.first[-1] == len(plan.ranges), f"{name}: `first` does not cover all ranges"


def ranges_are_text_of_one_document(name: str, corpus: Any) -> None:
    edges = np.unique([corpus.sentence_bounds(n)[[0, -1]] for n in range(len(corpus.hashes))])
    for length in ROW_LENGTHS:
        starts, stops = _plan(name, corpus, length).ranges.T
        assert (starts < stops).all() and starts.min() >= 0 and stops.max() <= edges[-1], (
            f"{name}: a range is empty or outside the corpus"
        )
        crossing = np.searchsorted(edges, starts, side="right") != np.searchsorted(edges, stops, side="left")
        assert not crossing.any(), (
            f"{name}: the range {starts[crossing][:1]} to {stops[crossing][:1]} crosses the end of a document: begin a "
            "new range there"
        )


def answers_are_one_for_each_row(name: str, corpus: Any) -> None:
    plan = _plan(name, corpus, ROW_LENGTHS[-1])
    for key, values in plan.answers.items():
        assert len(values) == len(plan), f"{name}: {len(values)} answers '{key}' for {len(plan)} rows: give one per row"
    for objective in catalog.names("objectives"):
        packing = catalog.find("objectives", objective).needs.packing
        served = packing is not None and catalog.name_of(packing) == catalog.name_of(name)
        assert not served or not plan.answers or objective in plan.answers, (
            f"{name}: the objective {objective} needs this packer, which only has answers for {sorted(plan.answers)}: "
            "name answers after the objective that reads them"
        )


def plans_depend_on_the_generator_alone(name: str, corpus: Any) -> None:
    one, other = (_plan(name, corpus, ROW_LENGTHS[-1]) for _ in range(2))
    same = np.array_equal(one.ranges, other.ranges) and np.array_equal(one.first, other.first)
    same = same and all(np.array_equal(values, other.answers[key]) for key, values in one.answers.items())
    assert same, f"{name}: the same generator gives another plan: draw only from the generator given to `plan`"


def _plan(name: str, corpus: Any, length: int) -> RowPlan:
    kind = catalog.find("packers", name)
    documents = np.arange(len(corpus.hashes))
    plan: RowPlan = kind(kind.Config(), corpus, documents, length).plan(documents, np.random.default_rng(0))
    return plan


PACKER_CHECKS: list[Callable[[str, Any], None]] = [
    packer_is_declared,
    rows_fit,
    ranges_are_text_of_one_document,
    answers_are_one_for_each_row,
    plans_depend_on_the_generator_alone,
]
