"""The learning rate follows the published formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.training.schedules import learning_rate
from keel.training.settings import TrainingSettings

DECAYS = ["linear", "cosine", "constant", "inverse-sqrt"]


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


@given(
    st.just(0.0) | st.floats(1e-6, 0.999),
    st.floats(0, 1),
    st.sampled_from(["linear", "cosine", "constant", "inverse-sqrt"]),
)
def test_the_rate_stays_between_zero_and_its_peak(warmup: float, progress: float, decay: str) -> None:
    settings = TrainingSettings(warmup=warmup, decay=decay, learning_rate=0.5)
    assert 0 <= learning_rate(settings, progress) <= 0.5 * (1 + 1e-9)
    assert learning_rate(settings, warmup) == pytest.approx(0.5)


def test_inverse_sqrt_is_the_schedule_of_the_transformer() -> None:
    """Vaswani et al. 2017, equation 3: min(step^-0.5, step * warmup^-1.5), scaled here to peak at the learning rate."""
    warmup, peak = 400, 0.01
    settings = TrainingSettings(steps=10_000, warmup=warmup, learning_rate=peak, decay="inverse-sqrt")
    for step in range(1, 10_001, 37):
        published = min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(settings, step / 10_000) == pytest.approx(peak * warmup**0.5 * published, rel=1e-9)


def test_inverse_sqrt_without_warmup_starts_at_its_peak() -> None:
    settings = TrainingSettings(warmup=0, learning_rate=0.5, decay="inverse-sqrt")
    rates = [learning_rate(settings, progress) for progress in (0.0, 0.005, 0.01, 0.04, 0.16, 1.0)]
    assert rates == pytest.approx([0.5, 0.5, 0.5, 0.25, 0.125, 0.05])


def test_warmup_in_steps_and_as_a_share_agree() -> None:
    share, steps = TrainingSettings(steps=200, warmup=0.1), TrainingSettings(steps=200, warmup=20)
    for step in range(201):
        assert learning_rate(share, step / 200) == pytest.approx(learning_rate(steps, step / 200))
