"""Gradient accumulation over the micro-batches of a step, several of them computed in parallel on a CPU.

In: a function that computes a micro-batch's loss. Out: gradients in the parameters.

Notable choices
- How many run in parallel is set by the recipe (`training.parallel_micro_batches`), because each needs its own memory.
- Gradients are added in the order of the micro-batches, whichever is ready first, and each micro-batch has its own
  dropout seed (`layers/dropout.py`): the result is bit-identical to computing them one after the other with as many
  threads each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from keel.parallel import in_parallel, most_at_once

LossOf = Callable[[int], tuple[Tensor, Any]]


def add_gradients(learner: nn.Module, loss_of: LossOf, count: int, at_once: int, device: torch.device) -> Iterator[Any]:
    """`loss_of(number)` returns a micro-batch's loss and a value to report; the values are yielded in order."""
    if at_once > 1:
        at_once = min(at_once, count, most_at_once(device))
    if at_once == 1:
        for number in range(count):
            loss, report = loss_of(number)
            loss.backward()
            yield report
        return
    parameters = [p for p in learner.parameters() if p.requires_grad]

    def gradients(number: int) -> tuple[tuple[Tensor | None, ...], Any]:
        loss, report = loss_of(number)
        return torch.autograd.grad(loss, parameters, allow_unused=True), report

    for more, report in in_parallel(gradients, range(count), at_once):
        for parameter, gradient in zip(parameters, more, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:  # a copy: autograd may return one tensor for two parameters, with any strides
                parameter.grad = torch.empty_like(parameter).copy_(gradient)
            else:
                parameter.grad.add_(gradient)
        yield report
