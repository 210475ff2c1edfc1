"""The learning rate follows the published formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.training.schedules import learning_rate
from keel.training.settings import TrainingSettings


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_the_rate_follows_the_published_formula(decay: str) -> None:
    """Linear warm-up over the first steps, then linear to zero, half a cosine to zero, or constant."""
    settings = TrainingSettings(steps=1000, warmup=100, learning_rate=0.01, decay=decay)
    for step in range(0, 1001, 7):
        if step < 100:
            expected = 0.01 * step / 100
        else:
            done = (step - 100) / 900
            expected = 0.01 * {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2, "constant": 1}[decay]
        assert learning_rate(settings, step / 1000) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 0.999), st.floats(0, 1), st.sampled_from(["linear", "cosine", "constant"]))
def test_the_rate_stays_between_zero_and_its_peak(warmup: float, progress: float, decay: str) -> None:
    settings = TrainingSettings(warmup=warmup, decay=decay, learning_rate=0.5)
    assert 0 <= learning_rate(settings, progress) <= 0.5 * (1 + 1e-9)
    assert learning_rate(settings, warmup) == pytest.approx(0.5)


def test_warmup_in_steps_and_as_a_share_agree() -> None:
    share, steps = TrainingSettings(steps=200, warmup=0.1), TrainingSettings(steps=200, warmup=20)
    for step in range(201):
        assert learning_rate(share, step / 200) == pytest.approx(learning_rate(steps, step / 200))
