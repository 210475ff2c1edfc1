"""Which number format the matrix products use.

In: the recipe's wish and the device. Out: "fp32" or "bf16" (autocast: weights, sums and norms stay fp32); written into
the run, so a resumed run keeps it.

Notable choice: `auto` measures instead of believing the processor's flags. Of two CPUs that both advertise bf16, one
multiplied no faster with it and the other more than twice as fast. bf16 is taken only where it wins clearly, so a busy
neighbour does not tip the choice.
"""

from __future__ import annotations

import contextlib
import time
from functools import cache

import torch

from keel.errors import UserError
from keel.machine import BROKEN, prepare_cpu

CLEARLY = 1.5  # times faster than fp32
HOPELESS = 0.25  # at a small size, where bf16 has its overheads too
SIZE, SMALL = 1024, 256


def settle_precision(wish: str, device: torch.device) -> str:
    if wish == "fp32":
        return "fp32"
    if device.type == "cpu" and prepare_cpu() == BROKEN:
        if wish == "bf16":
            raise UserError("training.precision=bf16: this processor dies at bf16 products (`keel doctor`); use fp32")
        return "fp32"
    if wish == "bf16":
        return "bf16"
    if device.type == "cpu":
        return "bf16" if _gain() > CLEARLY else "fp32"
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def autocast(device: torch.device, precision: str, parallel: int = 1) -> contextlib.AbstractContextManager[object]:
    """For the forward pass; the backward pass follows it. With micro-batches in parallel no cast weight is cached:
    torch caches them for all threads, and the first one to leave drops those of the others."""
    if precision != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=parallel == 1)


@cache
def _gain() -> float:
    """How many times faster a layer-sized product is in bf16. A small one comes first: where bf16 is only emulated it
    takes a hundred times as long, and a large one seconds."""
    small = _compare(SMALL)
    return small if small < HOPELESS else _compare(SIZE)


def _compare(size: int) -> float:
    """The best of several, in turns."""
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for _ in range(5):
        for kind in best:
            a = torch.ones(size, size, dtype=kind)
            began = time.perf_counter()
            torch.mm(a, a)
            best[kind] = min(best[kind], time.perf_counter() - began)
    return best[torch.float32] / best[torch.bfloat16]
