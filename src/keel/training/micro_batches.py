"""The gradients of a step's micro-batches, summed in order, several of them computed at once on a CPU.

In: a function that gives a micro-batch's loss. Out: gradients in the parameters.

Notable choices
- How many are computed at once is the recipe's (`training.parallel_micro_batches`), for each needs memory of its own.
- Gradients are added in the order of the micro-batches, whichever is ready first, and each draws its dropout by itself
  (`layers/dropout.py`): in parallel gives the same bits as one after the other with as many threads for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from keel.parallel import in_parallel, most_at_once

LossOf = Callable[[int], tuple[Tensor, Any]]


def add_gradients(learner: nn.Module, loss_of: LossOf, count: int, at_once: int, device: torch.device) -> Iterator[Any]:
    """`loss_of(number)` gives a micro-batch's loss and something to report, which is passed on in their order."""
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
            if parameter.grad is None:  # a copy: two parameters may have been given one tensor, of any strides
                parameter.grad = torch.empty_like(parameter).copy_(gradient)
            else:
                parameter.grad.add_(gradient)
        yield report
