"""How far a token looks: at its whole row, at what came before it, or at its neighbourhood.

In: the length of a row. Out: pieces of queries with the keys that some query of a piece sees, and masks for what is
left to hide inside a piece. No tensor of the model passes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

FAR = 1 << 62
SMALL = 1 << 20  # entries of a mask that is worth keeping
PIECE = 256  # queries of a long row that are computed at once


def size_of(place: slice) -> int:
    return int(place.stop - place.start)


@dataclass(frozen=True)
class Look:
    """How many tokens before and after itself a token looks at; None: all of its row."""

    before: int | None = None
    after: int | None = None

    def pieces(self, length: int) -> Iterator[tuple[slice, slice]]:
        """Queries of a row that are computed together, and the keys that they see."""
        for first in range(0, length, PIECE):
            stop = min(first + PIECE, length)
            yield (
                slice(first, stop),
                slice(
                    0 if self.before is None else max(0, first - self.before),
                    length if self.after is None else min(length, stop + self.after),
                ),
            )

    def hides(self, queries: slice, keys: slice, device: torch.device) -> Tensor | None:
        """(queries, keys) bool: the keys of a piece that a query does not see; None: it sees them all."""
        if self == EVERYWHERE:
            return None
        small = device.type == "cpu" and size_of(queries) * size_of(keys) <= SMALL
        make = _kept_mask if small else _make_mask  # large ones would fill the memory
        return make(self, queries.start, queries.stop, keys.start, keys.stop, device)


EVERYWHERE = Look()
LEFT = Look(None, 0)


def _make_mask(look: Look, first: int, stop: int, first_key: int, stop_key: int, device: torch.device) -> Tensor | None:
    before = FAR if look.before is None else look.before
    after = FAR if look.after is None else look.after
    if stop - 1 - first_key <= before and stop_key - 1 - first <= after:
        return None
    with torch.inference_mode(False):  # it is kept, and used in training too
        keys, queries = torch.arange(first_key, stop_key, device=device), torch.arange(first, stop, device=device)
        shift = keys - queries[:, None]
        return (shift < -before) | (shift > after)


_kept_mask = lru_cache(maxsize=64)(_make_mask)
