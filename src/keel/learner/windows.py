"""Converts a task's windows to rows, and computes the objective's outputs for them.

In: windows in the order of their examples. Out: one output per window, in the given order.

Notable choice: rows are sorted by length and computed in flat batches of a fixed number of tokens, so nothing is
padded, memory does not grow with the number of rows, and a row's output does not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from keel.batching import groups
from keel.interfaces import CachedEncoder, Tokenizer
from keel.learner.learner import Learner
from keel.values import Batch, Rows, Window

BATCH_TOKENS = 4096


def to_rows(windows: Sequence[Window], keys: np.ndarray | None = None) -> Rows:
    """Rows, longest first."""
    order = by_length(windows)
    chosen = [windows[i] for i in order]
    ids = np.concatenate([w.ids for w in chosen])
    return Rows(
        ids,
        tuple(len(w.ids) for w in chosen),
        np.concatenate([w.segments for w in chosen]),
        np.concatenate([w.special for w in chosen]),
        np.ones(len(ids), bool),
        np.zeros(len(chosen), np.uint64) if keys is None else keys[order],
        {name: _stack([np.asarray(w.answers[name]) for w in chosen]) for name in chosen[0].answers},
        {name: np.concatenate([w.token_answers[name] for w in chosen]) for name in chosen[0].token_answers},
    )


def by_length(windows: Sequence[Window]) -> list[int]:
    """The order of the rows: the windows' indices, longest first."""
    return sorted(range(len(windows)), key=lambda i: -len(windows[i].ids))


def _stack(answers: list[np.ndarray]) -> np.ndarray:
    """Stacks answers; lists of different length are padded with -1."""
    if answers[0].ndim != 1 or len({len(answer) for answer in answers}) == 1:
        return np.stack(answers)
    table = np.full((len(answers), max(len(answer) for answer in answers)), -1, answers[0].dtype)
    for row, answer in zip(table, answers, strict=True):
        row[: len(answer)] = answer
    return table


def outputs(
    learner: Learner,
    windows: Sequence[Window],
    tokenizer: Tokenizer,
    device: torch.device | str = "cpu",
) -> list[np.ndarray]:
    """The predictions of the learner's only objective for each window: one vector, or `<name>.counts` of them."""
    results: list[Any] = [None] * len(windows)
    for group in batches([len(w.ids) for w in windows]):
        for i, part in zip(group, output(learner, [windows[i] for i in group], tokenizer, device), strict=True):
            results[i] = part
    return results


@torch.no_grad()
def output(
    learner: Learner,
    windows: Sequence[Window],
    tokenizer: Tokenizer,
    device: torch.device | str = "cpu",
    predict: Callable[[CachedEncoder, Batch], torch.Tensor] | None = None,
) -> list[np.ndarray]:
    """The same in one batch; `predict` instead of the objective's."""
    learner.eval()
    (objective,) = learner.objectives.values()
    order = by_length(windows)
    batch = learner.prepare(to_rows(windows), tokenizer, device)
    predicted = (predict or objective.predict)(learner.encoder(), batch).float().cpu().numpy()
    counts = batch.targets.get(f"{objective.name}.counts")
    parts = predicted if counts is None else np.split(predicted, np.cumsum(counts)[:-1])
    found: list[Any] = [None] * len(windows)
    for i, part in zip(order, parts, strict=True):
        found[i] = part
    return found


def batches(lengths: Sequence[int], tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices sorted by length, longest first, in groups of about `tokens` tokens."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return groups(order, lambda i: lengths[i], tokens)
