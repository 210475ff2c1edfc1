"""Dropout (Srivastava et al. 2014) with a quarter of torch's random draws.

In: a tensor and the share to drop. Out: the tensor with that share at zero and the rest scaled up.

Notable choices
- Sixteen random bits decide about each value, so one 64-bit draw serves four, and the share is exact to 1/65536.
  Drawing a full random number for each value was a tenth of a small BERT's training step on a CPU.
- What is drawn can be a function of a seed on one thread, whatever other threads draw (`drawing`): a step's slices may
  be computed side by side (`training/side_by_side.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LEAST = -(1 << 63)
LEVELS = 1 << 16
_here = threading.local()  # each thread's generator, while it has one


@contextmanager
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Within this, what is dropped on this device, on a CPU by this thread, is a function of the seed."""
    if device.type != "cpu":
        torch.manual_seed(seed)
        yield
        return
    _here.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _here.generator = None


def dropout(x: Tensor, share: float) -> Tensor:
    return x * keep(x.numel(), share, x.dtype, x.device).view(x.shape)


def keep(count: int, share: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """So many factors: 0, or a little more than 1."""
    threshold = round(share * LEVELS)
    generator = getattr(_here, "generator", None) if device.type == "cpu" else None
    draws = torch.empty((count + 3) // 4, dtype=torch.int64, device=device).random_(LEAST, None, generator=generator)
    kept = draws.view(torch.int16)[:count] >= threshold - LEVELS // 2
    return kept.to(dtype).mul_(LEVELS / (LEVELS - threshold))


class Dropout(nn.Module):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.share) if self.training and self.share else x
