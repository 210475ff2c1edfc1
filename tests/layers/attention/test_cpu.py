"""Attention on a CPU: its hand-written gradient is the formula's, with dropout, windows and chunks of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.layers.attention import cpu
from keel.layers.attention import window as window_module
from keel.layers.attention.cpu import Attend, AttentionOptions, _attend_fused
from keel.layers.attention.padded import attend_padded
from keel.layers.attention.window import FULL, AttentionWindow
from keel.layers.dropout import dropout_mask

Reference = Callable[..., Tensor]

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda some: tuple(sorted(some, reverse=True)))
windows = st.builds(AttentionWindow, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))


def options_for(heads: int, dropout: float = 0.0, window: AttentionWindow = FULL) -> AttentionOptions:
    """For vectors of width 8."""
    return AttentionOptions(heads, (8 // heads) ** -0.5, window, dropout)


@settings(deadline=None, max_examples=40)
@given(lengths, st.sampled_from([1, 2, 4]), st.integers(0, 1000))
def test_value_and_gradient_equal_the_formula(
    reference: Reference, lengths: tuple[int, ...], heads: int, seed: int
) -> None:
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    upstream = torch.randn(sum(lengths), 8)
    results = [Attend.apply(lengths, lengths, options_for(heads), qkv), reference(qkv, lengths, heads)]
    gradients = [torch.autograd.grad(result, qkv, upstream)[0] for result in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(lengths, windows, st.sampled_from([2, 3, 256]), st.sampled_from([0, 40, 1 << 26]), st.integers(0, 1000))
def test_value_and_gradient_equal_the_formula_for_any_window(
    reference: Reference, lengths: tuple[int, ...], window: AttentionWindow, chunk: int, stored: int, seed: int
) -> None:
    """In training, without a gradient and padded; in chunks of any size; with weights stored or recomputed."""
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    upstream = torch.randn(sum(lengths), 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_module, "CHUNK", chunk)
        patch.setattr(cpu, "LEAST_QUERIES", chunk)
        patch.setattr(cpu, "TOGETHER", 8)
        patch.setattr(cpu, "STORED", stored)
        options = options_for(2, window=window)
        results = [Attend.apply(lengths, lengths, options, qkv), reference(qkv, lengths, 2, window=window)]
        results.append(attend_padded(qkv, lengths, options, None))
        gradients = [torch.autograd.grad(result, qkv, upstream)[0] for result in results]
        with torch.no_grad():
            results.append(_attend_fused(lengths, lengths, options, [qkv]))
    for result in results:
        torch.testing.assert_close(result, results[1], rtol=1e-5, atol=1e-5)
    for gradient in gradients:
        torch.testing.assert_close(gradient, gradients[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("together", [1, 200, 1 << 20])
def test_gradient_with_dropout_equals_the_formula(
    reference: Reference, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are computed at once; the factors that were drawn are recorded and given to the formula."""
    monkeypatch.setattr(cpu, "TOGETHER", together)
    drawn: list[Tensor] = []
    lengths = (7, 7, 7, 4, 2, 2)

    def recorded(*given: Any) -> Tensor:
        factors = dropout_mask(*given)
        sizes = [2 * length**2 for length in lengths]
        drawn.extend(f.view(2, n, n) for f, n in zip(factors.split(sizes), lengths, strict=True))
        return factors

    monkeypatch.setattr(cpu, "dropout_mask", recorded)
    torch.manual_seed(3)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    upstream = torch.randn(sum(lengths), 8)
    ours = Attend.apply(lengths, lengths, options_for(2, 0.5), qkv)
    expected = reference(qkv, lengths, 2, factors=drawn)
    assert {float(v) for d in drawn for v in d.unique()} == {0.0, 2.0}
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(result, qkv, upstream)[0] for result in (ours, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(5)
    qkv, lengths = torch.randn(12, 48), (6, 6)
    plain, dropped = AttentionOptions(2, 8**-0.5), AttentionOptions(2, 8**-0.5, dropout=0.2)
    mean = torch.stack([Attend.apply(lengths, lengths, dropped, qkv) for _ in range(4000)]).mean(0)
    assert float((mean - Attend.apply(lengths, lengths, plain, qkv)).abs().max()) < 0.08
