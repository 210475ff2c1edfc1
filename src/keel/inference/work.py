"""Work: a question to a model, tokenized, as rows to compute and a way from their outputs to the answer.

In: rows. Out: the answer. `Model` makes the work of `fill`, `embed` and `predict`; `run` computes one by itself, and a
server computes the rows of many together.

Notable choice: tokenizing, computing and formatting are separate steps of every question, so a server can do the first
and the last on other threads and still give the answers of `keel predict`, `embed` and `fill`: it is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from keel.learner.windows import BATCH_TOKENS, batches

T = TypeVar("T")


@dataclass(frozen=True)
class Work(Generic[T]):
    """Rows of works with equal keys can be computed together."""

    key: Hashable
    rows: Sequence[Any]
    sizes: Sequence[int]  # of each row, in tokens
    compute: Callable[[list[Any]], list[Any]]  # one output for each row of a batch
    finish: Callable[[list[Any]], T]  # the answer, from the outputs of all rows


def run(work: Work[T], tokens: int = BATCH_TOKENS) -> T:
    """Computes a work in batches of about `tokens` tokens."""
    outputs: list[Any] = [None] * len(work.rows)
    for group in batches(work.sizes, tokens):
        for place, output in zip(group, work.compute([work.rows[i] for i in group]), strict=True):
            outputs[place] = output
    return work.finish(outputs)
