"""Multi-head self-attention over a flat batch: softmax(Q K^T / sqrt(d)) V for each row (Vaswani et al. 2017).

In: (T, W) vectors of all rows end to end, and the rows' lengths, longest first. Out: (T, W).
This is the only file that knows about attention kernels and padding.

Notable choices
- On a CPU there is no padding at all: rows of equal length are neighbours, so a run of them is a dense view and needs
  no mask. A row's result cannot depend on its company.
- In training on a CPU the whole of it is one node of the graph with a gradient of its own (`Attend`): fewer than half
  the kernel calls where every row has another length, and a row's weights stay in the cache. torch's fused kernel has
  no dropout there, and its bf16 gradient took three times as long (docs/notebook.md); without a gradient it is fastest.
- On an accelerator one padded, masked call beats many small ones; padding lives and dies inside `_attend_padded`.
- Query, key and value come from one matrix product; published checkpoints store three (see the name tables).

Shapes: T tokens, R rows, L length, W width, H heads, D = W / H.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.dropout import keep

TOGETHER = 1 << 20  # attention weights that are computed at once in training


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, share: float) -> None:
        super().__init__()
        self.heads = heads
        self.share = share  # of the attention weights dropped in training
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, lengths: tuple[int, ...], asked: Tensor | None = None) -> Tensor:
        """`asked`: the places whose result is wanted; None: all."""
        qkv, share = self.qkv(x), self.share if self.training else 0.0
        if qkv.device.type != "cpu":
            mixed = _attend_padded(qkv, lengths, self.heads, share)
        elif share or torch.is_grad_enabled():
            mixed = Attend.apply(qkv, lengths, self.heads, share)
        else:
            mixed = _attend_fused(qkv, lengths, self.heads)
        return self.out(mixed if asked is None else mixed[asked])


def padding_share(lengths: tuple[int, ...], device: torch.device) -> float:
    """How much of the attention's work is padding on this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


class Attend(torch.autograd.Function):
    """softmax(Q K^T / sqrt(D)) V with dropout on the weights. The weights are fp32 also where the vectors are bf16."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, lengths: tuple[int, ...], heads: int, share: float) -> Tensor:
        mixed = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        saved = []
        with torch.autocast("cpu", enabled=False):
            for part, rows in _runs(lengths, heads):
                q, k, v = _split(qkv[part], rows, heads)
                weights = torch.softmax(_product(q, k.transpose(1, 2), q.shape[-1] ** -0.5), -1, dtype=torch.float32)
                kept = keep(weights, share) if share else None
                used = weights if kept is None else weights * kept
                _join(mixed[part], rows, heads, torch.bmm(used.to(v.dtype), v))
                saved += [weights] if kept is None else [weights, kept]
        ctx.save_for_backward(qkv, *saved)
        ctx.given = lengths, heads, share
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """With U = dropped W: dV = U^T dO; dW = (dO V^T) dropped alike; dS is the softmax's; dQ = dS K, dK = dS^T Q."""
        (gradient,) = gradients
        qkv, *rest = ctx.saved_tensors
        lengths, heads, share = ctx.given
        saved = iter(rest)
        result = torch.empty_like(qkv)
        for part, rows in _runs(lengths, heads):
            q, k, v = _split(qkv[part], rows, heads)
            (d_mixed,) = _split(gradient[part], rows, heads, parts=1)
            weights = next(saved)
            kept = next(saved) if share else None
            used = weights if kept is None else weights * kept
            d_v = torch.bmm(used.to(v.dtype).transpose(1, 2), d_mixed)
            d_used = torch.bmm(d_mixed, v.transpose(1, 2))
            d_weights = (d_used if kept is None else d_used * kept).to(weights.dtype)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).to(q.dtype)
            scale = q.shape[-1] ** -0.5
            d_q, d_k = _product(d_scores, k, scale), _product(d_scores.transpose(1, 2), q, scale)
            _join(result[part], rows, heads, d_q, d_k, d_v)
        return result, None, None, None


def _runs(lengths: tuple[int, ...], heads: int = 0) -> Iterator[tuple[slice, int]]:
    """Neighbours of equal length: their tokens' places, and how many rows they are. With `heads`, some at a time."""
    start = 0
    for length, run in groupby(lengths):
        left = sum(1 for _ in run)
        most = max(1, TOGETHER // (heads * length**2)) if heads else left
        while left:
            rows = min(left, most)
            yield slice(start, start + rows * length), rows
            start, left = start + rows * length, left - rows


def _split(x: Tensor, rows: int, heads: int, parts: int = 3) -> list[Tensor]:
    """(rows x L, parts x W) -> parts of (rows x H, L, D); without a copy where there is one row."""
    return [p.flatten(0, 1) for p in x.view(rows, len(x) // rows, parts, heads, -1).permute(2, 0, 3, 1, 4)]


def _join(to: Tensor, rows: int, heads: int, *parts: Tensor) -> None:
    """The way back, into a place that is there."""
    places = to.view(rows, len(to) // rows, len(parts), heads, -1).permute(2, 0, 3, 1, 4)
    for place, part in zip(places, parts, strict=True):
        place.copy_(part.view(place.shape))


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)


def _attend_fused(qkv: Tensor, lengths: tuple[int, ...], heads: int) -> Tensor:
    mixed: list[Tensor] = []
    for part, rows in _runs(lengths):
        q, k, v = _by_head(qkv[part].view(rows, -1, qkv.shape[1]), heads)
        mixed.append(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, qkv.shape[1] // 3))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _attend_padded(qkv: Tensor, lengths: tuple[int, ...], heads: int, share: float) -> Tensor:
    rows, longest = len(lengths), max(lengths)
    length = torch.tensor(lengths, device=qkv.device)
    real = torch.arange(longest, device=qkv.device) < length[:, None]  # (R, L)
    # Places are worked out from the lengths the host knows, so nothing waits for the device (`real.nonzero` would).
    place = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)]).to(qkv.device)
    padded = qkv.new_zeros(rows * longest, qkv.shape[1]).index_copy(0, place, qkv)
    q, k, v = _by_head(padded.view(rows, longest, -1), heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :], dropout_p=share)
    return mixed.transpose(1, 2).reshape(rows * longest, -1).index_select(0, place)


def _by_head(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    rows, length, triple = qkv.shape
    q, k, v = qkv.view(rows, length, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4)
    return q, k, v
