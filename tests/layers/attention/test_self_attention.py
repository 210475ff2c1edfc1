"""The attention layer: its ways to compute (with and without a gradient, selected tokens, a bias) agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from keel.layers import dropout as dropout_module
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.cpu import AttentionOptions
from keel.layers.attention.padded import attend_padded
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.attention.window import CAUSAL, FULL, AttentionWindow
from keel.layers.dropout import dropout_mask
from keel.values import Rows, Selected

Reference = Callable[..., Tensor]

WIDTH, HEADS, LONGEST = 8, 2, 9
lengths = st.lists(st.integers(1, LONGEST), min_size=1, max_size=6).map(lambda some: tuple(sorted(some, reverse=True)))
windows = st.builds(AttentionWindow, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))


class RelativeBias(nn.Module):
    """A learned number for each distance, as T5 has it: for each head, or for all alike (`tables` = 1)."""

    def __init__(self, tables: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(tables, 2 * LONGEST - 1))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.table[:, keys - queries[:, None] + LONGEST - 1]


def neighbours_only(queries: Tensor, keys: Tensor) -> Tensor:
    """A bias that is a mask of zeros and minus infinity."""
    far = (keys - queries[:, None]).abs() > 1
    return torch.zeros(far.shape).masked_fill(far, -torch.inf)[None]


def selection(lengths: tuple[int, ...], places: list[int]) -> Selected:
    none = np.zeros(sum(lengths), np.int64)
    rows = Rows(none, lengths, none, none > 0, none > 0, np.zeros(len(lengths), np.uint64))
    return Selected(torch.tensor(places), rows.count(np.array(places)))


def some_of(lengths: tuple[int, ...]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, sum(lengths) - 1), min_size=1, unique=True).map(sorted)


@settings(deadline=None, max_examples=30)
@given(lengths, st.integers(0, 1000))
def test_with_and_without_a_gradient_agree(lengths: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)
    layer, context = SelfAttention(WIDTH, HEADS, 0.0), AttentionContext(lengths)
    x = torch.randn(sum(lengths), WIDTH)
    with torch.no_grad():
        fused = layer(x, context)
    torch.testing.assert_close(layer(x, context).detach(), fused, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(lengths, st.data(), st.booleans(), st.sampled_from([FULL, CAUSAL, AttentionWindow(2, 1)]), st.booleans())
def test_selected_tokens_get_the_same_output(
    lengths: tuple[int, ...], data: st.DataObject, training: bool, window: AttentionWindow, biased: bool
) -> None:
    """Values, and in training the gradients of the weights, of the bias and of the input."""
    places = data.draw(some_of(lengths))
    torch.manual_seed(0)
    layer = SelfAttention(WIDTH, HEADS, 0.0, window=window)
    bias = RelativeBias(HEADS) if biased else None
    x = torch.randn(sum(lengths), WIDTH, requires_grad=True)
    context = AttentionContext(lengths, bias=bias)
    with torch.set_grad_enabled(training):
        some, every = layer(x, replace(context, selected=selection(lengths, places))), layer(x, context)[places]
    torch.testing.assert_close(some, every, rtol=1e-5, atol=1e-6)
    if training:
        upstream = torch.randn(some.shape)
        inputs = [x, *layer.parameters(), *(bias.parameters() if bias else ())]
        gradients = [torch.autograd.grad(y, inputs, upstream) for y in (some, every)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(lengths, windows, st.sampled_from([1, HEADS]), st.data(), st.integers(0, 1000))
def test_a_bias_on_the_scores_equals_the_formula(
    reference: Reference,
    lengths: tuple[int, ...],
    window: AttentionWindow,
    tables: int,
    data: st.DataObject,
    seed: int,
) -> None:
    """Flat and padded, for all tokens and for selected ones; the gradients also reach the bias' own parameters."""
    places = data.draw(st.none() | some_of(lengths))
    torch.manual_seed(seed)
    layer, bias = SelfAttention(WIDTH, HEADS, 0.0, window=window), RelativeBias(tables)
    x = torch.randn(sum(lengths), WIDTH, requires_grad=True)
    selected = None if places is None else selection(lengths, places)
    qkv, kept = layer.qkv(x), slice(None) if places is None else places
    padded = attend_padded(qkv, lengths, AttentionOptions(HEADS, layer.scale, window), bias)
    results = [
        layer.out(reference(qkv, lengths, HEADS, window=window, bias=bias)[kept]),
        layer(x, AttentionContext(lengths, selected, bias=bias)),
        layer.out(padded[kept]),
    ]
    upstream = torch.randn(results[0].shape)
    inputs = [x, bias.table, *layer.parameters()]
    expected, *found = [torch.autograd.grad(result, inputs, upstream, retain_graph=True) for result in results]
    for result, gradients in zip(results[1:], found, strict=True):
        torch.testing.assert_close(result, results[0], rtol=1e-5, atol=1e-5)
        for mine, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        fast = layer(x, AttentionContext(lengths, selected, bias=bias))
    torch.testing.assert_close(fast, results[0].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["flat", "padded"])
