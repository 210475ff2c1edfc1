"""Attention on a CPU: no padding, and a hand-written backward pass.

In: (T, 3 W) queries, keys and values of flat rows; or (S, W) queries of the selected tokens, and (T, 2 W) keys and
values. Out: (T, W) or (S, W).

Notable choices
- Rows of equal length are adjacent, so a run of them is a dense view and needs no mask. A row's result cannot depend
  on the other rows of the batch.
- In training, attention is a single autograd node (`Attend`): fewer than half the kernel calls where every row has a
  different length, and a row's attention weights stay in the CPU cache. torch's fused kernel has no dropout on a CPU,
  and its bf16 backward pass took three times as long (docs/notebook.md); without gradients it is the fastest.
- With a limited window (`AttentionWindow`) a token costs only the keys it attends to: long rows are computed in chunks
  of queries. Memory is bounded: for very long rows the weights are recomputed in the backward pass.

Shapes: T tokens, S selected tokens, R rows, L length, W width, H heads, D = W / H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from keel.layers.attention.window import FULL, AttentionWindow, size_of
from keel.layers.dropout import dropout_mask

UNLIMITED = 1 << 62
FEW_TOKENS = 512  # runs with fewer tokens are computed in fp32: not worth a bf16 product (see `layers/padding.py`)
TOGETHER = 1 << 20  # attention weights computed at once in training
STORED = 1 << 26  # attention weights of a run stored for the backward pass; more are recomputed
LEAST_QUERIES = 512  # smallest chunk of queries, with full attention


@dataclass(frozen=True)
class AttentionOptions:
    """How an attention layer combines queries, keys and values."""

    heads: int
    scale: float
    window: AttentionWindow = FULL
    dropout: float = 0.0  # rate, on the attention weights


def attend_rows(
    projected: list[Tensor], lengths: tuple[int, ...], counts: tuple[int, ...], options: AttentionOptions
) -> Tensor:
    """`lengths`: number of keys of each row; `counts`: number of queries."""
    if options.dropout or torch.is_grad_enabled():
        mixed: Tensor = Attend.apply(lengths, counts, options, *projected)
        return mixed
    return _attend_fused(lengths, counts, options, projected)


class Attend(torch.autograd.Function):
    """softmax(Q K^T x scale) V with dropout on the weights. The weights are fp32 even where the vectors are bf16."""

    @staticmethod
    def forward(
        ctx: Any, lengths: tuple[int, ...], counts: tuple[int, ...], options: AttentionOptions, *projected: Tensor
    ) -> Tensor:
        first = projected[0]
        mixed = first.new_empty(len(first), _width(projected))
        mixed[sum(counts) :] = 0
        runs = list(runs_of(lengths, counts, options.heads, TOGETHER))
        masks = _dropout_masks(runs, options, first.device)
        saved = []
        with torch.autocast("cpu", enabled=False):
            for run in runs:
                if not run.count:
                    continue
                q, k, v = _batched(projected, run, options.heads)
                outputs = []
                for queries, keys in run.chunks(options):
                    weights = _weights(q[:, queries], k[:, keys], options, queries, keys)
                    factor = next(masks).view(weights.shape) if options.dropout else None
                    used = weights if factor is None else weights * factor
                    outputs.append(torch.bmm(used.to(v.dtype), v[:, keys]))
                    saved += [weights] if run.stores_weights(options) else []
                    saved += [] if factor is None else [factor]
                _join([mixed], run, options.heads, [_cat(outputs)])
        ctx.save_for_backward(*projected, *saved)
        ctx.given = runs, options, len(projected)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """With U = dropout(W): dV = U^T dO; dW = dO V^T under the same dropout mask; dS = softmax backward of dW;
        dQ = dS K, dK = dS^T Q."""
        runs, options, count = ctx.given
        projected, saved = ctx.saved_tensors[:count], iter(ctx.saved_tensors[count:])
        results = [torch.empty_like(x) for x in projected]
        for x, used_rows in zip(results, (runs[-1].queries.stop, runs[-1].tokens.stop), strict=False):
            x[used_rows:] = 0
        for run in runs:
            if not run.count:  # rows without a selected token
                results[-1][run.tokens] = 0
                continue
            q, k, v = _batched(projected, run, options.heads)
            (d_mixed,) = _batched(gradients, run, options.heads, parts=1)
            chunks, slopes = list(run.chunks(options)), []
            for queries, keys in chunks:
                stored = run.stores_weights(options)
                weights = next(saved) if stored else _weights(q[:, queries], k[:, keys], options, queries, keys)
                factor = next(saved) if options.dropout else None
                slopes.append(
                    _gradients(d_mixed[:, queries], q[:, queries], k[:, keys], v[:, keys], weights, factor, options)
                )
            d_q, d_k, d_v = (list(parts) for parts in zip(*slopes, strict=True))
            places = [keys for _, keys in chunks]
            _join(results, run, options.heads, [_cat(d_q), _sum(d_k, places, k), _sum(d_v, places, v)])
        return None, None, None, *results


def _gradients(
    d_mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, factor: Tensor | None, options: AttentionOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to one chunk's queries, keys and values."""
    used = weights if factor is None else weights * factor
    d_v = torch.bmm(used.to(v.dtype).transpose(1, 2), d_mixed)
    d_used = torch.bmm(d_mixed, v.transpose(1, 2))
    d_weights = (d_used if factor is None else d_used * factor).to(weights.dtype)
    d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).to(q.dtype)
    d_k = _product(d_scores.transpose(1, 2), q, options.scale)
    return _product(d_scores, k, options.scale), d_k, d_v


