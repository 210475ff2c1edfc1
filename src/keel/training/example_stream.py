"""The rows of each fine-tuning step: all windows of its examples, in an order that is a function of seed and epoch.

In: a task's windows in the order of their examples. Out: for the loop, the micro-batches of the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from keel.batching import groups
from keel.corpus.stream import Cursor
from keel.learner.windows import to_rows
from keel.randomness import Draw, mix
from keel.training.settings import FinetuneSettings
from keel.values import Rows, TaskNeeds, Window

MICRO_BATCH_TOKENS = 8192  # maximum number of tokens computed at once
POOL = 20  # steps whose examples are sorted by length together


class ExampleStream:
    """`settings.batch_size` examples a step, with all windows of each, in micro-batches of bounded size."""

    def __init__(self, windows: Sequence[Window], settings: FinetuneSettings, needs: TaskNeeds) -> None:
        self.windows, self.needs = windows, needs
        self.batch, self.micro_batches, self.seed = settings.batch_size, settings.micro_batches, settings.seed
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
        count = min(self.micro_batches, len(chosen))
        deals = [chosen[i :: self.micro_batches] for i in range(count)]
        bounded = [places for deal in deals for places in self._bounded(deal)]
        return [self._rows(places, at.epoch) for places in bounded], {"main": after}

    def _shuffle(self, epoch: int) -> np.ndarray:
        keys = mix(self.seed, Draw.EXAMPLE_ORDER, epoch, self.examples)
        order = self.examples[np.argsort(keys, kind="stable")]
        return self._group(order, epoch) if self.needs.group_by_length else order

    def _group(self, order: np.ndarray, epoch: int) -> np.ndarray:
        """Sorted by length within pools of some steps; then the steps are shuffled, except an incomplete last one."""
        pool = POOL * self.batch
        pools = (order[start : start + pool] for start in range(0, len(order), pool))
        ordered = np.concatenate([np.array(sorted(part.tolist(), key=self._length)) for part in pools])
        full = len(ordered) // self.batch
        steps = ordered[: full * self.batch].reshape(full, self.batch)
        steps = steps[np.argsort(mix(self.seed, Draw.STEP_ORDER, epoch, np.arange(full)), kind="stable")]
        return np.concatenate([steps.ravel(), ordered[full * self.batch :]])

    def _length(self, example: int) -> tuple[int, int]:
        """The tokens in an example's windows, and in their answers."""
        windows = [self.windows[place] for place in self.of_example[example]]
        answers = sum(np.size(answer) for window in windows for answer in window.answers.values())
        return sum(len(window.ids) for window in windows), answers

    def _bounded(self, examples: Sequence[int]) -> Iterator[list[int]]:
        """The windows of these examples, in groups of at most about MICRO_BATCH_TOKENS: long texts have many."""
        units = [self.of_example[example] for example in examples]
        if not self.needs.keep_together:
            units = [[place] for unit in units for place in unit]
        for group in groups(units, self._tokens, MICRO_BATCH_TOKENS):
            yield [place for unit in group for place in unit]

    def _tokens(self, unit: list[int]) -> int:
        return sum(len(self.windows[place].ids) for place in unit)

    def _rows(self, places: Sequence[int], epoch: int) -> Rows:
        keys = mix(self.seed, Draw.EXAMPLE_KEY, epoch, np.array(places))
        return to_rows([self.windows[p] for p in places], keys)
