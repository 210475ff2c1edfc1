"""LSTMs and GRUs computed step by step over flat rows: states and gradients equal torch's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from keel.layers.recurrent import gru, lstm
from keel.layers.recurrent.rows import Reading, read, read_sides


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans(), st.integers(0, 5))
def test_lstm_states_and_gradients_equal_torch_row_by_row(lengths: list[int], projected: bool, seed: int) -> None:
    lengths = sorted(lengths, reverse=True)
    torch.manual_seed(seed)
    sides = [nn.LSTM(5, 7, proj_size=3 if projected else 0).double() for _ in range(2)]
    x = torch.randn(sum(lengths), 5, dtype=torch.float64, requires_grad=True)
    readings = [Reading.of(lengths, x.device, backwards) for backwards in (False, True)]
    found = lstm.states_of(sides, [x[reading.order] for reading in readings], readings[0].together)
    ours = torch.cat([reading.back(states) for reading, states in zip(readings, found, strict=True)], 1)
    rows = [
        torch.cat([sides[0](row)[0], sides[1](row.flip(0))[0].flip(0)], 1)  # one text after the other
        for row in x.split(lengths)
    ]
    theirs = torch.cat(rows)
    weights = [x, *sides[0].parameters(), *sides[1].parameters()]
    direction = torch.randn_like(theirs)
    mine, other = (torch.autograd.grad(result, weights, direction) for result in (ours, theirs))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    for a, b in zip(mine, other, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5))
def test_gru_states_and_gradients_equal_torch_from_any_first_state(lengths: list[int], seed: int) -> None:
    lengths = sorted(lengths, reverse=True)
    torch.manual_seed(seed)
    network = nn.GRU(5, 7).double()
    x = torch.randn(sum(lengths), 5, dtype=torch.float64, requires_grad=True)
    first = torch.randn(len(lengths), 7, dtype=torch.float64, requires_grad=True)
    reading = Reading.of(lengths, x.device)
    ours = reading.back(gru.states_of(network, x[reading.order], reading.together, first))
    theirs = torch.cat([network(row, begin[None])[0] for row, begin in zip(x.split(lengths), first, strict=True)])
    weights = [x, first, *network.parameters()]
    direction = torch.randn_like(theirs)
    mine, other = (torch.autograd.grad(result, weights, direction) for result in (ours, theirs))
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    for a, b in zip(mine, other, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_saved_tensors_are_freed_by_the_backward_pass() -> None:
    """As torch frees what it saves: not only when the loss is deleted, which the loop holds on to."""
    network, x = nn.LSTM(4, 64), torch.randn(40, 4)
    loss = read_sides([network], [x], [Reading.of((20, 20), x.device)])[0].sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        loss.backward()


def test_gradients_of_one_network_equal_torch() -> None:
    torch.manual_seed(2)
    network, x, lengths = nn.LSTM(4, 6, proj_size=3), torch.randn(9, 4), (5, 3, 1)
    ours = read(network, x, Reading.of(lengths, x.device))
    theirs = torch.cat([network(row)[0] for row in x.split(lengths)])
    weights = list(network.parameters())
    for a, b in zip(*(torch.autograd.grad(result.sum(), weights) for result in (ours, theirs)), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("learns", [True, False])
def test_the_two_directions_may_read_different_vectors(kind: type[nn.RNNBase], learns: bool) -> None:
    torch.manual_seed(1)
    networks, lengths = [kind(4, 6), kind(4, 6)], (5, 2, 2)
    given_to = [torch.randn(9, 4), torch.randn(9, 4)]
    readings = [Reading.of(lengths, torch.device("cpu"), backwards) for backwards in (False, True)]
    with torch.set_grad_enabled(learns):
        ahead, back = read_sides(networks, given_to, readings)
        for network, x, states, turned in zip(networks, given_to, (ahead, back), (False, True), strict=True):
            for row, mine in zip(x.split(lengths), states.split(lengths), strict=True):
                theirs = network(row.flip(0))[0].flip(0) if turned else network(row)[0]
                assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)
