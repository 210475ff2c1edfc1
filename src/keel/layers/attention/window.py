"""The attention window of a token: full, causal, or local (sliding window).

In: the length of a row. Out: chunks of queries with the keys that any query of the chunk attends to, and the masks
inside a chunk. No model tensor passes through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

FAR = 1 << 62
SMALL = 1 << 20  # entries; larger masks are not cached
CHUNK = 256  # queries of a long row computed at once


def size_of(place: slice) -> int:
    return int(place.stop - place.start)


@dataclass(frozen=True)
class AttentionWindow:
    """How many tokens before and after itself a token attends to; None: all of its row."""

    before: int | None = None
    after: int | None = None

    def chunks(self, length: int) -> Iterator[tuple[slice, slice]]:
        """Queries of a row computed together, and the keys they attend to."""
        for first in range(0, length, CHUNK):
            stop = min(first + CHUNK, length)
            yield (
                slice(first, stop),
                slice(
                    0 if self.before is None else max(0, first - self.before),
                    length if self.after is None else min(length, stop + self.after),
                ),
            )

    def mask(self, queries: slice, keys: slice, device: torch.device) -> Tensor | None:
        """(queries, keys) bool: True where attention is masked; None: nothing is masked."""
        if self == FULL:
            return None
        small = device.type == "cpu" and size_of(queries) * size_of(keys) <= SMALL
        make = _cached_mask if small else _make_mask  # large masks would fill the memory
        return make(self, queries.start, queries.stop, keys.start, keys.stop, device)


FULL = AttentionWindow()
CAUSAL = AttentionWindow(None, 0)


def _make_mask(
    window: AttentionWindow, first: int, stop: int, first_key: int, stop_key: int, device: torch.device
) -> Tensor | None:
    before = FAR if window.before is None else window.before
    after = FAR if window.after is None else window.after
    if stop - 1 - first_key <= before and stop_key - 1 - first <= after:
        return None
    with torch.inference_mode(False):  # the cached mask is also used in training
        keys, queries = torch.arange(first_key, stop_key, device=device), torch.arange(first, stop, device=device)
        offset = keys - queries[:, None]
        return (offset < -before) | (offset > after)


_cached_mask = lru_cache(maxsize=64)(_make_mask)
