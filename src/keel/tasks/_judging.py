"""Helpers for `Task.judge`. In: gold and predicted answers. Out: warnings and errors to list in a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORST = 20  # errors listed in a report


def is_constant(gold: Sequence[Any], predicted: Sequence[Any]) -> bool:
    """Whether all predictions are the same although the gold answers are not."""
    return len({str(answer) for answer in predicted}) == 1 and len({str(answer) for answer in gold}) > 1


def confident_errors(right: Sequence[bool], answers: Sequence[dict[str, Any]]) -> list[int]:
    """The indices of the wrong answers, most probable first."""
    wrong = [n for n, is_right in enumerate(right) if not is_right]
    return sorted(wrong, key=lambda n: -answers[n].get("probability", 0.0))
