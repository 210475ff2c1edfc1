"""Cache of a frozen encoder's outputs for the rows of a task, computed once before training.

In: a learner with a frozen encoder, and all windows it will be trained and evaluated on. Out: a cache that replaces
runs of the encoder.

Notable choices
- A row is identified by its tokens. Nothing else can change its vectors: a frozen encoder has no dropout, and a row's
  vectors do not depend on the other rows of the batch.
- Rows are computed in fp32, in an order that depends on the windows only, so that a resumed run gets identical values.
- Memory is limited: the cache is fp16 if fp32 exceeds the limit, and not built if fp16 does too. The encoder then runs
  at every step.
- Not on accelerators, where comparing tokens would synchronise with the device.

Shapes: L layers, N tokens of all rows, T tokens of a batch, W width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from keel.interfaces import Tokenizer
from keel.learner.learner import Learner
from keel.learner.windows import batches, to_rows
from keel.machine import available_memory, memory_limit
from keel.values import Batch, Encoding, Window

SHARE = 4  # the limit is the available memory divided by this
UNKNOWN = 8 << 30  # bytes, if the available memory is unknown


class FrozenCache:
    def __init__(self, table: Tensor, places: dict[bytes, slice]) -> None:
        self.table, self.places = table, places  # (L, N, W), and the tokens of each row in it

    def find(self, batch: Batch) -> Encoding | None:
        """None: some row is not cached."""
        places = [self.places.get(name) for name in _names(batch)]
        if None in places:
            return None
        layers = torch.cat([self.table[:, place] for place in places], 1).float()
        return Encoding(layers[-1], tuple(layers))


def build_frozen_cache(
    learner: Learner, windows: Sequence[Window], tokenizer: Tokenizer, limit: int | None = None
) -> FrozenCache | None:
    """`limit`: bytes; None: a fraction of the available memory. Returns None if nothing can be cached."""
    assert learner.frozen is not None
    different = list({_name(window.ids, window.segments): window for window in windows}.values())
    if not different or next(learner.backbone.parameters()).device.type != "cpu":
        return None
    tokens, table, places, filled = sum(len(window.ids) for window in different), None, {}, 0
    for group in batches([len(window.ids) for window in different]):
        batch = learner.batch(to_rows([different[place] for place in group]), tokenizer)
        encoding = learner.frozen.encode(batch)
        layers = torch.stack(encoding.layers or (encoding.vectors,))
        if table is None:
            kind = _kind(len(layers) * tokens * layers.shape[2], _limit() if limit is None else limit)
            if kind is None:
                return None
            table = torch.empty(len(layers), tokens, layers.shape[2], dtype=kind)
        table[:, filled : filled + len(batch.ids)] = layers
        for name, length in zip(_names(batch), batch.lengths, strict=True):
            places[name] = slice(filled, filled + length)
            filled += length
    assert table is not None
    return FrozenCache(table, places) if torch.isfinite(table).all() else None


def _kind(numbers: int, limit: int) -> torch.dtype | None:
    return next((kind for kind in (torch.float32, torch.float16) if numbers * kind.itemsize <= limit), None)


def _limit() -> int:
    return min(available_memory() or UNKNOWN, memory_limit() or UNKNOWN) // SHARE


def _names(batch: Batch) -> list[bytes]:
    rows = (batch.ids.split(batch.lengths), batch.segments.split(batch.lengths))
    return [_name(ids.numpy(), segments.numpy()) for ids, segments in zip(*rows, strict=True)]


def _name(ids: np.ndarray, segments: np.ndarray) -> bytes:
    return np.stack([ids, segments]).astype(np.int64).tobytes()
