"""AdamW (Loshchilov and Hutter 2019), for all parameters."""

from __future__ import annotations

from typing import Any, Self

import torch

from keel.configs import Options


class AdamW(torch.optim.AdamW):
    Config = Options
    matrices_only = False  # it takes every parameter

    @classmethod
    def make(cls, groups: list[dict[str, Any]], betas: tuple[float, float], epsilon: float, precision: str) -> Self:
        return cls(groups, lr=0.0, betas=betas, eps=epsilon, fused=True)
