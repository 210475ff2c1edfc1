"""What a frozen encoder said about a row, kept: over all epochs and evaluations it is asked once.

In: batches of rows, and how to compute them. Out: their layers, computed or as they were kept.

Notable choices
- A row is known by its tokens. Nothing else can change its vectors, for a frozen encoder has no dropout and a row's
  vectors do not depend on its company.
- Under autocast they are kept in bf16, and rounded before they are used for the first time, so that a resumed run sees
  the same.
- There is a limit. Beyond it nothing is kept at all: with a part of the rows missing, nearly every batch would have to
  be computed anyway.
- Not on accelerators, where looking at the tokens would wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from keel.interfaces import Batch, Encoding
from keel.training.machine import available_memory

SHARE = 4  # of the memory that can be had, one part in so many
UNKNOWN = 2 << 30  # bytes, where nobody knows how much there is


class KeptLayers:
    def __init__(self, limit: int | None = None) -> None:
        self.left = (available_memory() or SHARE * UNKNOWN) // SHARE if limit is None else limit  # bytes
        self.rows: dict[bytes, Tensor] = {}  # (layers, length, W) each

    def __call__(self, batch: Batch, ask: Callable[[Batch], Encoding]) -> Encoding:
        if batch.ids.device.type != "cpu" or self.left < 0:
            return ask(batch)
        names = _names(batch)
        if not all(name in self.rows for name in names):
            self._keep(names, ask(replace(batch, asked=None)), batch.lengths)
        if self.left < 0:
            return ask(batch)
        found = torch.cat([self.rows[name] for name in names], 1).float()
        return Encoding(found[-1], tuple(found))

    def _keep(self, names: Sequence[bytes], found: Encoding, lengths: tuple[int, ...]) -> None:
        layers = torch.stack(found.layers or (found.vectors,))
        kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else layers.dtype
        for name, row in zip(names, layers.to(kind).split(lengths, 1), strict=True):
            if name not in self.rows:
                self.rows[name] = row.clone()
                self.left -= row.nbytes
        if self.left < 0:
            self.rows.clear()


def _names(batch: Batch) -> list[bytes]:
    pairs = torch.stack([batch.ids, batch.segments], 1).split(batch.lengths)
    return [pair.numpy().tobytes() for pair in pairs]
