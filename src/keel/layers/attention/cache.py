"""Key/value cache of one attention layer, so that generating a token does not recompute the tokens before it.

In: queries, keys and values of the next tokens. Out: their outputs. `generation.py` puts a cache into every layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from keel.layers.attention.context import ScoreBias
from keel.layers.attention.cpu import AttentionOptions


class KeyValueCache:
    """For rows of equal length."""

    def __init__(self) -> None:
        self.length = 0  # tokens cached per row
        self._stored: Tensor | None = None  # (2, R, H, capacity, D)

    def attend(self, qkv: Tensor, rows: int, options: AttentionOptions, bias: ScoreBias | None) -> Tensor:
        """Causal attention of the next tokens (the same number in each row) to the cached tokens and each other."""
        heads = options.heads
        q, k, v = qkv.view(rows, -1, 3, heads, qkv.shape[1] // (3 * heads)).permute(2, 0, 3, 1, 4)
        past, self.length = self.length, self.length + q.shape[2]
        stored = self._make_room(torch.stack([k, v]))
        stored[:, :, :, past : self.length] = torch.stack([k, v])
        keys, values = stored[:, :, :, : self.length]
        hidden = torch.ones(q.shape[2], self.length, dtype=torch.bool, device=q.device).triu(past + 1)
        mask = ~hidden
        if bias is not None:
            positions = torch.arange(self.length, device=q.device)
            mask = bias(positions[past:], positions).to(q.dtype).masked_fill(hidden, -torch.inf)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=options.scale)
        return mixed.transpose(1, 2).reshape(len(qkv), -1)

    def pick(self, rows: Tensor) -> None:
        """Keeps these rows of the cache; an index may be repeated."""
        assert self._stored is not None
        self._stored = self._stored[:, rows]

    def _make_room(self, new: Tensor) -> Tensor:
        """Doubles the capacity when the cache is full, so that copies are rare."""
        if self._stored is None or self._stored.shape[3] < self.length:
            shape = list(new.shape)
            shape[3] = 2 * self.length
            larger = new.new_zeros(shape)
            if self._stored is not None:
                larger[:, :, :, : self._stored.shape[3]] = self._stored
            self._stored = larger
        return self._stored
