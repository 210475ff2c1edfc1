"""Multi-head self-attention over a flat batch: softmax(Q K^T / sqrt(D) + bias) V for each row (Vaswani et al. 2017).

In: (T, W) vectors of all rows end to end, and an `AttentionContext`. Out: (T, W), or (S, W) for the selected tokens.
Vectors after the last row are padding (`layers/padding.py`): nothing attends to them, and their outputs are zero.

The formula is `attend`. The other files of this folder compute the same faster: `cpu.py` (no padding, hand-written
backward pass), `padded.py` (accelerators), `cache.py` (token by token, during generation).

Notable choices
- Query, key and value come from one matrix product; published checkpoints store three (see `hugging_face/`). One third
  of the product may serve as several of them (`roles`): the ablation "which projections are needed" needs no more.
- With a bias on the scores a CPU computes the formula with autograd: the hand-written backward pass of `cpu.py` has no
  bias, and a bias over (H, L, L) scores costs more than that kernel saves.

Shapes: T tokens, S selected tokens, R rows, L length, W width, H heads, D = W / H.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.layers.attention.cache import KeyValueCache
from keel.layers.attention.context import AttentionContext
from keel.layers.attention.cpu import AttentionOptions, attend_rows, parts_of, runs_of
from keel.layers.attention.padded import attend_padded
from keel.layers.attention.window import FULL, AttentionWindow
from keel.layers.dropout import dropout
from keel.values import Selected

ROLES = (0, 1, 2)  # which third of the product serves as query, key and value


def attention_weights(q: Tensor, k: Tensor, scale: float, bias: Tensor) -> Tensor:
    """softmax(Q K^T x scale + bias), (R, H, L, L) in fp32; a bias of minus infinity masks a key."""
    return torch.softmax(q @ k.transpose(-1, -2) * scale + bias, -1, torch.float32)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor, dropout_rate: float = 0.0) -> Tensor:
    """softmax(Q K^T x scale + bias) V, for (R, H, L, D)."""
    weights = attention_weights(q, k, scale, bias)
    return (dropout(weights, dropout_rate) if dropout_rate else weights).to(v.dtype) @ v


class SelfAttention(nn.Module):
    """`scale`: factor on the dot products; None: 1 / sqrt(D)."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        *,
        bias: bool = True,
        window: AttentionWindow = FULL,
        roles: tuple[int, int, int] = ROLES,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout  # rate, on the attention weights
        self.window = window
        self.roles = roles
        self.scale = (width // heads) ** -0.5 if scale is None else scale
        self.qkv = nn.Linear(width, (max(roles) + 1) * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.cache: KeyValueCache | None = None  # during generation (`generation.py`)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        mixed = self._mix(x, context)
        if context.inspection is not None:
            mixed = context.inspection(mixed, context.lengths, context.selected, lambda: self.weights(x, context))
        return self.out(mixed)

    def weights(self, x: Tensor, context: AttentionContext) -> list[Tensor]:
        """(R, H, L, L) for each run of rows of equal length: how much each token attends to each, without dropout."""
        found, qkv = [], self._project(x, context)
        for run in runs_of(context.lengths, context.lengths):
            q, k, _ = parts_of([qkv], run, self.heads)
            found.append(attention_weights(q, k, self.scale, self._bias(run.length, context, qkv)))
        return found

    def _mix(self, x: Tensor, context: AttentionContext) -> Tensor:
        """The concatenated outputs of the heads, computed the fastest way for this device and context."""
        rate = self.dropout if self.training else 0.0
        options = AttentionOptions(self.heads, self.scale, self.window, rate)
        lengths, selected = context.lengths, context.selected
        if self.cache is not None:
            return self.cache.attend(self._project(x, context), len(lengths), options, context.bias)
        if x.device.type != "cpu":
            mixed = attend_padded(self._project(x, context), lengths, options, context.bias)
            return mixed if selected is None else mixed[selected.places]
        if context.bias is not None:
            mixed = self._attend_with_bias(self._project(x, context), context, options)
            return mixed if selected is None else mixed[selected.places]
        if selected is None:
            return attend_rows([self._project(x, context)], lengths, lengths, options)
        if self.window != FULL:
            return attend_rows([self._project(x, context)], lengths, lengths, options)[selected.places]
        return attend_rows(self._project_selected(x, context, selected), lengths, selected.counts, options)

    def _attend_with_bias(self, qkv: Tensor, context: AttentionContext, options: AttentionOptions) -> Tensor:
        """The formula, one run of rows of equal length at a time."""
        mixed = []
        for run in runs_of(context.lengths, context.lengths):
            bias = self._bias(run.length, context, qkv)
            q, k, v = parts_of([qkv], run, self.heads)
            mixed.append(attend(q, k, v, self.scale, bias, options.dropout).transpose(1, 2).flatten(0, 1).flatten(1))
        padding = qkv.new_zeros(len(qkv) - sum(context.lengths), mixed[0].shape[1])
        return torch.cat([*mixed, padding])

    def _bias(self, length: int, context: AttentionContext, like: Tensor) -> Tensor:
        """(H or 1, L, L), or fewer dimensions: the bias on the scores of a row, with the mask of the window."""
        positions, everything = torch.arange(length, device=like.device), slice(0, length)
        bias = like.new_zeros(()) if context.bias is None else context.bias(positions, positions)
        hidden = self.window.mask(everything, everything, like.device)
        return bias if hidden is None else bias.masked_fill(hidden, -torch.inf)

    def _project(self, x: Tensor, context: AttentionContext) -> Tensor:
        """Queries, keys and values of all tokens, concatenated, and rotated with rotary positions."""
        qkv = self._in_roles(self.qkv(x), self.roles)
        return qkv if context.rotary is None else context.rotary(qkv, 2 * self.heads)

    def _project_selected(self, x: Tensor, context: AttentionContext, selected: Selected) -> list[Tensor]:
        """Queries of the selected tokens; keys and values of all."""
        queries, rest = self._rows_of(x[selected.places], self.roles[:1]), self._rows_of(x, self.roles[1:])
        if context.rotary is not None:
            queries = context.rotary.at(selected.places)(queries, self.heads)
            rest = context.rotary(rest, self.heads)
        return [queries, rest]

    def _rows_of(self, x: Tensor, roles: tuple[int, ...]) -> Tensor:
        """The product with only those thirds of the matrix that these roles use."""
        width, first, stop = x.shape[1], min(roles), max(roles) + 1
        weight, bias = self.qkv.weight[first * width : stop * width], self.qkv.bias
        product = F.linear(x, weight, None if bias is None else bias[first * width : stop * width])
        return self._in_roles(product, tuple(role - first for role in roles))

    def _in_roles(self, product: Tensor, roles: tuple[int, ...]) -> Tensor:
        if roles == tuple(range(len(roles))):
            return product
        parts = product.chunk(max(roles) + 1, 1)
        return torch.cat([parts[role] for role in roles], 1)
