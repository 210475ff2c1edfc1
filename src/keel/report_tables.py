"""Tables and plots of a report, as data: made by tasks, rendered by `reporting/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """`matrix`: counts of pairs, shaded by their fraction of the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    matrix: bool = False


@dataclass(frozen=True)
class Plot:
    """`diagonal`: draw the line y = x, on which perfect predictions would lie."""

    title: str
    points: Sequence[tuple[float, float]]
    x_label: str
    y_label: str
    diagonal: bool = False
