"""Runs pieces of work in parallel on the threads of a CPU.

In: pieces, and a function. Out: its results, in the order of the pieces.

Notable choices
- The matrix products of small models do not keep several threads busy; independent pieces do. Threads are distributed
  over pieces first, and only the remaining ones work inside a piece (docs/decisions/0021, figures in docs/notebook.md).
- Threads, not processes: torch releases the GIL, and the weights are in memory once.
- Not on accelerators, which one piece keeps busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def most_at_once(device: torch.device) -> int:
    """The number of pieces that can be computed at once."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def for_each(work: Callable[[Piece], object], pieces: Sequence[Piece], device: torch.device) -> None:
    """Calls `work` on every piece, as many at once as there are threads."""
    deque(in_parallel(work, pieces, min(len(pieces), most_at_once(device))), maxlen=0)


def in_parallel(work: Callable[[Piece], Result], pieces: Sequence[Piece], at_once: int) -> Iterator[Result]:
    """The results of `work` for every piece, in order. A piece is started only when an earlier result is consumed."""
    if at_once <= 1:
        yield from map(work, pieces)
        return
    threads, todo = torch.get_num_threads(), iter(pieces)

    def alone(piece: Piece) -> Result:
        torch.set_num_threads(threads // at_once)
        return work(piece)

    begun = deque[Future[Result]]()
    try:
        begun.extend(_pool(at_once).submit(alone, piece) for piece in islice(todo, at_once))
        while begun:
            result = begun[0].result()
            begun.popleft()
            begun.extend(_pool(at_once).submit(alone, piece) for piece in islice(todo, 1))
            yield result
    finally:
        wait(begun)  # after an error or a signal, nothing may continue in the background
        torch.set_num_threads(threads)  # threads that start later inherit the last value set


@cache
def _pool(at_once: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(at_once, "keel-parallel")
