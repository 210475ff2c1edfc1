"""A gated recurrent unit (Cho et al. 2014) over rows packed by time.

In: torch's own module, which holds the weights and runs on accelerators, and the inputs of all rows: all first tokens,
all second tokens, ... Out: the state after each token, in the same order. On a CPU this replaces the module's forward
pass, for the reason given in `lstm.py`.

    r, z = sigmoid(A x + a + B h + b)
    n = tanh(C x + c + r (D h + d))
    h = (1 - z) n + z h

Shapes: N tokens of a step, R rows, T tokens in all, H width of a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def states_of(network: Any, x: Tensor, together: np.ndarray, begin: Tensor | None) -> Tensor:
    """(T, H). `together`: number of rows that have a token at each step; `begin`: (R, H), the initial state."""
    states, fresh = [], 2 * network.hidden_size
    state = x.new_zeros(int(together[0]), network.hidden_size) if begin is None else begin
    for given in F.linear(x, network.weight_ih_l0, network.bias_ih_l0).split(together.tolist()):
        state = state[: len(given)]
        again = F.linear(state, network.weight_hh_l0, network.bias_hh_l0)
        r, z = torch.sigmoid(given[:, :fresh] + again[:, :fresh]).chunk(2, 1)
        n = torch.tanh(torch.addcmul(given[:, fresh:], r, again[:, fresh:]))
        state = torch.lerp(n, state, z)
        states.append(state)
    return torch.cat(states)
