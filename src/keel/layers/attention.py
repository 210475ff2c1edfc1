"""Multi-head self-attention over a flat batch: softmax(Q K^T / sqrt(d)) V for each row (Vaswani et al. 2017).

In: (T, W) vectors of all rows end to end, and the rows' lengths, longest first. Out: (T, W). Vectors behind the last
row are filler (`layers/filler.py`): they are not looked at, and become zeros.
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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.interfaces import Asked
from keel.layers.dropout import keep

ALL = 1 << 62
SMALL = 512  # tokens of rows of one length; fewer are not worth a bf16 product (see `layers/filler.py`)
TOGETHER = 1 << 20  # attention weights that are computed at once in training


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, share: float) -> None:
        super().__init__()
        self.heads = heads
        self.share = share  # of the attention weights dropped in training
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None) -> Tensor:
        """`asked`: the places whose result is wanted; None: all. Everything is looked at all the same."""
        share = self.share if self.training else 0.0
        if x.device.type != "cpu":
            mixed = _attend_padded(self.qkv(x), lengths, self.heads, share)
            return self.out(mixed if asked is None else mixed[asked.places])
        projected, counts = self._project(x, asked), lengths if asked is None else asked.counts
        if share or torch.is_grad_enabled():
            return self.out(Attend.apply(lengths, counts, self.heads, share, *projected))
        return self.out(_attend_fused(lengths, counts, self.heads, projected))

    def _project(self, x: Tensor, asked: Asked | None) -> list[Tensor]:
        """Queries, keys and values in one tensor; or queries of the asked places, and the rest in another."""
        if asked is None:
            return [self.qkv(x)]
        weight, bias, width = self.qkv.weight, self.qkv.bias, x.shape[1]
        queries = F.linear(x[asked.places], weight[:width], bias[:width])
        return [queries, F.linear(x, weight[width:], bias[width:])]


def padding_share(lengths: tuple[int, ...], device: torch.device) -> float:
    """How much of the attention's work is padding on this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


class Attend(torch.autograd.Function):
    """softmax(Q K^T / sqrt(D)) V with dropout on the weights. The weights are fp32 also where the vectors are bf16."""

    @staticmethod
    def forward(
        ctx: Any, lengths: tuple[int, ...], counts: tuple[int, ...], heads: int, share: float, *projected: Tensor
    ) -> Tensor:
        first = projected[0]
        mixed = first.new_empty(len(first), _width(projected))
        mixed[sum(counts) :] = 0
        runs = list(_runs(lengths, counts, heads, TOGETHER))
        factors: Sequence[Tensor | None] = [None] * len(runs)
        if share:  # one draw for all rows
            sizes = [run.rows * heads * run.count * run.length for run in runs]
            factors = keep(sum(sizes), share, torch.float32, first.device).split(sizes)
        saved = []
        with torch.autocast("cpu", enabled=False):
            for run, factor in zip(runs, factors, strict=True):
                if not run.count:
                    continue
                q, k, v = _batched(projected, run, heads)
                weights = torch.softmax(_product(q, k.transpose(1, 2), q.shape[-1] ** -0.5), -1, dtype=torch.float32)
                used = weights if factor is None else weights * factor.view(weights.shape)
                _join([mixed], run, heads, [torch.bmm(used.to(v.dtype), v)])
                saved += [weights] if factor is None else [weights, factor]
        ctx.save_for_backward(*projected, *saved)
        ctx.given = runs, heads, bool(share), len(projected)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """With U = dropped W: dV = U^T dO; dW = (dO V^T) dropped alike; dS is the softmax's; dQ = dS K, dK = dS^T Q."""
        runs, heads, dropped, count = ctx.given
        projected, saved = ctx.saved_tensors[:count], iter(ctx.saved_tensors[count:])
        results = [torch.empty_like(x) for x in projected]
        for x, used in zip(results, (runs[-1].asked.stop, runs[-1].tokens.stop), strict=False):
            x[used:] = 0
        for run in runs:
            if not run.count:  # rows that nobody asks about
                results[-1][run.tokens] = 0
                continue
            q, k, v = _batched(projected, run, heads)
            (d_mixed,) = _batched(gradients, run, heads, parts=1)
            weights = next(saved)
            factor = next(saved).view(weights.shape) if dropped else None
            used = weights if factor is None else weights * factor
            d_v = torch.bmm(used.to(v.dtype).transpose(1, 2), d_mixed)
            d_used = torch.bmm(d_mixed, v.transpose(1, 2))
            d_weights = (d_used if factor is None else d_used * factor).to(weights.dtype)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).to(q.dtype)
            scale = q.shape[-1] ** -0.5
            d_q, d_k = _product(d_scores, k, scale), _product(d_scores.transpose(1, 2), q, scale)
            _join(results, run, heads, [d_q, d_k, d_v])
        return None, None, None, None, *results


