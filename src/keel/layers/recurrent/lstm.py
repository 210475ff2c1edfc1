"""Long short-term memory (Hochreiter and Schmidhuber 1997), with a projected state (Sak et al. 2014), several at once.

In: LSTMs of one shape, such as the two directions of a BiLSTM, and for each the inputs of all rows packed by time: all
first tokens, all second tokens, ... Out: the state after each token, in the same order.

    i, f, g, o = A x + B h + b
    c = sigmoid(f) c + sigmoid(i) tanh(g)
    h = R (sigmoid(o) tanh(c)), without R if the state is not projected

Notable choices
- The modules are torch's own: they hold the weights and run on accelerators. On a CPU their backward pass allocates a
  zero tensor of the input's size at every step, so its time grows with the square of a row's length: thirteen times
  the forward pass with rows of 40 to 63 words (docs/notebook.md). Here the steps of the backward pass compute only what
  depends on the step, and the weights' gradients are three products over all tokens at the end.
- Without gradients torch's own steps are as fast and store nothing, so they are used then (`rows.py`).
- Networks are stepped together, as batched products: half as many steps, and one product per core.

Shapes: S networks, N tokens of a step, T tokens in all, W width of the inputs, C cells, P width of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def states_of(networks: Sequence[Any], inputs: Sequence[Tensor], together: np.ndarray) -> Tensor:
    """(S, T, P). `together`: number of rows that have a token at each step."""
    weights = [_weights(network) for network in networks]
    into, again, bias, project = (
        torch.stack(part) if part[0] is not None else None for part in zip(*weights, strict=True)
    )
    states: Tensor = _Steps.apply(together.tolist(), torch.stack(list(inputs)), into, again, bias, project)
    return states


def _weights(network: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """A, B, b and R, with the gates in the order i, f, o, g, so that the first three share one sigmoid call."""

    def in_order(weight: Tensor) -> Tensor:
        i, f, g, o = weight.chunk(4)
        return torch.cat([i, f, o, g])

    bias = network.bias_ih_l0 + network.bias_hh_l0
    project = network.weight_hr_l0 if network.proj_size else None
    return in_order(network.weight_ih_l0), in_order(network.weight_hh_l0), in_order(bias), project


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, counts: list[int], x: Tensor, into: Tensor, again: Tensor, bias: Tensor, project: Tensor | None
    ) -> Tensor:
        cells = again.shape[1] // 4
        given = torch.baddbmm(bias[:, None], x, into.mT)
        state, cell = again.new_zeros(len(x), counts[0], again.shape[2]), again.new_zeros(len(x), counts[0], cells)
        states, kept = [], []
        for gates, count in zip(given.split(counts, 1), counts, strict=True):
            gates = torch.baddbmm(gates, state[:, :count], again.mT)
            i, f, o = gates[..., : 3 * cells].sigmoid_().chunk(3, 2)
            before = cell[:, :count]
            cell = torch.addcmul(f * before, i, gates[..., 3 * cells :].tanh_())
            bounded = cell.tanh()
            hidden = o * bounded
            state = hidden if project is None else hidden @ project.mT
            states.append(state)
            kept += [gates, before, bounded] + ([] if project is None else [hidden])
        outputs = torch.cat(states, 1)
        ctx.counts = counts
        ctx.save_for_backward(x, into, again, project, outputs, *kept)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, into, again, project, states, *kept = ctx.saved_tensors
        cells, counts = again.shape[1] // 4, ctx.counts
        each = 3 if project is None else 4
        steps = [kept[at : at + each] for at in range(0, len(kept), each)]
        slopes = x.new_empty(*x.shape[:2], 4 * cells)
        to_states = gradients[0].clone(memory_format=torch.contiguous_format)
        later_cell, later, end = None, None, x.shape[1]
        for (gates, before, bounded, *_), count in zip(reversed(steps), reversed(counts), strict=True):
            to_state = to_states[:, end - count : end]
            if later is not None:  # from the rows that have a later token
                to_state[:, : later.shape[1]] += later
            to_hidden = to_state if project is None else to_state @ project
            i, f, o, g = gates.chunk(4, 2)
            to_cell = torch.ops.aten.tanh_backward(to_hidden * o, bounded)
            if later_cell is not None:
                to_cell[:, : later_cell.shape[1]] += later_cell
            slope = slopes[:, end - count : end]
            into_i, into_f, into_o, into_g = slope.chunk(4, 2)
            torch.mul(to_cell, g, out=into_i)
            torch.mul(to_cell, before, out=into_f)
            torch.mul(to_hidden, bounded, out=into_o)
            torch.mul(to_cell, i, out=into_g)
            sigmoids = slope[..., : 3 * cells]
            torch.ops.aten.sigmoid_backward(sigmoids, gates[..., : 3 * cells], grad_input=sigmoids)
            torch.ops.aten.tanh_backward(into_g, g, grad_input=into_g)
            later, later_cell = slope @ again, to_cell * f
            end -= count
        earlier = states.index_select(1, _before(counts))
        hidden = None if project is None else torch.cat([step[3] for step in steps], 1)
        return (
            None,
            slopes @ into if ctx.needs_input_grad[1] else None,
            slopes.mT @ x,
            slopes[:, counts[0] :].mT @ earlier,
            slopes.sum(1),
            None if hidden is None else to_states.mT @ hidden,
        )


def _before(counts: list[int]) -> Tensor:
    """For every token but the first of each row: the index of the previous token."""
    starts = np.cumsum([0, *counts])
    places = [start + np.arange(count) for start, count in zip(starts, counts[1:], strict=False)]
    return torch.from_numpy(np.concatenate([np.empty(0, np.int64), *places]))
