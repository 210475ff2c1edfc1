"""Initialises attention heads to attend at fixed offsets, such as the previous token (docs/decisions/0011 and 0020).

In: freshly initialised query and key weights. Out: the same weights, changed so that from the first step each head
attends to the token at a fixed offset. All weights stay trainable; only the initialisation differs.

waves    the vectors' first columns alternate sin and cos of position x rate. A head's keys are the waves of a position,
         its queries the same waves rotated by rate x offset; their dot product is the sum of
         cos(rate x (distance - offset)), which is largest at the offset. BERT's learned positions start as
         high-frequency waves (`learned_waves`), the Transformer's sinusoid has its own (`position.py`).
rotary   queries and keys are already rotated by their positions; one coordinate that is the same for all tokens lets
         a head select a distance.

Notable choice: a tenth of the random weights is kept, so that no two heads start identical.

Shapes: H heads of size D, W width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from keel.layers.attention.self_attention import SelfAttention
from keel.layers.position import wave_rates

MOST_HEADS = 8  # heads initialised this way; the others stay random
QUICK = (2.6, 0.5)  # radians per position: the fastest and the slowest wave that heads use
SLOWEST = 1e-4  # radians per position: the slowest wave of all
LEARNED_SIGNAL = 24.0  # learned positions: the neighbour's attention logit is about a third of this
SINUSOID_SIGNAL = 8.0  # the same for a sinusoid
ROTARY_SIGNAL = 16.0  # rotary positions: the neighbour's attention logit
FAINT = 0.2  # scale of token embeddings in the columns where heads read waves
CONSTANT = 8.0  # the coordinate that is the same for all tokens, in standard deviations of the others


def neighbour_offsets(heads: int) -> list[int]:
    """-1, +1, -2, +2, ..."""
    return [(head // 2 + 1) * (1 if head % 2 else -1) for head in range(min(heads, MOST_HEADS))]


def previous_offsets(heads: int) -> list[int]:
    """-1, -2, ..."""
    return [-head - 1 for head in range(min(heads, MOST_HEADS))]


def centred_offsets(heads: int) -> list[int]:
    """0, -1, +1, ..."""
    return [0, *neighbour_offsets(heads)][: min(heads, MOST_HEADS)]


@torch.no_grad()
def init_offsets(query: Tensor, key: Tensor, heads: int, offsets: Iterable[int], rates: Tensor, signal: float) -> None:
    """Changes weights (H D, W) in place. `signal`: twice the logit at the offset, for waves of amplitude 1."""
    size, width = len(query) // heads, query.shape[1]
    even = torch.arange(0, size - 1, 2)
    strength = math.sqrt(signal / math.sqrt(size))
    for head, offset in enumerate(offsets):
        rows, angle = slice(head * size, (head + 1) * size), rates[: len(even)] * offset
        rotation, waves = torch.zeros(size, width), torch.zeros(size, width)
        rotation[even, even] = rotation[even + 1, even + 1] = angle.cos()
        rotation[even, even + 1], rotation[even + 1, even] = angle.sin(), -angle.sin()
        waves[even, even] = waves[even + 1, even + 1] = torch.ones(len(even))
        query[rows] = 0.1 * query[rows] + strength * rotation
        key[rows] = 0.1 * key[rows] + strength * waves


# Learned positions (BERT, GPT).


@torch.no_grad()
def init_learned_positions(table: Tensor, head_size: int, std: float) -> None:
    """Initialises a position table (positions, E) with waves of standard deviation `std` instead of noise."""
    waves = learned_waves(len(table), table.shape[1], head_size)
    table.copy_(waves * (std / waves.std()))


def learned_waves(positions: int, width: int, head_size: int) -> Tensor:
    """(positions, width): alternating sin and cos of position x rate (Vaswani et al. 2017, with other rates)."""
    angles = torch.arange(positions)[:, None] * learned_rates(width, head_size)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


def learned_rates(width: int, head_size: int) -> Tensor:
    """Radians per position: fast waves for one head of this size, then ever slower ones.

    The fast ones are evenly spaced within QUICK. Their sum is large at distance 0 and almost zero at 1, so a head that
    reads them attends to a single token. The published rates are too slow for that in narrow models.
    """
    waves = (width + 1) // 2
    count = min(head_size // 2, waves)
    fastest, slowest = QUICK
    slower = torch.linspace(0, 1, waves - count + 1)[1:] * math.log(slowest / SLOWEST)
    return torch.cat([torch.linspace(fastest, slowest, count), slowest * torch.exp(-slower)])


def init_learned_offsets(attention: SelfAttention, causal: bool = False) -> None:
    """The first layer's heads attend to neighbouring tokens, using the fast waves of learned positions."""
    width = attention.out.weight.shape[0]
    query, key, _ = attention.qkv.weight.detach().chunk(3)
    offsets = (previous_offsets if causal else neighbour_offsets)(attention.heads)
    init_offsets(query, key, attention.heads, offsets, learned_rates(width, width // attention.heads), LEARNED_SIGNAL)


# A fixed sinusoid (Transformer).


def init_sinusoid_offsets(query: Tensor, key: Tensor, heads: int, offsets: Sequence[int]) -> None:
    """Heads attend at these offsets, if queries and keys are both computed from vectors with the sinusoid added."""
    init_offsets(query, key, heads, offsets, wave_rates(query.shape[1]), SINUSOID_SIGNAL)


@torch.no_grad()
def reveal_waves(tokens: nn.Embedding, heads: int) -> bool:
    """Scales token embeddings down in the columns where heads read waves. False: too narrow for both."""
    size = tokens.embedding_dim // heads
    if heads == 1 or size == 1:
        return False
    tokens.weight[:, :size] *= FAINT
    return True


# Rotary positions (modern).


@torch.no_grad()
def init_rotary_offsets(attention: SelfAttention, tokens: nn.Embedding, std: float, base: float) -> None:
    """Queries and keys of a head start as constants, the query rotated to its offset.

    The first coordinate of every token's embedding is the same, so a query and a key that are the same for all tokens
    can be computed from it without biases. Their dot product is the sum over pairs of weight x cos(rate x (distance -
    offset)), largest at the offset. The weights are the rates themselves: fast waves separate neighbours, slow ones
    separate distant tokens.
    """
    tokens.weight[:, 0] = CONSTANT * std
    width = attention.out.weight.shape[0]
    size = width // attention.heads
    rates = base ** (-torch.arange(0, size, 2) / size)
    constant = CONSTANT / math.sqrt(1 + CONSTANT**2 / width)  # after the embeddings' norm
    strength = (ROTARY_SIGNAL * math.sqrt(size) * rates / rates.sum()).sqrt() / constant
    query, key, _ = attention.qkv.weight.view(3, attention.heads, size, width)
    for head, offset in enumerate(neighbour_offsets(attention.heads)):
        query[head, :, 0] = torch.cat([strength * (rates * offset).cos(), strength * (rates * offset).sin()])
        key[head, :, 0] = torch.cat([strength, torch.zeros_like(strength)])
