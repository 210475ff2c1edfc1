"""Cross-entropy over a large vocabulary: logits, loss and gradients in one pass.

In: hidden vectors (P, W), the output embeddings (V, W) with their bias (V,), and targets (P,). Out: the summed loss and
the number of correct predictions. With label smoothing e, the target has weight 1 - e and every token e / V (Szegedy et
al. 2016).

Notable choices
- At small widths the (P, V) logits are most of a pretraining step's memory traffic. Autograd would pass over them about
  six times; here the softmax's gradient overwrites the logits in place, and only the small gradients with respect to
  the inputs are kept for the backward pass.
- On a CPU the logits are computed in one reused block of ROWS rows that stays in the CPU cache: 0.3 s instead of 0.5 s
  for 4,352 targets among 8,000 tokens (docs/notebook.md).
- On a CPU argmax is slow and max is not: argmax runs only on rows whose target has the largest logit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keel.layers.padding import ROUND, pad_to_multiple

ROWS = 4 * ROUND  # targets whose logits are computed at once, on a CPU


def tied_cross_entropy(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    learns = torch.is_grad_enabled()  # always False inside an autograd.Function
    loss, correct = _TiedCrossEntropy.apply(pad_to_multiple(hidden), table, bias, targets, smoothing, learns)
    return loss, correct


class _TiedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, smoothing: float, learns: bool
    ) -> tuple[Tensor, Tensor]:
        learns = learns and any(ctx.needs_input_grad)
        given, words, offset = _for_products(hidden, table, bias)
        gradients = (torch.empty_like(given), torch.zeros_like(table), torch.zeros_like(bias)) if learns else ()
        loss, correct = table.new_zeros(()), targets.new_zeros(())
        rows = ROWS if hidden.device.type == "cpu" else len(hidden)
        block = table.new_empty(min(rows, len(hidden)), len(table))
        for at in range(0, len(targets), rows):
            answers = targets[at : at + rows]
            filled = given[at : at + rows]
            logits = block[: len(filled)].copy_(torch.addmm(offset, filled, words.t()))[: len(answers)]
            right, best = logits.gather(1, answers[:, None]).squeeze(1), logits.amax(1)
            correct += _count_right(logits, answers, right == best)
            if smoothing:
                right = torch.lerp(right, logits.mean(1), smoothing)
            probabilities = torch.softmax(logits, 1, out=logits)
            # The most likely token's probability is at least 1/V, so this logarithm never underflows.
            loss += (best - probabilities.amax(1).log() - right).sum()
            if learns:
                slope = probabilities.sub_(smoothing / len(table)) if smoothing else probabilities
                slope.scatter_add_(1, answers[:, None], torch.full_like(right, smoothing - 1)[:, None])
                block[len(answers) : len(filled)] = 0  # no gradient from padding
                _collect(gradients, at, block[: len(filled)], filled, words)
        ctx.mark_non_differentiable(correct)
        if learns:
            ctx.save_for_backward(*gradients)
        return loss, correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        for_hidden, for_table, for_bias = ctx.saved_tensors
        scale = gradients[0]
        return for_hidden * scale, for_table * scale, for_bias * scale, None, None, None


def _count_right(logits: Tensor, answers: Tensor, likeliest: Tensor) -> Tensor:
    """`likeliest`: rows whose target has the largest logit. Selecting them would synchronise with an accelerator."""
    if logits.device.type == "cpu":
        logits, answers = logits[likeliest], answers[likeliest]
    return (logits.argmax(1) == answers).sum()


def _for_products(*tensors: Tensor) -> list[Tensor]:
    """Casts as autocast would, once for all blocks."""
    kind = tensors[0].device.type
    return [t.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else t for t in tensors]


def _collect(gradients: tuple[Tensor, ...], at: int, slope: Tensor, given: Tensor, words: Tensor) -> None:
    """Adds a block's gradients."""
    for_hidden, for_table, for_bias = gradients
    for_bias += slope.sum(0)
    slope = slope.to(words.dtype)
    for_hidden[at : at + len(slope)] = slope @ words
    for_table += slope.t() @ given