@dataclass(frozen=True)
class _Run:
    """Neighbours that are attended together: so many rows, each of so many tokens, of which `count` are asked."""

    rows: int
    length: int
    count: int
    tokens: slice
    asked: slice

    @property
    def places(self) -> tuple[slice, slice]:
        """Where queries stand, and keys and values where they have a tensor of their own."""
        return self.asked, self.tokens


def _runs(lengths: tuple[int, ...], counts: tuple[int, ...], heads: int, together: int) -> Iterator[_Run]:
    token = query = 0
    for (length, count), run in groupby(zip(lengths, counts, strict=True)):
        left = sum(1 for _ in run)
        most = max(1, together // max(1, heads * length * count))
        while left:
            rows = min(left, most)
            stops = token + rows * length, query + rows * count
            yield _Run(rows, length, count, slice(token, stops[0]), slice(query, stops[1]))
            (token, query), left = stops, left - rows


def _width(projected: Sequence[Tensor]) -> int:
    return sum(x.shape[1] for x in projected) // 3


def _parts(tensors: Sequence[Tensor], run: _Run, heads: int, parts: int = 3) -> Iterator[Tensor]:
    """The run's share of each tensor as (rows, H, L, D), one or more from each, without a copy."""
    size = sum(x.shape[1] for x in tensors) // (parts * heads)
    for x, place in zip(tensors, run.places, strict=False):
        yield from x[place].view(run.rows, -1, x.shape[1] // (heads * size), heads, size).permute(2, 0, 3, 1, 4)


def _batched(tensors: Sequence[Tensor], run: _Run, heads: int, parts: int = 3) -> Iterator[Tensor]:
    """The same as (rows x H, L, D), in fp32 where there is little of it."""
    kind = torch.float32 if run.rows * run.length < SMALL else tensors[0].dtype
    return (part.flatten(0, 1).to(kind) for part in _parts(tensors, run, heads, parts))


def _join(tensors: Sequence[Tensor], run: _Run, heads: int, parts: Sequence[Tensor]) -> None:
    """The way back, into tensors that are there."""
    for to, part in zip(_parts(tensors, run, heads, len(parts)), parts, strict=True):
        to.copy_(part.view(to.shape))


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)


def _attend_fused(lengths: tuple[int, ...], counts: tuple[int, ...], heads: int, projected: Sequence[Tensor]) -> Tensor:
    first = projected[0]
    mixed = [first.new_zeros(len(first) - sum(counts), _width(projected))]
    for run in _runs(lengths, counts, heads, ALL):
        if run.count:
            q, k, v = _parts(projected, run, heads)
            attended = F.scaled_dot_product_attention(q, k, v)
            mixed.insert(-1, attended.transpose(1, 2).reshape(run.rows * run.count, -1))
    return torch.cat(mixed)


def _attend_padded(qkv: Tensor, lengths: tuple[int, ...], heads: int, share: float) -> Tensor:
    rows, longest = len(lengths), max(lengths)
    length = torch.tensor(lengths, device=qkv.device)
    real = torch.arange(longest, device=qkv.device) < length[:, None]  # (R, L)
    # Places are worked out from the lengths the host knows, so nothing waits for the device (`real.nonzero` would).
    place = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)]).to(qkv.device)
    padded = qkv.new_zeros(rows * longest, qkv.shape[1]).index_copy(0, place, qkv)
    everything = slice(None)
    q, k, v = _parts([padded], _Run(rows, longest, longest, everything, everything), heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :], dropout_p=share)
    return mixed.transpose(1, 2).reshape(rows * longest, -1).index_select(0, place)
