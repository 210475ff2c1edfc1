"""Padded attention, as accelerators compute it: padding inside the kernel changes no value and no gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.layers.attention.cpu import AttentionOptions
from keel.layers.attention.padded import attend_padded

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda some: tuple(sorted(some, reverse=True)))


@settings(deadline=None, max_examples=30)
@given(lengths, st.integers(0, 1000))
def test_padding_inside_the_kernel_changes_nothing(
    reference: Callable[..., Tensor], lengths: tuple[int, ...], seed: int
) -> None:
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 24, requires_grad=True)
    upstream = torch.randn(sum(lengths), 8)
    results = [attend_padded(qkv, lengths, AttentionOptions(2, 0.5), None), reference(qkv, lengths, 2)]
    gradients = [torch.autograd.grad(result, qkv, upstream)[0] for result in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
