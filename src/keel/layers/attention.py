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
- Query, key and value come from one matrix product; published checkpoints store three (see the name tables). The same
  product may serve in several roles (`roles`): that is all the ablation "which projections are needed" takes.
- A token that does not look everywhere (`Look`) costs what it looks at: long rows go through in pieces of queries, each
  with the keys that some query of it sees. Memory is bounded: of very long rows the weights are computed again for the
  gradient instead of being kept.

Shapes: T tokens, R rows, L length, W width, H heads, D = W / H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.interfaces import Asked
from keel.layers.dropout import keep
from keel.layers.look import EVERYWHERE, LEFT, Look, size_of
from keel.layers.rotary import Turn

ALL = 1 << 62
SMALL = 512  # tokens of rows of one length; fewer are not worth a bf16 product (see `layers/filler.py`)
TOGETHER = 1 << 20  # attention weights that are computed at once in training
KEPT = 1 << 26  # attention weights of a run that are kept for the gradient; more are computed again
WHOLE = 512  # queries that are computed at once at least, where they look everywhere
ROLES = (0, 1, 2)  # which third of the product serves as query, key and value


@dataclass(frozen=True)
class How:
    """What an attention layer does with queries, keys and values."""

    heads: int
    scale: float
    look: Look = EVERYWHERE
    share: float = 0.0  # of the weights that are dropped


