"""The number format of matrix products.

In: the recipe's setting and the device. Out: "fp32" or "bf16" (autocast: weights, sums and norms stay fp32); saved with
the run, so that a resumed run keeps it.

Notable choice: `auto` measures instead of trusting the CPU's flags. Of two CPUs that both advertise bf16, one
was no faster with it and the other more than twice as fast. bf16 is used only where it is clearly faster, so that other
load on the machine does not decide.
"""

from __future__ import annotations

import contextlib
import time
from functools import cache

import torch

from keel.errors import UserError
from keel.machine import BROKEN, prepare_cpu

CLEARLY = 1.5  # times faster than fp32
HOPELESS = 0.25  # at the small size, where bf16 has some overhead even if it is supported
SIZE, SMALL = 1024, 256


def choose_precision(wish: str, device: torch.device) -> str:
    if wish == "fp32":
        return "fp32"
    if device.type == "cpu" and prepare_cpu() == BROKEN:
        if wish == "bf16":
            raise UserError(
                "training.precision=bf16: bf16 matrix products crash on this CPU (see `keel doctor`); use fp32"
            )
        return "fp32"
    if wish == "bf16":
        return "bf16"
    if device.type == "cpu":
        return "bf16" if _gain() > CLEARLY else "fp32"
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def autocast(device: torch.device, precision: str, parallel: int = 1) -> contextlib.AbstractContextManager[object]:
    """Autocast for the forward pass; the backward pass uses the same types. With parallel micro-batches, cast weights
    are not cached: torch has one cache for all threads, and the first thread to leave autocast clears it."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=parallel == 1)


@cache
def _gain() -> float:
    """How many times faster a layer-sized product is in bf16. A small one is timed first: where bf16 is only emulated,
    it takes a hundred times as long, and a large one would take seconds."""
    small = _compare(SMALL)
    return small if small < HOPELESS else _compare(SIZE)


def _compare(size: int) -> float:
    """fp32 time divided by bf16 time: the best of several products each, alternating."""
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for _ in range(5):
        for kind in best:
            a = torch.ones(size, size, dtype=kind)
            began = time.perf_counter()
            torch.mm(a, a)
            best[kind] = min(best[kind], time.perf_counter() - began)
    return best[torch.float32] / best[torch.bfloat16]
