"""Cross-entropy over a large vocabulary, with logits, loss and gradients in one pass.

In: hidden vectors (P, W), the output table (V, W) with its bias (V,), and targets (P,). Out: the summed loss and the
number of right answers. With smoothing e, an answer counts 1 - e and every token e / V (Szegedy et al. 2016).

Notable choice: at small widths the (P, V) logits are most of a pretraining step's memory traffic. Autograd would walk
over them about six times; here the softmax's gradient replaces the logits at once, and only the small gradients with
respect to the inputs are kept for the backward pass. Rejected: chunks over P, which read and wrote the table's
gradient once per chunk and were slower on CPUs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from keel.layers.filler import fill_up


def tied_cross_entropy(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    learns = torch.is_grad_enabled()  # which inside the function it never is
    loss, correct = _TiedCrossEntropy.apply(fill_up(hidden), table, bias, targets, smoothing, learns)
    return loss, correct


class _TiedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, smoothing: float, learns: bool
    ) -> tuple[Tensor, Tensor]:
        count, filler = len(targets), len(hidden) - len(targets)
        targets = F.pad(targets, (0, filler))
        logits = torch.addmm(bias, hidden, table.t())
        if logits.dtype is torch.bfloat16:  # under autocast; sums of many small chances need more digits
            logits = logits.float()
        right = logits.gather(1, targets[:, None]).squeeze(1)
        best, guesses = logits.max(1)
        probabilities = torch.softmax(logits, 1)
        # The most likely token's probability is at least 1/V, so this logarithm never underflows.
        normaliser = best - probabilities.gather(1, guesses[:, None]).squeeze(1).log()
        if smoothing:
            right = torch.lerp(right, logits.mean(1), smoothing)
        loss = (normaliser - right)[:count].sum()
        correct = (guesses == targets)[:count].sum()
        ctx.mark_non_differentiable(correct)
        if learns and any(ctx.needs_input_grad):
            slope = probabilities.sub_(smoothing / len(table)) if smoothing else probabilities
            slope.scatter_add_(1, targets[:, None], torch.full_like(right, smoothing - 1)[:, None])
            slope[count:] = 0  # the filler teaches nothing
            ctx.save_for_backward(slope @ table, slope.t() @ hidden, slope.sum(0))
        return loss, correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        for_hidden, for_table, for_bias = ctx.saved_tensors
        scale = gradients[0]
        return for_hidden * scale, for_table * scale, for_bias * scale, None, None, None
