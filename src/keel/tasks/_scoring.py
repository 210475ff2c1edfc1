"""Helpers for a task's `Scorer`. In: gold and predicted answers, group by group. Out: what a report says about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

WORST = 20  # errors listed in a report


class Variety:
    """Whether all predictions are the same although the gold answers are not."""

    def __init__(self) -> None:
        self._gold, self._predicted = set[str](), set[str]()

    def update(self, gold: Iterable[Any], predicted: Iterable[Any]) -> None:
        for seen, values in ((self._gold, gold), (self._predicted, predicted)):
            for value in values:
                if len(seen) < 2:
                    seen.add(str(value))

    @property
    def constant(self) -> bool:
        return len(self._predicted) == 1 and len(self._gold) > 1


class Worst:
    """The first WORST rows in order of their keys; of rows with the same key, those that came first."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, tuple[Any, ...]]] = []

    def update(self, rows: Iterable[tuple[Any, tuple[Any, ...]]]) -> None:
        self._kept = sorted([*self._kept, *rows], key=lambda row: row[0])[:WORST]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for _, row in self._kept]
