"""Pieces of work in parallel on the threads of a CPU.

In: pieces, and what to do with one. Out: the results, in the pieces' order.

Notable choices
- The products of small models do not fill several threads; independent pieces do. Threads are dealt to pieces, and only
  what is left over works inside a piece (docs/decisions/0021, figures in docs/notebook.md).
- Threads, not processes: torch works without the interpreter's lock, and the weights are there once.
- Not on accelerators, which are busy with one piece at a time.
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
    """How many pieces can be computed at once."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def for_each(work: Callable[[Piece], object], pieces: Sequence[Piece], device: torch.device) -> None:
    """Does `work` with every piece, as many at once as there are threads."""
    deque(in_parallel(work, pieces, min(len(pieces), most_at_once(device))), maxlen=0)


def in_parallel(work: Callable[[Piece], Result], pieces: Sequence[Piece], at_once: int) -> Iterator[Result]:
    """What `work` gives for every piece, in order. A piece is begun only when an earlier result has been taken."""
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
        wait(begun)  # after an error or a signal, nothing may go on in the background
        torch.set_num_threads(threads)  # a thread that is started later inherits the number that was set last


@cache
def _pool(at_once: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(at_once, "keel-parallel")
