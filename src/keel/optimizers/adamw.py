"""AdamW (Loshchilov and Hutter 2019), torch's fused implementation. In: parameter groups. Out: an optimizer."""

from __future__ import annotations

from typing import Any, Self

import torch

from keel.configs import Options


class AdamW(torch.optim.AdamW):
    Config = Options
    matrices_only = False  # updates every parameter

    @classmethod
    def make(cls, groups: list[dict[str, Any]], betas: tuple[float, float], epsilon: float, precision: str) -> Self:
        return cls(groups, lr=0.0, betas=betas, eps=epsilon, fused=True)
