"""Recurrent networks over the rows of a flat batch, in either direction.

In: (T, W) vectors of all rows end to end, longest row first, and the order in which to read them. Out: (T, H), the
state after each token. A row's states do not depend on other rows.

Notable choices
- Recurrent networks compute in fp32 even under autocast: a state is a sum over all steps before it.
- Rows are packed by time (all first tokens, all second tokens, ...). The longest row comes first, so packing is one
  permutation, and reading right to left is another.
- Training on a CPU uses our own steps (`lstm.py`, `gru.py`); the two directions of a BiLSTM are stepped together.

Shapes: T tokens, R rows, W and H widths.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from keel.layers.recurrent import gru, lstm
from keel.values import Batch

Network = nn.LSTM | nn.GRU


@dataclass(frozen=True)
class Reading:
    """The order in which tokens are read: by time, left to right or right to left."""

    order: Tensor  # (T,)
    together: np.ndarray  # (longest,): number of rows that have a token at each step

    @staticmethod
    def of(rows: Sequence[int], device: torch.device, backwards: bool = False) -> Reading:
        """`rows`: their lengths, longest first."""
        lengths = np.asarray(rows)
        time = np.concatenate([np.arange(n)[::-1] if backwards else np.arange(n) for n in rows])
        order = torch.from_numpy(np.argsort(time, kind="stable")).to(device, non_blocking=True)
        return Reading(order, (lengths > np.arange(lengths[0])[:, None]).sum(1))

    def back(self, states: Tensor) -> Tensor:
        """From the order of reading back to flat rows."""
        return torch.empty_like(states).index_copy(0, self.order, states)


def in_fp32(device: torch.device) -> AbstractContextManager[object]:
    """Disables autocast."""
    half = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if half else nullcontext()


def read_sides(networks: Sequence[Network], given: Sequence[Tensor], readings: Sequence[Reading]) -> list[Tensor]:
    """(T, H) for each network: its state after each token of its input. The networks have the same shape."""
    sides = list(zip(networks, given, readings, strict=True))
    if not (_takes_own_steps(given[0]) and isinstance(networks[0], nn.LSTM)):
        return [read(*side) for side in sides]
    with in_fp32(given[0].device):
        packed = [x[reading.order].float() for _, x, reading in sides]
        states = lstm.states_of(networks, packed, readings[0].together)
    return [reading.back(side) for reading, side in zip(readings, states, strict=True)]


def read(network: Network, x: Tensor, reading: Reading, begin: Tensor | None = None) -> Tensor:
    """(T, H): the network's state after each token. `begin`: (R, H), a GRU's initial state; None: zeros."""
    own = _takes_own_steps(x)
    if own and isinstance(network, nn.LSTM):
        return read_sides([network], [x], [reading])[0]
    with in_fp32(x.device):
        given = x[reading.order].float()
        first = None if begin is None else begin.float()
        if x.device.type != "cpu":
            states = _read_filled(network, given, reading, first)
        elif own:
            states = gru.states_of(network, given, reading.together, first)
        else:
            packed = PackedSequence(given, torch.from_numpy(reading.together))
            with warnings.catch_warnings():  # nothing a user could act on
                warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
                states = network(packed, None if first is None else first[None])[0].data
    return reading.back(states)


def _takes_own_steps(x: Tensor) -> bool:
    """On a CPU, torch's backward pass is slow; its forward pass is not."""
    return x.device.type == "cpu" and torch.is_grad_enabled()


def _read_filled(network: Network, x: Tensor, reading: Reading, begin: Tensor | None) -> Tensor:
    """The same with padded rows: a PackedSequence would synchronise with the device at every step."""
    rows, longest = int(reading.together[0]), len(reading.together)
    places = np.concatenate([time * rows + np.arange(count) for time, count in enumerate(reading.together)])
    at = torch.from_numpy(places).to(x.device, non_blocking=True)
    table = x.new_zeros(longest * rows, x.shape[1]).index_copy(0, at, x)
    states: Tensor = network(table.unflatten(0, (longest, rows)), None if begin is None else begin[None])[0]
    return states.flatten(0, 1).index_select(0, at)


class BothSides(nn.Module):
    """A BiLSTM or BiGRU of one layer: the states of both directions, concatenated."""

    def __init__(self, width: int, cells: int, cell: Literal["lstm", "gru"] = "lstm") -> None:
        super().__init__()
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.forwards = kind(width, cells)
        self.backwards = kind(width, cells)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """(T, 2 x cells)"""
        readings = [Reading.of(batch.lengths, x.device, side) for side in (False, True)]
        return torch.cat(read_sides((self.forwards, self.backwards), (x, x), readings), 1)


def whole_rows(vectors: Tensor, batch: Batch, side: int) -> Tensor:
    """(R, W): the forward state at each row's end and the backward state at its start, both after the full row.

    `side`: the width of one direction; a vector may concatenate several layers, each with both directions."""
    sides = vectors.unflatten(1, (-1, 2, side))
    return torch.stack([sides[batch.ends, :, 0], sides[batch.starts, :, 1]], 2).flatten(1)