def test_a_bias_may_be_a_mask(reference: Reference, way: str) -> None:
    """Of minus infinity: the same as a window. Short rows are padded far beyond what their last token may attend to."""
    lengths, window = (9, 3, 3, 1), AttentionWindow(1, 1)
    torch.manual_seed(4)
    layer = SelfAttention(WIDTH, HEADS, 0.0)
    x = torch.randn(sum(lengths), WIDTH, requires_grad=True)
    expected = layer.out(reference(layer.qkv(x), lengths, HEADS, window=window))
    if way == "flat":
        found = layer(x, AttentionContext(lengths, bias=neighbours_only))
    else:
        options = AttentionOptions(HEADS, layer.scale)
        found = layer.out(attend_padded(layer.qkv(x), lengths, options, neighbours_only))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(found.shape)
    mine, theirs = (torch.autograd.grad(y, [x, *layer.parameters()], upstream) for y in (found, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_padding_after_the_last_row_is_not_attended_to() -> None:
    """With and without a bias, the vectors after the last row change nothing and become zeros."""
    lengths = (5, 3)
    torch.manual_seed(1)
    layer, biases = SelfAttention(WIDTH, HEADS, 0.0), (None, RelativeBias(HEADS))
    x = torch.randn(16, WIDTH)
    with torch.no_grad():
        layer.out.weight.copy_(torch.eye(WIDTH))
        layer.out.bias.zero_()
    for bias in biases:
        context = AttentionContext(lengths, bias=bias)
        whole, exact = layer(x, context), layer(x[:8], context)
        torch.testing.assert_close(whole[:8], exact, rtol=1e-5, atol=1e-6)
        assert whole.shape == x.shape and not whole[8:].any()


def test_dropout_with_a_bias_equals_the_formula(reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factors that were drawn are recorded and given to the formula; rows of one length are drawn together."""
    lengths, bias = (7, 7, 4, 2), RelativeBias(HEADS)
    drawn: list[Tensor] = []

    def recorded(*given: Any) -> Tensor:
        drawn.append(dropout_mask(*given))
        return drawn[-1]

    monkeypatch.setattr(dropout_module, "dropout_mask", recorded)
    torch.manual_seed(3)
    layer = SelfAttention(WIDTH, HEADS, 0.5)
    x = torch.randn(sum(lengths), WIDTH, requires_grad=True)
    ours = layer(x, AttentionContext(lengths, bias=bias))
    parts = torch.cat(drawn).split([HEADS * n * n for n in lengths])
    factors = [part.view(HEADS, n, n) for part, n in zip(parts, lengths, strict=True)]
    assert {float(v) for f in factors for v in f.unique()} == {0.0, 2.0}
    expected = layer.out(reference(layer.qkv(x), lengths, HEADS, factors=factors, bias=bias))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(ours.shape)
    mine, theirs = (torch.autograd.grad(y, [x, bias.table], upstream) for y in (ours, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        layer.eval()(x, AttentionContext(lengths, bias=bias)),
        layer.out(reference(layer.qkv(x), lengths, HEADS, bias=bias)),
        rtol=1e-5,
        atol=1e-5,
    )
