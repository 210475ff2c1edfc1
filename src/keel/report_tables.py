"""What a task shows in a report beyond its figures: tables and plots, before anybody draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """`matrix`: counts of pairs, shaded by their share of the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    matrix: bool = False


@dataclass(frozen=True)
class Plot:
    """`diagonal`: draw the line on which perfect answers would lie."""

    title: str
    points: Sequence[tuple[float, float]]
    x_label: str
    y_label: str
    diagonal: bool = False
