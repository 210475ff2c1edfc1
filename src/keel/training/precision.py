"""Which number format the matrix products use.

In: the recipe's wish and the device. Out: "fp32" or "bf16"; written into the run, so a resumed run keeps it.

Notable choice: `auto` is a rule, not a measurement: fp32 on CPUs, bf16 on accelerators that have it. A measurement
would make two runs of one recipe differ on a busy machine; `keel doctor` measures, and the user decides.
"""

from __future__ import annotations

import torch

from keel.errors import UserError
from keel.training.machine import prepare_cpu


def settle_precision(wish: str, device: torch.device) -> str:
    if wish == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if wish == "bf16" and device.type == "cpu" and prepare_cpu() == "broken":
        raise UserError("training.precision=bf16: this processor dies at bf16 products (see `keel doctor`); use fp32")
    return wish
