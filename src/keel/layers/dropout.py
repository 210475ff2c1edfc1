"""Dropout (Srivastava et al. 2014) with a quarter of torch's random draws.

In: a tensor and a rate. Out: the tensor with that fraction of its values zeroed and the rest scaled up.

Notable choices
- Each value uses sixteen random bits, so one 64-bit draw serves four values, and the rate is exact to 1/65536.
  Drawing a full random number for each value took a tenth of a small BERT's training step on a CPU.
- Draws are a function of a seed, per thread and independent of other threads (`seeded_dropout`), so micro-batches can
  be computed in parallel (`training/micro_batches.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LEAST = -(1 << 63)
LEVELS = 1 << 16


class _Thread(threading.local):
    generator: torch.Generator | None = None  # set inside `seeded_dropout`


_here = _Thread()


@contextmanager
def seeded_dropout(seed: int, device: torch.device) -> Iterator[None]:
    """Inside this context, dropout on this device (on a CPU: in this thread) is a function of the seed."""
    if device.type != "cpu":
        torch.manual_seed(seed)
        yield
        return
    _here.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _here.generator = None


def dropout(x: Tensor, rate: float) -> Tensor:
    return x * dropout_mask(x.numel(), rate, x.dtype, x.device).view(x.shape)


def dropout_mask(count: int, rate: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(count,) factors: 0, or 1 / (1 - rate)."""
    threshold = round(rate * LEVELS)
    generator = _here.generator if device.type == "cpu" else None
    draws = torch.empty((count + 3) // 4, dtype=torch.int64, device=device).random_(LEAST, None, generator=generator)
    kept = draws.view(torch.int16)[:count] >= threshold - LEVELS // 2
    return kept.to(dtype).mul_(LEVELS / (LEVELS - threshold))


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate) if self.training and self.rate else x
