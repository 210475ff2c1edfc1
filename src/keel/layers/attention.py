"""Multi-head self-attention over a flat batch: softmax(Q K^T / sqrt(d)) V for each row (Vaswani et al. 2017).

In: (T, W) vectors of all rows end to end, and the rows' lengths, longest first. Out: (T, W).
This is the only file that knows about attention kernels and padding.

Notable choices
- On a CPU there is no padding at all: rows of equal length are neighbours, so each run of them is a dense
  (rows, H, length, D) view without a copy, and needs no mask. A row's result cannot depend on its company.
- On an accelerator one padded, masked call beats many small ones; padding lives and dies inside `_attend_padded`.
- Query, key and value come from one matrix product; published checkpoints store three (see the name tables).

Shapes: T tokens, R rows, L length, W width, H heads, D = W / H.
"""

from __future__ import annotations

from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.dropout import dropout


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, share: float) -> None:
        super().__init__()
        self.heads = heads
        self.share = share  # of the attention weights dropped in training
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, lengths: tuple[int, ...]) -> Tensor:
        attend = _attend_dense if x.device.type == "cpu" else _attend_padded
        return self.out(attend(self.qkv(x), lengths, self.heads, self.share if self.training else 0.0))


def padding_share(lengths: tuple[int, ...], device: torch.device) -> float:
    """How much of the attention's work is padding on this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


def _attend_dense(qkv: Tensor, lengths: tuple[int, ...], heads: int, share: float) -> Tensor:
    results, start = [], 0
    for length, run in groupby(lengths):
        rows = sum(1 for _ in run)
        stop = start + rows * length
        q, k, v = _split(qkv[start:stop].view(rows, length, -1), heads)
        mixed = _mix(q, k, v, share)
        results.append(mixed.transpose(1, 2).reshape(rows * length, -1))
        start = stop
    return results[0] if len(results) == 1 else torch.cat(results)


def _mix(q: Tensor, k: Tensor, v: Tensor, share: float) -> Tensor:
    """Without dropout torch's fused kernel; with it, the kernel would take a slower path than these three lines."""
    if not share:
        return F.scaled_dot_product_attention(q, k, v)
    weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), -1)
    return dropout(weights, share) @ v


def _attend_padded(qkv: Tensor, lengths: tuple[int, ...], heads: int, share: float) -> Tensor:
    rows, longest = len(lengths), max(lengths)
    length = torch.tensor(lengths, device=qkv.device)
    real = torch.arange(longest, device=qkv.device) < length[:, None]  # (R, L)
    # Places are worked out from the lengths the host knows, so nothing waits for the device (`real.nonzero` would).
    place = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)]).to(qkv.device)
    padded = qkv.new_zeros(rows * longest, qkv.shape[1]).index_copy(0, place, qkv)
    q, k, v = _split(padded.view(rows, longest, -1), heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :], dropout_p=share)
    return mixed.transpose(1, 2).reshape(rows * longest, -1).index_select(0, place)


def _split(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    rows, length, triple = qkv.shape
    q, k, v = qkv.view(rows, length, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4)
    return q, k, v