class SelfAttention(nn.Module):
    """`scale`: of the dot products; None: 1 / sqrt(D)."""

    def __init__(
        self,
        width: int,
        heads: int,
        share: float,
        *,
        bias: bool = True,
        look: Look = EVERYWHERE,
        roles: tuple[int, int, int] = ROLES,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.share = share  # of the attention weights dropped in training
        self.look = look
        self.roles = roles
        self.memory: Memory | None = None  # of the tokens read before, while a text is being written
        self.scale = (width // heads) ** -0.5 if scale is None else scale
        self.qkv = nn.Linear(width, (max(roles) + 1) * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None, turn: Turn | None = None
    ) -> Tensor:
        """`asked`: the places whose result is wanted; None: all. Everything is looked at all the same.

        `turn`: rotates queries and keys by their positions."""
        how = How(self.heads, self.scale, self.look, self.share if self.training else 0.0)
        if self.memory is not None:
            return self.out(self.memory.attend(self._project(x, None, turn)[0], len(lengths), how))
        if x.device.type != "cpu" or (asked is not None and self.look != EVERYWHERE):
            mixed = self._mix(self._project(x, None, turn), lengths, lengths, how)
            return self.out(mixed if asked is None else mixed[asked.places])
        counts = lengths if asked is None else asked.counts
        return self.out(self._mix(self._project(x, asked, turn), lengths, counts, how))

    def _mix(self, projected: list[Tensor], lengths: tuple[int, ...], counts: tuple[int, ...], how: How) -> Tensor:
        if projected[0].device.type != "cpu":
            return _attend_padded(projected[0], lengths, how)
        if how.share or torch.is_grad_enabled():
            mixed: Tensor = Attend.apply(lengths, counts, how, *projected)
            return mixed
        return _attend_fused(lengths, counts, how, projected)

    def _project(self, x: Tensor, asked: Asked | None, turn: Turn | None) -> list[Tensor]:
        """Queries, keys and values in one tensor; or queries of the asked places, and the rest in another."""
        if asked is None:
            found = self._in_roles(self.qkv(x), self.roles)
            return [found if turn is None else turn(found, 2 * self.heads)]
        queries, rest = self._rows_of(x[asked.places], self.roles[:1]), self._rows_of(x, self.roles[1:])
        if turn is not None:
            queries, rest = turn.at(asked.places)(queries, self.heads), turn(rest, self.heads)
        return [queries, rest]

    def _rows_of(self, x: Tensor, roles: tuple[int, ...]) -> Tensor:
        """The product with only those thirds of the matrix that have one of these roles."""
        width, first, stop = x.shape[1], min(roles), max(roles) + 1
        weight, bias = self.qkv.weight[first * width : stop * width], self.qkv.bias
        found = F.linear(x, weight, None if bias is None else bias[first * width : stop * width])
        return self._in_roles(found, tuple(role - first for role in roles))

    def _in_roles(self, found: Tensor, roles: tuple[int, ...]) -> Tensor:
        if roles == tuple(range(len(roles))):
            return found
        parts = found.chunk(max(roles) + 1, 1)
        return torch.cat([parts[role] for role in roles], 1)


class Memory:
    """Keys and values of what rows of equal length have read so far, so that going on costs only what is new."""

    def __init__(self) -> None:
        self.read = 0  # tokens of each row
        self._kept: Tensor | None = None  # (2, R, H, room, D)

    def attend(self, qkv: Tensor, rows: int, how: How) -> Tensor:
        """The next tokens of each row, as many for one as for another, attend to everything up to themselves."""
        q, k, v = qkv.view(rows, -1, 3, how.heads, qkv.shape[1] // (3 * how.heads)).permute(2, 0, 3, 1, 4)
        past, self.read = self.read, self.read + q.shape[2]
        kept = self._room(torch.stack([k, v]))
        kept[:, :, :, past : self.read] = torch.stack([k, v])
        keys, values = kept[:, :, :, : self.read]
        hidden = torch.ones(q.shape[2], self.read, dtype=torch.bool, device=q.device).triu(past + 1)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=~hidden, scale=how.scale)
        return mixed.transpose(1, 2).reshape(len(qkv), -1)

    def pick(self, rows: Tensor) -> None:
        """Goes on from these rows of what was read."""
        assert self._kept is not None
        self._kept = self._kept[:, rows]

    def _room(self, new: Tensor) -> Tensor:
        """What is kept, with room for what is new: doubled when it is full, so nothing is copied often."""
        if self._kept is None or self._kept.shape[3] < self.read:
            shape = list(new.shape)
            shape[3] = 2 * self.read
            larger = new.new_zeros(shape)
            if self._kept is not None:
                larger[:, :, :, : self._kept.shape[3]] = self._kept
            self._kept = larger
        return self._kept


@contextmanager
def remembering(model: nn.Module) -> Iterator[None]:
    """Within this, a causal model's batches are the next tokens of the rows it has read so far."""
    layers = [part for part in model.modules() if isinstance(part, SelfAttention)]
    for layer in layers:
        assert layer.look == LEFT, "only a model that does not look ahead can go on from what it has read"
        layer.memory = Memory()
    try:
        yield
    finally:
        for layer in layers:
            layer.memory = None


def padding_share(lengths: tuple[int, ...], device: torch.device) -> float:
    """How much of the attention's work is padding on this device."""
    if device.type == "cpu" or not lengths:
        return 0.0
    return 1.0 - sum(lengths) / (len(lengths) * max(lengths))


class Attend(torch.autograd.Function):
    """softmax(Q K^T x scale) V with dropout on the weights. The weights are fp32 also where the vectors are bf16."""

    @staticmethod
    def forward(ctx: Any, lengths: tuple[int, ...], counts: tuple[int, ...], how: How, *projected: Tensor) -> Tensor:
        first = projected[0]
        mixed = first.new_empty(len(first), _width(projected))
        mixed[sum(counts) :] = 0
        runs = list(_runs(lengths, counts, how.heads, TOGETHER))
        draw = _Draw(runs, how, first.device)
        saved = []
        with torch.autocast("cpu", enabled=False):
            for run in runs:
                if not run.count:
                    continue
                q, k, v = _batched(projected, run, how.heads)
                found = []
                for queries, keys in run.pieces(how):
                    weights = _weights(q[:, queries], k[:, keys], how, queries, keys)
                    factor = draw.next(weights.shape)
                    used = weights if factor is None else weights * factor
                    found.append(torch.bmm(used.to(v.dtype), v[:, keys]))
                    saved += [weights] if run.keeps(how) else []
                    saved += [] if factor is None else [factor]
                _join([mixed], run, how.heads, [_cat(found)])
        ctx.save_for_backward(*projected, *saved)
        ctx.given = runs, how, len(projected)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """With U = dropped W: dV = U^T dO; dW = (dO V^T) dropped alike; dS is the softmax's; dQ = dS K, dK = dS^T Q."""
        runs, how, count = ctx.given
        projected, saved = ctx.saved_tensors[:count], iter(ctx.saved_tensors[count:])
        results = [torch.empty_like(x) for x in projected]
        for x, used in zip(results, (runs[-1].asked.stop, runs[-1].tokens.stop), strict=False):
            x[used:] = 0
        for run in runs:
            if not run.count:  # rows that nobody asks about
                results[-1][run.tokens] = 0
                continue
            q, k, v = _batched(projected, run, how.heads)
            (d_mixed,) = _batched(gradients, run, how.heads, parts=1)
            pieces, found = list(run.pieces(how)), []
            for queries, keys in pieces:
                kept = run.keeps(how)
                weights = next(saved) if kept else _weights(q[:, queries], k[:, keys], how, queries, keys)
                factor = next(saved) if how.share else None
                used = weights if factor is None else weights * factor
                d_piece = d_mixed[:, queries]
                d_v = torch.bmm(used.to(v.dtype).transpose(1, 2), d_piece)
                d_used = torch.bmm(d_piece, v[:, keys].transpose(1, 2))
                d_weights = (d_used if factor is None else d_used * factor).to(weights.dtype)
                d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).to(q.dtype)
                d_k = _product(d_scores.transpose(1, 2), q[:, queries], how.scale)
                found.append((_product(d_scores, k[:, keys], how.scale), d_k, d_v))
            queries_, keys_, values_ = (list(parts) for parts in zip(*found, strict=True))
            places = [keys for _, keys in pieces]
            _join(results, run, how.heads, [_cat(queries_), _sum(keys_, places, k), _sum(values_, places, v)])
        return None, None, None, *results


def _weights(q: Tensor, k: Tensor, how: How, queries: slice, keys: slice) -> Tensor:
    scores = _product(q, k.transpose(1, 2), how.scale)
    hidden = how.look.hides(queries, keys, q.device)
    return torch.softmax(scores if hidden is None else scores.masked_fill_(hidden, -torch.inf), -1, torch.float32)


class _Draw:
    """Dropout's factors, drawn once for all rows."""

    def __init__(self, runs: Sequence[_Run], how: How, device: torch.device) -> None:
        sizes = [
            run.rows * how.heads * size_of(queries) * size_of(keys)
            for run in runs
            if run.count and how.share
            for queries, keys in run.pieces(how)
        ]
        self._parts = iter(keep(sum(sizes), how.share, torch.float32, device).split(sizes)) if sizes else None

    def next(self, shape: torch.Size) -> Tensor | None:
        return next(self._parts).view(shape) if self._parts else None


def _cat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _sum(parts: list[Tensor], places: list[slice], like: Tensor) -> Tensor:
    """Pieces that overlap, added up where they belong."""
    if len(parts) == 1:
        return parts[0]
    total = torch.zeros_like(like)
    for part, place in zip(parts, places, strict=True):
        total[:, place] += part
    return total


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

    def pieces(self, how: How) -> Iterator[tuple[slice, slice]]:
        """Queries that are computed together, and the keys that they see."""
        if how.look != EVERYWHERE:
            yield from how.look.pieces(self.length)
            return
        step = max(WHOLE, TOGETHER // (how.heads * self.length))
        for first in range(0, self.count, step):
            yield slice(first, min(first + step, self.count)), slice(0, self.length)

    def keeps(self, how: How) -> bool:
        """Whether its weights are kept for the gradient."""
        seen = sum(size_of(queries) * size_of(keys) for queries, keys in self.pieces(how))
        return self.rows * how.heads * seen <= KEPT


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


def _attend_fused(lengths: tuple[int, ...], counts: tuple[int, ...], how: How, projected: Sequence[Tensor]) -> Tensor:
    first = projected[0]
    mixed = [first.new_zeros(len(first) - sum(counts), _width(projected))]
    for run in _runs(lengths, counts, how.heads, ALL):
        if run.count:
            q, k, v = _parts(projected, run, how.heads)
            found = []
            for queries, keys in run.pieces(how):
                hidden = how.look.hides(queries, keys, q.device)
                seen = None if hidden is None else ~hidden
                q_k_v = q[:, :, queries], k[:, :, keys], v[:, :, keys]
                found.append(F.scaled_dot_product_attention(*q_k_v, attn_mask=seen, scale=how.scale).transpose(1, 2))
            mixed.insert(-1, _cat(found).reshape(run.rows * run.count, -1))
    return torch.cat(mixed)


def _attend_padded(qkv: Tensor, lengths: tuple[int, ...], how: How) -> Tensor:
    rows, longest = len(lengths), max(lengths)
    length = torch.tensor(lengths, device=qkv.device)
    seen = (torch.arange(longest, device=qkv.device) < length[:, None])[:, None, None, :]  # (R, 1, 1, L)
    hidden = how.look.hides(slice(0, longest), slice(0, longest), qkv.device)
    if hidden is not None:
        seen = seen & ~hidden
        # What stands behind a row's end looks at itself, for a softmax over nothing is not a number.
        seen = seen | torch.eye(longest, dtype=torch.bool, device=qkv.device)
    # Places are worked out from the lengths the host knows, so nothing waits for the device (`nonzero` would).
    place = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)]).to(qkv.device)
    padded = qkv.new_zeros(rows * longest, qkv.shape[1]).index_copy(0, place, qkv[: len(place)])
    everything = slice(None)
    q, k, v = _parts([padded], _Run(rows, longest, longest, everything, everything), how.heads)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=how.share, scale=how.scale)
    return mixed.transpose(1, 2).reshape(rows * longest, -1).index_select(0, place)
