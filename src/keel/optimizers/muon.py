"""Muon (Jordan et al. 2024): updates a matrix with the orthogonal matrix nearest to its momentum.

In: matrices and their gradients. Out: the updated matrices. All singular values of an update are about 1 instead of a
few being large, so directions that seldom have a gradient are learned as fast as the others.

Notable choices
- Updates have the typical RMS of AdamW's (Liu et al. 2025), so both optimizers use the same learning rate.
- Several matrices may be stacked in one parameter (query, key and value): each is orthogonalised separately.
- Five Newton-Schulz iterations, in the precision of the run; torch's own Muon always uses bf16, which is slow on
  processors without bf16 arithmetic.
- A small matrix does not keep several threads busy: on a CPU, each thread updates a matrix of its own.

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
SIZE = 0.2  # typical RMS of AdamW's update, relative to the learning rate


class Muon(torch.optim.Optimizer):
    """Groups may have `stacked`: the number of matrices stacked in each of their parameters."""

    Config = Options
    matrices_only = True  # AdamW updates everything that is not a layer's matrix

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
        """Updates one parameter; parameters are independent of each other."""
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
