"""Pads flat batches to a multiple of tokens, where a matrix product with a new shape is expensive.

In: (T, W) vectors. Out: the same with zeros after them, up to the next multiple of ROUND; attention ignores them, every
other layer works token by token, and the backbone drops them at its end.

Notable choice: on a CPU, oneDNN compiles a kernel for each new shape of a bf16 product and caches the last thousand.
The number of tokens in a flat batch differs at each step, so nearly all products of a small model paid for that: a
quarter of their time. fp32 products use another library, which does not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

ROUND = 64


def pad_to_multiple(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, -len(x) % ROUND)) if padding_pays(x) else x


def padding_pays(x: Tensor) -> bool:
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
