"""Pieces of a step side by side on the threads of a CPU: the slices' gradients, the matrices of an optimizer.

In: pieces of work, and what to do with one. Out: the results, in the pieces' order.

Notable choices
- The products of small models do not fill several threads; their slices do. Threads are dealt to pieces, and only what
  is left over works inside a piece. How many slices are computed at once is the recipe's (`training.lanes`), for each
  needs memory of its own (docs/decisions/0021, figures in docs/notebook.md).
- Gradients are added in the order of the slices, whoever is ready first, and each slice draws its dropout by itself
  (`layers/dropout.py`): side by side gives the same bits as one after the other with as many threads for each.
- Threads, not processes: torch works without the interpreter's lock, and the weights are there once.
- Not on accelerators, which are busy with one piece at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Ask = Callable[[int], tuple[Tensor, Any]]


def add_gradients(learner: nn.Module, ask: Ask, count: int, lanes: int, device: torch.device) -> Iterator[Any]:
    """`ask(number)` gives a slice's loss and something to be known of it, which is handed on in the slices' order."""
    lanes = min(lanes, count, _most(device))
    if lanes == 1:
        for number in range(count):
            loss, found = ask(number)
            loss.backward()
            yield found
        return
    parameters = [p for p in learner.parameters() if p.requires_grad]

    def gradients(number: int) -> tuple[tuple[Tensor | None, ...], Any]:
        loss, found = ask(number)
        return torch.autograd.grad(loss, parameters, allow_unused=True), found

    for more, found in side_by_side(gradients, range(count), lanes):
        for parameter, gradient in zip(parameters, more, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:  # a copy: two parameters may have been given one tensor, of any strides
                parameter.grad = torch.empty_like(parameter).copy_(gradient)
            else:
                parameter.grad.add_(gradient)
        yield found


def each_alone(work: Callable[[Piece], object], pieces: Sequence[Piece], device: torch.device) -> None:
    """`work` done with every piece, as many at once as there are threads."""
    deque(side_by_side(work, pieces, min(len(pieces), _most(device))), maxlen=0)


def _most(device: torch.device) -> int:
    """How many pieces can be at work at once."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def side_by_side(work: Callable[[Piece], Result], pieces: Sequence[Piece], lanes: int) -> Iterator[Result]:
    """What `work` gives for every piece, in order. A piece is begun only when an earlier result has been taken."""
    if lanes <= 1:
        yield from map(work, pieces)
        return
    threads, todo = torch.get_num_threads(), iter(pieces)

    def alone(piece: Piece) -> Result:
        torch.set_num_threads(threads // lanes)
        return work(piece)

    begun = deque[Future[Result]]()
    try:
        begun.extend(_pool(lanes).submit(alone, piece) for piece in islice(todo, lanes))
        while begun:
            found = begun[0].result()
            begun.popleft()
            begun.extend(_pool(lanes).submit(alone, piece) for piece in islice(todo, 1))
            yield found
    finally:
        wait(begun)  # after an error, or a signal: nothing goes on behind the back of what comes next
        torch.set_num_threads(threads)  # a thread that is begun later takes over the number that was set last


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, "side-by-side")
