"""`precision: auto` takes what it measured to be clearly faster, and the other settings measure nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import UserError
from keel.machine import BROKEN, FINE
from keel.training import precision
from keel.training.precision import CLEARLY, HOPELESS, SIZE, SMALL, choose_precision

CPU = torch.device("cpu")


@given(st.floats(0.001, 10), st.floats(0.001, 10))
def test_auto_picks_what_it_measured(small: float, large: float) -> None:
    """A product that is far slower when small is not tried large."""
    asked: list[int] = []

    def compare(size: int) -> float:
        asked.append(size)
        return {SMALL: small, SIZE: large}[size]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "_compare", compare)
        patch.setattr(precision, "prepare_cpu", lambda: FINE)
        precision._gain.cache_clear()
        found = choose_precision("auto", CPU)
        assert choose_precision("auto", CPU) == found and asked.count(SMALL) == 1, "measured once per process"
    precision._gain.cache_clear()
    assert asked == ([SMALL] if small < HOPELESS else [SMALL, SIZE])
    assert found == ("bf16" if small >= HOPELESS and large > CLEARLY else "fp32")


def test_what_is_said_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_gain", lambda: pytest.fail("measured"))
    monkeypatch.setattr(precision, "prepare_cpu", lambda: FINE)
    assert [choose_precision(wish, CPU) for wish in ("fp32", "bf16")] == ["fp32", "bf16"]


def test_bf16_is_neither_measured_nor_used_where_it_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_gain", lambda: pytest.fail("measured"))
    monkeypatch.setattr(precision, "prepare_cpu", lambda: BROKEN)
    assert choose_precision("auto", CPU) == "fp32"
    with pytest.raises(UserError, match="use fp32"):
        choose_precision("bf16", CPU)


@pytest.mark.clock
def test_the_measurement_is_the_ratio_of_real_products() -> None:
    assert 0 < precision._compare(SMALL) < 100
