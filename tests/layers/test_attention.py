"""Attention in training: its own gradient against the formula's, dropout included, and what it may leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.interfaces import Asked, Rows
from keel.layers import attention
from keel.layers import look as look_module
from keel.layers.attention import Attend, How, SelfAttention, _attend_fused, _attend_padded
from keel.layers.dropout import keep
from keel.layers.look import EVERYWHERE, Look

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda some: tuple(sorted(some, reverse=True)))


looks = st.builds(Look, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))


def how(heads: int, share: float = 0.0, look: Look = EVERYWHERE) -> How:
    """For vectors of width 8."""
    return How(heads, (8 // heads) ** -0.5, look, share)


def formula(
    qkv: torch.Tensor,
    lengths: tuple[int, ...],
    heads: int,
    kept: list[torch.Tensor] | None,
    look: Look = EVERYWHERE,
) -> torch.Tensor:
    """One row and one head at a time, as it is written in the paper."""
    width = qkv.shape[1] // 3
    size = width // heads
    rows = []
    for number, row in enumerate(qkv.split(list(lengths))):
        columns = []
        for head in range(heads):
            q, k, v = (row[:, i * width + head * size : i * width + (head + 1) * size] for i in range(3))
            scores = q @ k.T / size**0.5
            for i in range(len(row)):
                for j in range(len(row)):
                    if (look.before is not None and j < i - look.before) or (
                        look.after is not None and j > i + look.after
                    ):
                        scores[i, j] = -torch.inf
            weights = torch.softmax(scores, -1)
            columns.append((weights if kept is None else weights * kept[number][head]) @ v)
        rows.append(torch.cat(columns, 1))
    return torch.cat(rows)


@settings(deadline=None, max_examples=40)
@given(lengths, st.sampled_from([1, 2, 4]), st.integers(0, 1000))
def test_value_and_gradient_are_the_formulas(lengths: tuple[int, ...], heads: int, seed: int) -> None:
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    wanted = torch.randn(sum(lengths), 8)
    results = [Attend.apply(lengths, lengths, how(heads), qkv), formula(qkv, lengths, heads, None)]
    gradients = [torch.autograd.grad(result, qkv, wanted)[0] for result in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(lengths, looks, st.sampled_from([2, 3, 256]), st.sampled_from([0, 40, 1 << 26]), st.integers(0, 1000))
def test_whoever_does_not_look_everywhere_gets_the_formulas_value_and_gradient(
    lengths: tuple[int, ...], look: Look, piece: int, kept: int, seed: int
) -> None:
    """In training, without a gradient and padded, in pieces of any size, with weights kept or computed again."""
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    wanted = torch.randn(sum(lengths), 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look_module, "PIECE", piece)
        patch.setattr(attention, "WHOLE", piece)
        patch.setattr(attention, "TOGETHER", 8)
        patch.setattr(attention, "KEPT", kept)
        what = how(2, look=look)
        results = [Attend.apply(lengths, lengths, what, qkv), formula(qkv, lengths, 2, None, look)]
        results.append(_attend_padded(qkv, lengths, what))
        gradients = [torch.autograd.grad(result, qkv, wanted)[0] for result in results]
        with torch.no_grad():
            results.append(_attend_fused(lengths, lengths, what, [qkv]))
    for result in results:
        torch.testing.assert_close(result, results[1], rtol=1e-5, atol=1e-5)
    for gradient in gradients:
        torch.testing.assert_close(gradient, gradients[1], rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(lengths, st.integers(0, 1000))
def test_padding_inside_the_kernel_changes_nothing(lengths: tuple[int, ...], seed: int) -> None:
    """What accelerators do: same answers, same gradients."""
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    wanted = torch.randn(sum(lengths), 8)
    results = [_attend_padded(qkv, lengths, how(2)), formula(qkv, lengths, 2, None)]
    gradients = [torch.autograd.grad(result, qkv, wanted)[0] for result in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("together", [1, 200, 1 << 20])
def test_dropped_weights_have_the_formulas_gradient(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are computed at once; the factors that were drawn are watched and given to the formula."""
    monkeypatch.setattr(attention, "TOGETHER", together)
    drawn: list[torch.Tensor] = []
    lengths = (7, 7, 7, 4, 2, 2)

    def watched(*given: Any) -> torch.Tensor:
        factors = keep(*given)
        sizes = [2 * length**2 for length in lengths]
        drawn.extend(f.view(2, n, n) for f, n in zip(factors.split(sizes), lengths, strict=True))
        return factors

    monkeypatch.setattr(attention, "keep", watched)
    torch.manual_seed(3)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    wanted = torch.randn(sum(lengths), 8)
    ours = Attend.apply(lengths, lengths, how(2, 0.5), qkv)
    theirs = formula(qkv, lengths, 2, drawn)
    assert {float(v) for d in drawn for v in d.unique()} == {0.0, 2.0}
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(result, qkv, wanted)[0] for result in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(lengths, st.integers(0, 1000))
def test_with_and_without_a_gradient_agree(lengths: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)
    layer = SelfAttention(8, 2, 0.0)
    x = torch.randn(sum(lengths), 8)
    with torch.no_grad():
        fused = layer(x, lengths)
    torch.testing.assert_close(layer(x, lengths).detach(), fused, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(lengths, st.data(), st.booleans())
def test_asked_places_get_what_they_would_get_anyway(
    lengths: tuple[int, ...], data: st.DataObject, learning: bool
) -> None:
    """Values, and in training the gradients of the weights and of what was looked at."""
    total = sum(lengths)
    places = np.array(data.draw(st.lists(st.integers(0, total - 1), min_size=1, unique=True).map(sorted)))
    none = np.zeros(total, np.int64)
    rows = Rows(none, lengths, none, none > 0, none > 0, np.zeros(len(lengths), np.uint64))
    asked = Asked(torch.from_numpy(places), rows.count(places))
    torch.manual_seed(0)
    layer = SelfAttention(8, 2, 0.0)
    x = torch.randn(total, 8, requires_grad=True)
    with torch.set_grad_enabled(learning):
        some, all = layer(x, lengths, asked), layer(x, lengths)[places]
    torch.testing.assert_close(some, all, rtol=1e-5, atol=1e-6)
    if learning:
        wanted = torch.randn(some.shape)
        gradients = [torch.autograd.grad(y, [x, *layer.parameters()], wanted) for y in (some, all)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
