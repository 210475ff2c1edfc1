"""Which number format the matrix products use.

In: the recipe's wish and the device. Out: "fp32" or "bf16"; written into the run, so a resumed run keeps it.

Notable choices
- On a CPU, bf16 means: weights, activations and sums stay fp32, only the factors of matrix products are rounded. On an
  accelerator it means autocast.
- `auto` measures instead of believing the processor's flags: of two CPUs that both advertise bf16, one multiplied no
  faster with it and the other more than twice as fast. It is taken only where it wins clearly, so a
  busy neighbour cannot tip the choice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from keel.errors import UserError
from keel.training.machine import BROKEN, prepare_cpu

CLEARLY = 1.5  # times faster than fp32
SIZE = 1024


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


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Computes fp32 products on the CPU with bf16 factors inside the block, if asked to."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16" if precision == "bf16" else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """For the forward pass on an accelerator."""
    if precision == "bf16" and device.type != "cpu":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def _gain() -> float:
    """How many times faster a layer-sized product is in bf16: the best of several, in turns."""
    a, b = torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE)
    best = {"fp32": float("inf"), "bf16": float("inf")}
    for _ in range(5):
        for precision in best:
            with products_in(precision):
                began = time.perf_counter()
                torch.mm(a, b)
                best[precision] = min(best[precision], time.perf_counter() - began)
    return best["fp32"] / best["bf16"]
