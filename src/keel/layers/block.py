"""Transformer blocks, post-norm and pre-norm: attention and feed-forward, each with a residual connection.

In: (T, W) vectors and an `AttentionContext`. Out: (T, W), or (S, W) for the tokens that the context selects.
A block is given its parts, so that backbones differ in the parts they pass, and layers may share a part.

Shapes: T tokens, S selected tokens, W width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from keel.layers.attention.context import AttentionContext
from keel.layers.attention.disentangled import DisentangledAttention
from keel.layers.attention.inspection import LayerInspection
from keel.layers.attention.self_attention import SelfAttention
from keel.layers.dropout import Dropout
from keel.layers.feed_forward import FeedForward, GatedFeedForward
from keel.values import Batch, Encoding


class PostNormBlock(nn.Module):
    """As in the Transformer and BERT (Vaswani et al. 2017): a norm after each residual sum."""

    def __init__(
        self,
        attention: SelfAttention | DisentangledAttention,
        attention_norm: nn.Module,
        feed_forward: FeedForward | GatedFeedForward,
        feed_forward_norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = attention_norm
        self.feed_forward = feed_forward
        self.feed_forward_norm = feed_forward_norm
        self.dropout = Dropout(dropout)  # after attention; the feed-forward layer has its own

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        attended = self.dropout(self.attention(x, context))
        x = self.attention_norm(needed(x, context) + attended)
        return self.feed_forward_norm(x + self.feed_forward(x))


class PreNormBlock(nn.Module):
    """As in GPT-2 and most later models (Xiong et al. 2020): the residual stream itself is never normalised."""

    def __init__(
        self,
        attention_norm: nn.Module,
        attention: SelfAttention,
        feed_forward_norm: nn.Module,
        feed_forward: FeedForward | GatedFeedForward,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.feed_forward_norm = feed_forward_norm
        self.feed_forward = feed_forward
        self.dropout = Dropout(dropout)  # after attention; the feed-forward layer has its own

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        attended = self.dropout(self.attention(self.attention_norm(x), context))
        x = needed(x, context) + attended
        return x + self.feed_forward(self.feed_forward_norm(x))


def needed(x: Tensor, context: AttentionContext) -> Tensor:
    """The vectors whose output is needed."""
    return x if context.selected is None else x[context.selected.places]


def attention_of(block: nn.Module) -> SelfAttention:
    assert isinstance(block, PostNormBlock | PreNormBlock) and isinstance(block.attention, SelfAttention)
    return block.attention


def residual_layers(blocks: Iterable[nn.Module]) -> Iterator[nn.Linear]:
    """The layers whose outputs are added to the residual stream."""
    for block in blocks:
        assert isinstance(block, PostNormBlock | PreNormBlock)
        yield from (block.attention.out, block.feed_forward.down)


def run_blocks(
    blocks: Iterable[Any],
    x: Tensor,
    batch: Batch,
    all_layers: bool,
    contexts: Sequence[AttentionContext] | AttentionContext | None = None,
    final_norm: nn.Module | None = None,
) -> Encoding:
    """Runs a stack of blocks, each `block(x, context)`, over embedded tokens; the last block computes only the selected
    tokens. `contexts`: one for all blocks, or one for each; None: only the rows' lengths."""
    blocks = list(blocks)
    shared = contexts or AttentionContext(batch.lengths)
    each = [shared] * len(blocks) if isinstance(shared, AttentionContext) else list(shared)
    selected = None if all_layers else batch.selected
    each[-1] = replace(each[-1], selected=selected)
    inspection = batch.inspection
    if inspection is not None:
        each = [replace(context, inspection=LayerInspection(inspection, n)) for n, context in enumerate(each)]
    layers = [x]
    for block, context in zip(blocks, each, strict=True):
        x = block(x, context)
        layers.append(x)
    if final_norm is not None:
        layers[-1] = final_norm(x)
        if inspection is not None and inspection.normed:
            layers[:-1] = map(final_norm, layers[:-1])
    return Encoding.of(batch, layers, selected, all_layers)
