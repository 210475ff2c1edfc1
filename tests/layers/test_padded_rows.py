"""Flat rows as a padded table: zeros after each row's end, and the way back gives the same values and gradients."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.layers.padded_rows import PaddedRows


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5))
def test_there_and_back(lengths: list[int], after: int) -> None:
    """`after`: vectors after the last row, which are padding of the flat batch and are left out."""
    torch.manual_seed(0)
    rows, tokens = PaddedRows.of(lengths, torch.device("cpu")), sum(lengths)
    flat = torch.randn(tokens + after, 3, requires_grad=True)
    table = rows.pad(flat)
    assert table.shape == (len(lengths), max(lengths), 3)
    for row, part, length in zip(table, flat[:tokens].split(lengths), lengths, strict=True):
        assert torch.equal(row[:length], part) and not row[length:].any()
    assert rows.inside.sum(1).tolist() == lengths
    back = rows.flatten(table)
    assert torch.equal(back, flat[:tokens])
    upstream = torch.randn(tokens, 3)
    (gradient,) = torch.autograd.grad(back, flat, upstream)
    assert torch.equal(gradient[:tokens], upstream) and not gradient[tokens:].any()
