"""What several tasks need to judge their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORST = 20  # errors that a report lists


def is_constant(gold: Sequence[Any], said: Sequence[Any]) -> bool:
    """Whether all answers are the same although the right ones are not."""
    return len({str(answer) for answer in said}) == 1 and len({str(answer) for answer in gold}) > 1


def confident_errors(right: Sequence[bool], answers: Sequence[dict[str, Any]]) -> list[int]:
    """The places of the wrong answers, most probable first."""
    wrong = [n for n, is_right in enumerate(right) if not is_right]
    return sorted(wrong, key=lambda n: -answers[n].get("probability", 0.0))