def _weights(q: Tensor, k: Tensor, options: AttentionOptions, queries: slice, keys: slice) -> Tensor:
    scores = _product(q, k.transpose(1, 2), options.scale)
    hidden = options.window.mask(queries, keys, q.device)
    return torch.softmax(scores if hidden is None else scores.masked_fill_(hidden, -torch.inf), -1, torch.float32)


def _dropout_masks(runs: Sequence[Run], options: AttentionOptions, device: torch.device) -> Iterator[Tensor]:
    """Dropout factors for the weights of each chunk, from a single draw."""
    if not options.dropout:
        return iter(())
    sizes = [
        run.rows * options.heads * size_of(queries) * size_of(keys)
        for run in runs
        if run.count
        for queries, keys in run.chunks(options)
    ]
    return iter(dropout_mask(sum(sizes), options.dropout, torch.float32, device).split(sizes))


def _cat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _sum(parts: list[Tensor], places: list[slice], like: Tensor) -> Tensor:
    """Adds up parts whose places overlap."""
    if len(parts) == 1:
        return parts[0]
    total = torch.zeros_like(like)
    for part, place in zip(parts, places, strict=True):
        total[:, place] += part
    return total


@dataclass(frozen=True)
class Run:
    """Adjacent rows computed together: `rows` of them, each with `length` tokens and `count` queries."""

    rows: int
    length: int
    count: int
    tokens: slice
    queries: slice

    def chunks(self, options: AttentionOptions) -> Iterator[tuple[slice, slice]]:
        """Queries computed together, and the keys they attend to."""
        if options.window != FULL:
            yield from options.window.chunks(self.length)
            return
        step = max(LEAST_QUERIES, TOGETHER // (options.heads * self.length))
        for first in range(0, self.count, step):
            yield slice(first, min(first + step, self.count)), slice(0, self.length)

    def stores_weights(self, options: AttentionOptions) -> bool:
        """Whether the attention weights are stored for the backward pass."""
        size = sum(size_of(queries) * size_of(keys) for queries, keys in self.chunks(options))
        return self.rows * options.heads * size <= STORED


def runs_of(
    lengths: tuple[int, ...], counts: tuple[int, ...], heads: int = 1, together: int = UNLIMITED
) -> Iterator[Run]:
    """Groups adjacent rows of equal length and count, with about `together` attention weights per run."""
    token = query = 0
    for (length, count), run in groupby(zip(lengths, counts, strict=True)):
        left = sum(1 for _ in run)
        most = max(1, together // max(1, heads * length * count))
        while left:
            rows = min(left, most)
            stops = token + rows * length, query + rows * count
            yield Run(rows, length, count, slice(token, stops[0]), slice(query, stops[1]))
            (token, query), left = stops, left - rows


def _width(projected: Sequence[Tensor]) -> int:
    return sum(x.shape[1] for x in projected) // 3


def parts_of(tensors: Sequence[Tensor], run: Run, heads: int, parts: int = 3) -> Iterator[Tensor]:
    """Views of the run's rows as (rows, H, L, D), one or more from each tensor, without a copy.

    Queries come first; keys and values are in the same tensor, or in a second one."""
    size = sum(x.shape[1] for x in tensors) // (parts * heads)
    for x, place in zip(tensors, (run.queries, run.tokens), strict=False):
        yield from x[place].view(run.rows, -1, x.shape[1] // (heads * size), heads, size).permute(2, 0, 3, 1, 4)


def _batched(tensors: Sequence[Tensor], run: Run, heads: int, parts: int = 3) -> Iterator[Tensor]:
    """The same as (rows x H, L, D), in fp32 for short runs."""
    kind = torch.float32 if run.rows * run.length < FEW_TOKENS else tensors[0].dtype
    return (part.flatten(0, 1).to(kind) for part in parts_of(tensors, run, heads, parts))


def _join(tensors: Sequence[Tensor], run: Run, heads: int, parts: Sequence[Tensor]) -> None:
    """The inverse of `_batched`: writes the parts into existing tensors."""
    for to, part in zip(parts_of(tensors, run, heads, len(parts)), parts, strict=True):
        to.copy_(part.view(to.shape))


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=scale)


def _attend_fused(
    lengths: tuple[int, ...], counts: tuple[int, ...], options: AttentionOptions, projected: Sequence[Tensor]
) -> Tensor:
    first = projected[0]
    mixed = [first.new_zeros(len(first) - sum(counts), _width(projected))]
    for run in runs_of(lengths, counts, options.heads):
        if run.count:
            q, k, v = parts_of(projected, run, options.heads)
            outputs = []
            for queries, keys in run.chunks(options):
                hidden = options.window.mask(queries, keys, q.device)
                visible = None if hidden is None else ~hidden
                chunk = q[:, :, queries], k[:, :, keys], v[:, :, keys]
                attended = F.scaled_dot_product_attention(*chunk, attn_mask=visible, scale=options.scale)
                outputs.append(attended.transpose(1, 2))
            mixed.insert(-1, _cat(outputs).reshape(run.rows * run.count, -1))
    return torch.cat(mixed)
