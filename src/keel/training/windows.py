"""A task's windows as the rows of steps, and the objective's outputs for them.

In: windows in the order of their examples. Out: a source for the loop (whole examples, in an order that is a function
of seed and epoch), and one output for each window, in the given order.

Notable choice: outputs are computed over rows sorted by length in flat batches of a fixed number of tokens, so nothing
is padded, memory does not grow with the number of rows, and a row's output does not depend on its company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from keel.corpus.stream import Cursor
from keel.interfaces import Rows, Tokenizer, Window
from keel.randomness import mix
from keel.training.learner import Learner

BATCH_TOKENS = 4096
SLICE_TOKENS = 8192  # of a training step that are computed at once
POOL = 20  # steps whose examples are sorted by length together
ORDER, ROW, STEPS = 41, 42, 43  # the purposes the seed is used for


def to_rows(windows: Sequence[Window], keys: np.ndarray | None = None) -> Rows:
    """Longest first, as everywhere."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].ids))
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
        {name: np.concatenate([w.marks[name] for w in chosen]) for name in chosen[0].marks},
    )


def _stack(answers: list[np.ndarray]) -> np.ndarray:
    """One below the other; lists of different length are filled up with -1."""
    if answers[0].ndim != 1 or len({len(answer) for answer in answers}) == 1:
        return np.stack(answers)
    table = np.full((len(answers), max(len(answer) for answer in answers)), -1, answers[0].dtype)
    for row, answer in zip(table, answers, strict=True):
        row[: len(answer)] = answer
    return table


class Source:
    """The steps' rows: `batch` examples at a time, with all windows of each, in slices of bounded size.

    `whole`: an example's windows stay in one slice, because the objective compares them.
    `alike`: a step's examples are of similar length, because the objective pays for different ones.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        batch: int,
        slices: int,
        seed: int,
        *,
        whole: bool = False,
        alike: bool = False,
    ) -> None:
        self.windows = windows
        self.batch, self.slices, self.seed, self.whole, self.alike = batch, slices, seed, whole, alike
        self._order = lru_cache(maxsize=1)(self._shuffle)
        self.of_example: dict[int, list[int]] = {}
        for place, window in enumerate(windows):
            self.of_example.setdefault(window.example, []).append(place)
        self.examples = np.array(sorted(self.of_example))

    def __call__(self, progress: float, cursors: dict[str, Cursor]) -> tuple[list[Rows], dict[str, Cursor]]:
        at = cursors.get("main", Cursor())
        chosen = self._order(at.epoch)[at.row : at.row + self.batch].tolist()
        after = Cursor(at.epoch, 0, at.row + len(chosen))
        if after.row >= len(self.examples):
            after = Cursor(at.epoch + 1, 0, 0)
        deals = [chosen[i :: self.slices] for i in range(min(self.slices, len(chosen)))]
        slices = [places for deal in deals for places in self._bounded(deal)]
        return [self._rows(places, at.epoch) for places in slices], {"main": after}

    def _shuffle(self, epoch: int) -> np.ndarray:
        order = self.examples[np.argsort(mix(self.seed, ORDER, epoch, self.examples), kind="stable")]
        return self._group(order, epoch) if self.alike else order

    def _group(self, order: np.ndarray, epoch: int) -> np.ndarray:
        """Sorted by length within pools of some steps; then the steps are shuffled. The last, short one stays last."""
        pool = POOL * self.batch
        pools = (order[start : start + pool] for start in range(0, len(order), pool))
        ordered = np.concatenate([np.array(sorted(part.tolist(), key=self._length)) for part in pools])
        full = len(ordered) // self.batch
        steps = ordered[: full * self.batch].reshape(full, self.batch)
        steps = steps[np.argsort(mix(self.seed, STEPS, epoch, np.arange(full)), kind="stable")]
        return np.concatenate([steps.ravel(), ordered[full * self.batch :]])

    def _length(self, example: int) -> tuple[int, int]:
        """Of an example's windows, and of their answers."""
        windows = [self.windows[place] for place in self.of_example[example]]
        answers = sum(np.size(answer) for window in windows for answer in window.answers.values())
        return sum(len(window.ids) for window in windows), answers

    def _bounded(self, examples: Sequence[int]) -> Iterator[list[int]]:
        """The windows of these examples, at most about SLICE_TOKENS at a time: long texts have many."""
        units = [self.of_example[example] for example in examples]
        if not self.whole:
            units = [[place] for unit in units for place in unit]
        held: list[int] = []
        filled = 0
        for unit in units:
            size = sum(len(self.windows[place].ids) for place in unit)
            if held and filled + size > SLICE_TOKENS:
                yield held
                held, filled = [], 0
            held, filled = held + unit, filled + size
        yield held

    def _rows(self, places: Sequence[int], epoch: int) -> Rows:
        return to_rows([self.windows[p] for p in places], mix(self.seed, ROW, epoch, np.array(places)))


@torch.no_grad()
def outputs(
    learner: Learner,
    windows: Sequence[Window],
    tokenizer: Tokenizer,
    device: torch.device | str = "cpu",
) -> list[np.ndarray]:
    """What the learner's only objective predicts for each window: one vector for it, or one for each asked token."""
    learner.eval()
    (objective,) = learner.objectives.values()
    found: list[Any] = [None] * len(windows)
    for group in batches([len(w.ids) for w in windows]):
        rows = to_rows([windows[i] for i in group])  # the group is sorted already, so the order stays
        batch = learner.prepare(rows, tokenizer, device)
        predicted = objective.predict(learner.seen, batch).float().cpu().numpy()  # type: ignore[operator]
        counts = _counts(rows, str(objective.one_for), str(objective.name))
        for i, part in zip(group, np.split(predicted, np.cumsum(counts)[:-1]), strict=True):
            found[i] = part[0] if objective.one_for == "row" else part
    return found


def _counts(rows: Rows, one_for: str, name: str) -> np.ndarray:
    """How many outputs belong to each row."""
    if one_for == "mark":
        return np.bincount(rows.row_of_token[rows.marks[name] >= 0], minlength=len(rows.lengths))
    return np.array(rows.lengths) if one_for == "token" else np.ones(len(rows.lengths), np.int64)


def batches(lengths: Sequence[int], tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Places in order of length, longest first, in groups of about so many tokens."""
    group: list[int] = []
    filled = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and filled + lengths[i] > tokens:
            yield group
            group, filled = [], 0
        group.append(i)
        filled += lengths[i]
    if group:
        yield group
