"""Attention on an accelerator: one padded, masked call of torch's fused kernel is faster than many small ones.

In: (T, 3 W) queries, keys and values, flat. Out: (T, W), flat. Padding never leaves `attend_padded`.

Shapes: T tokens, R rows, L longest row, W width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from keel.layers.attention.context import ScoreBias
from keel.layers.attention.cpu import AttentionOptions, Run, parts_of


def attend_padded(qkv: Tensor, lengths: tuple[int, ...], options: AttentionOptions, bias: ScoreBias | None) -> Tensor:
    rows, longest = len(lengths), max(lengths)
    # Indices are computed from the lengths, which are on the host: `nonzero` would synchronise with the device.
    place = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)]).to(qkv.device)
    padded = qkv.new_zeros(rows * longest, qkv.shape[1]).index_copy(0, place, qkv[: len(place)])
    everything = slice(None)
    q, k, v = parts_of([padded], Run(rows, longest, longest, everything, everything), options.heads)
    mask = _mask(lengths, options, qkv.device)
    if bias is not None:
        positions = torch.arange(longest, device=qkv.device)
        mask = bias(positions, positions)[None].to(q.dtype).masked_fill(~mask, -torch.inf)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=options.dropout, scale=options.scale)
    return mixed.transpose(1, 2).reshape(rows * longest, -1).index_select(0, place)


def _mask(lengths: tuple[int, ...], options: AttentionOptions, device: torch.device) -> Tensor:
    """(R, 1, 1 or L, L) bool: the keys that each query attends to."""
    longest = max(lengths)
    inside = torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
    visible = inside[:, None, None, :]
    hidden = options.window.mask(slice(0, longest), slice(0, longest), device)
    if hidden is None:
        return visible
    # Padding attends to itself: a softmax over no keys is NaN.
    return (visible & ~hidden) | torch.eye(longest, dtype=torch.bool, device=device)
