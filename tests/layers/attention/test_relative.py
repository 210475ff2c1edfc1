"""Buckets of distances are the published ones, and a batch looks up what the whole table would give."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.layers.attention.relative import (
    DistanceTable,
    RelativeBias,
    SharedBias,
    buckets_by_side,
    signed_buckets,
)

FAR = 5000


def test_mpnets_buckets_are_those_of_transformers() -> None:
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    ahead = torch.arange(-FAR, FAR + 1)
    assert torch.equal(buckets_by_side(ahead, 32, 128), MPNetEncoder.relative_position_bucket(-ahead))


@settings(deadline=None, max_examples=200)
@given(st.integers(2, 600), st.integers(1, 3000))
def test_debertas_buckets_are_those_of_transformers(buckets: int, more: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    farthest = buckets // 2 + 1 + more
    ahead = torch.arange(-FAR, FAR + 1)
    expected = make_log_bucket_position(ahead, buckets, farthest).long()
    assert torch.equal(signed_buckets(ahead, buckets, farthest), expected)


@settings(deadline=None, max_examples=200)
@given(st.integers(2, 64), st.integers(1, 300))
def test_debertas_buckets_are_exact_near_by_and_ordered(buckets: int, more: int) -> None:
    ahead = torch.arange(-FAR, FAR + 1)
    found, near = signed_buckets(ahead, buckets, buckets // 2 + 1 + more), ahead.abs() <= buckets // 2
    assert torch.equal(found[near], ahead[near])
    assert torch.equal(found, -found.flip(0)) and (found.diff() >= 0).all()


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 40), st.integers(1, 60), st.integers(1, 120), st.integers(0, 40))
def test_the_vectors_of_a_batch_are_those_of_the_whole_table(buckets: int, more: int, length: int, longer: int) -> None:
    """For every two tokens of a row, whatever the longest row of its batch."""
    buckets = 0 if buckets < 2 else buckets
    table = DistanceTable(3, buckets, buckets // 2 + 1 + more, None)
    with torch.no_grad():
        batch = table(length + longer)
        found = batch.vectors[batch.within(length)][batch.index(length)]
        places = torch.arange(length)
        distances = table.buckets_of(places[:, None] - places)
        whole = table.table.weight[(distances + table.span).clamp(0, 2 * table.span - 1)]
    assert torch.equal(found, whole)
    if not buckets or length + longer <= buckets // 2:
        assert len(batch.vectors) <= 2 * (length + longer + 1), "a short batch does not pay for all distances"


def test_layers_share_one_bias_per_length() -> None:
    bias = SharedBias(RelativeBias(4))
    positions = torch.arange(30)
    one, same, other = bias(positions, positions), bias(positions, positions), bias(positions[:9], positions[:9])
    assert one is same and one.shape == (4, 30, 30)
    assert torch.equal(other, one[:, :9, :9])
