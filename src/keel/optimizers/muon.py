"""Muon (Jordan et al. 2024): a matrix is moved by an orthogonal step, the one nearest to its momentum.

In: matrices and their gradients. Out: the matrices after a step whose singular values are all about 1 instead of a few
large ones: directions that seldom have a gradient are learned as fast as the others.

Notable choices
- Steps have the size that AdamW's usually have (Liu et al. 2025), so both take the same learning rate.
- Several matrices may be stacked in one parameter (query, key and value): each has its own step.
- Five rounds of Newton and Schulz, in the number format of the run; torch's own Muon always uses bf16, which is slow on
  processors that do not multiply in it.
- Small matrices do not fill several threads: on a CPU as many are moved at once as there are threads.

Shapes: S stacked matrices of N rows and M columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import Tensor

from keel.configs import Options
from keel.parallel import for_each

ROUNDS = 5
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the published quintic, which is steep at 0 and stays near 1
SIZE = 0.2  # root mean square of an entry of AdamW's step, as a share of the learning rate


class Muon(torch.optim.Optimizer):
    """Groups may have `stacked`: how many matrices are stacked in each of their parameters."""

    Config = Options
    matrices_only = True  # AdamW takes what is not a matrix of a layer

    def __init__(
        self, groups: Iterable[dict[str, Any]], momentum: float = 0.95, precision: torch.dtype = torch.float32
    ) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0, "momentum": momentum, "stacked": 1})
        self.precision = precision

    @classmethod
    def make(cls, groups: list[dict[str, Any]], betas: tuple[float, float], epsilon: float, precision: str) -> Self:
        return cls(groups, precision=torch.bfloat16 if precision == "bf16" else torch.float32)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # returns no loss
        moves = [(w, group) for group in self.param_groups for w in group["params"] if w.grad is not None]
        for weight, _ in moves:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        if moves:
            for_each(self._move, moves, moves[0][0].device)

    @torch.no_grad()
    def _move(self, given: tuple[Tensor, dict[str, Any]]) -> None:
        """One parameter; they do not depend on each other."""
        weight, group = given
        assert weight.grad is not None
        momentum = self.state[weight]["momentum"].lerp_(weight.grad, 1 - group["momentum"])
        ahead = weight.grad.lerp(momentum, group["momentum"])
        matrices = ahead.unflatten(0, (group["stacked"], -1))
        size = SIZE * math.sqrt(max(matrices.shape[1:]))
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        step = orthogonal(matrices.to(self.precision)).to(weight.dtype).view_as(weight)
        weight.add_(step, alpha=-group["lr"] * size)


def orthogonal(matrices: Tensor) -> Tensor:
    """(S, N, M): nearly U V^T of each U S V^T."""
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT
