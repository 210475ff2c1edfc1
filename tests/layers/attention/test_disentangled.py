"""Disentangled attention: its two ways to compute (run by run, and padded) equal the formula of the paper, token by
token; so do their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.layers.attention.context import AttentionContext
from keel.layers.attention.disentangled import DisentangledAttention
from keel.layers.attention.relative import DistanceTable, signed_buckets
from keel.layers.dropout import seeded_dropout
from keel.values import Rows, Selected

WIDTH, HEADS, BUCKETS, FARTHEST = 8, 2, 6, 9
SIZE = WIDTH // HEADS
lengths = st.lists(st.integers(1, 14), min_size=1, max_size=5).map(lambda some: tuple(sorted(some, reverse=True)))
products = st.sampled_from([(), ("c2p",), ("p2c",), ("c2p", "p2c")])


def formula(layer: DisentangledAttention, table: DistanceTable, x: Tensor) -> Tensor:
    """One row, one head and one pair of tokens at a time."""
    q, k, v = layer.qkv(x).chunk(3, 1)
    q_matrix, k_matrix = layer.qkv.weight[:WIDTH], layer.qkv.weight[WIDTH : 2 * WIDTH]
    q_bias, k_bias = layer.qkv.bias[:WIDTH], layer.qkv.bias[WIDTH : 2 * WIDTH]
    vectors = table.table.weight if table.norm is None else table.norm(table.table.weight)
    mixed = []
    for head in range(HEADS):
        part = slice(head * SIZE, (head + 1) * SIZE)
        scores = []
        for i in range(len(x)):
            for j in range(len(x)):
                bucket = int(signed_buckets(torch.tensor([i - j]), BUCKETS, FARTHEST)) + BUCKETS
                vector = vectors[min(max(bucket, 0), 2 * BUCKETS - 1)]
                score = q[i, part] @ k[j, part]
                if "c2p" in layer.products:
                    key = k_matrix @ vector + k_bias if layer.distance_key is None else layer.distance_key(vector)
                    score = score + q[i, part] @ key[part]
                if "p2c" in layer.products:
                    own = layer.distance_query
                    query = q_matrix @ vector + q_bias if own is None else own(vector)
                    score = score + query[part] @ k[j, part]
                scores.append(score / (SIZE * (1 + len(layer.products))) ** 0.5)
        mixed.append(torch.stack(scores).view(len(x), len(x)).softmax(1) @ v[:, part])
    return torch.cat(mixed, 1)


def layer_and_table(which: Any, share: bool, normed: bool) -> tuple[DisentangledAttention, DistanceTable]:
    norm = torch.nn.LayerNorm(WIDTH) if normed else None
    return DisentangledAttention(WIDTH, HEADS, 0.0, 0.0, which, share), DistanceTable(WIDTH, BUCKETS, FARTHEST, norm)


@settings(deadline=None, max_examples=25)
@given(lengths, products, st.booleans(), st.booleans(), st.integers(0, 1000))
def test_both_ways_equal_the_formula(
    lengths: tuple[int, ...], which: Any, share: bool, normed: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layer, table = layer_and_table(which, share, normed)
    x = torch.randn(sum(lengths), WIDTH, requires_grad=True)
    context = AttentionContext(lengths, distances=table(max(lengths)))
    assert context.distances is not None
    positions = layer._project(context.distances)
    results = [
        torch.cat([formula(layer, table, row) for row in x.split(lengths)]),
        layer._mix_runs(layer.qkv(x), context, positions),
        layer._mix_padded(layer.qkv(x), context, positions),
    ]
    upstream = torch.randn(sum(lengths), WIDTH)
    inputs = [x, *layer.qkv.parameters(), *(table.parameters() if which else ())]
    expected, *found = [torch.autograd.grad(result, inputs, upstream, retain_graph=True) for result in results]
    for result, gradients in zip(results[1:], found, strict=True):
        torch.testing.assert_close(result, results[0], rtol=1e-5, atol=1e-5)
        for mine, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(lengths, st.data())
def test_selected_tokens_get_the_same_output(lengths: tuple[int, ...], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, sum(lengths) - 1), min_size=1, unique=True).map(sorted))
    none = np.zeros(sum(lengths), np.int64)
    rows = Rows(none, lengths, none, none > 0, none > 0, np.zeros(len(lengths), np.uint64))
    selected = Selected(torch.tensor(places), rows.count(np.array(places)))
    torch.manual_seed(0)
    layer, table = layer_and_table(("c2p", "p2c"), True, True)
    x = torch.randn(sum(lengths), WIDTH)
    with torch.no_grad():
        distances = table(max(lengths))
        some = layer(x, AttentionContext(lengths, selected, distances=distances))
        torch.testing.assert_close(some, layer(x, AttentionContext(lengths, distances=distances))[places])


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5)])
def test_dropout_is_on_the_weights_and_on_the_vectors(rates: tuple[float, float]) -> None:
    torch.manual_seed(0)
    layer = DisentangledAttention(WIDTH, HEADS, *rates, ("c2p",), True)
    table, x = DistanceTable(WIDTH, BUCKETS, FARTHEST, None), torch.randn(12, WIDTH)
    results = []
    for seed in (1, 1, 2):
        with torch.no_grad(), seeded_dropout(seed, torch.device("cpu")):
            results.append(layer(x, AttentionContext((12,), distances=table(12))))
    assert torch.equal(results[0], results[1]) and not torch.allclose(results[0], results[2])
