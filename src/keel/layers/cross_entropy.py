"""Cross-entropy over a large vocabulary, with logits, loss and gradients in one pass.

In: hidden vectors (P, W), the output table (V, W) with its bias (V,), and targets (P,). Out: the summed loss and the
number of right answers. With smoothing e, an answer counts 1 - e and every token e / V (Szegedy et al. 2016).

Notable choices
- At small widths the (P, V) logits are most of a pretraining step's memory traffic. Autograd would walk over them about
  six times; here the softmax's gradient replaces the logits at once, and only the small gradients with respect to the
  inputs are kept for the backward pass.
- On a CPU the logits live in one block of ROWS rows that is used again and again and stays in the cache: 0.3 s instead
  of 0.5 s for 4,352 answers among 8,000 tokens (docs/notebook.md).
- The index of the largest logit is slow to find there, its value is not: only rows whose answer has that value are
  searched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keel.layers.padding import ROUND, pad_to_multiple

ROWS = 4 * ROUND  # logits of so many answers at once, on a CPU


def tied_cross_entropy(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    learns = torch.is_grad_enabled()  # which inside the function it never is
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
                block[len(answers) : len(filled)] = 0  # the filler teaches nothing
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
    """`likeliest`: where no logit is above the answer's. An accelerator would have to be waited for to pick them."""
    if logits.device.type == "cpu":
        logits, answers = logits[likeliest], answers[likeliest]
    return (logits.argmax(1) == answers).sum()


def _for_products(*tensors: Tensor) -> list[Tensor]:
    """As autocast would cast them, once for all blocks."""
    kind = tensors[0].device.type
    return [t.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else t for t in tensors]


def _collect(gradients: tuple[Tensor, ...], at: int, slope: Tensor, given: Tensor, words: Tensor) -> None:
    """Adds what a block of rows teaches."""
    for_hidden, for_table, for_bias = gradients
    for_bias += slope.sum(0)
    slope = slope.to(words.dtype)
    for_hidden[at : at + len(slope)] = slope @ words
    for_table += slope.t() @ given
