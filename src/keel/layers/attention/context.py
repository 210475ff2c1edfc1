"""The inputs of attention besides the vectors: row lengths, selected queries, and positions: rotary, as a bias on the
scores, or as vectors for distances.

The backbone passes one object through its blocks, so that a new input changes no signature on the way.

Shapes: H heads, Q queries and K keys of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from keel.layers.attention.inspection import LayerInspection
from keel.layers.attention.relative import DistanceVectors
from keel.layers.attention.rotary import Rotary
from keel.values import Selected


class ScoreBias(Protocol):
    """A bias added to the attention scores, the same for every row: relative positions (T5, ALiBi), or a mask of zeros
    and minus infinity. Usually an nn.Module of the backbone with trainable parameters."""

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(H, Q, K), or (1, Q, K) shared by all heads, from the positions (Q,) and (K,) in the row."""


@dataclass(frozen=True)
class AttentionContext:
    lengths: tuple[int, ...]  # of the rows, longest first
    selected: Selected | None = None  # the tokens whose output is needed (all are attended to); None: all
    rotary: Rotary | None = None  # rotates queries and keys by their positions
    bias: ScoreBias | None = None
    distances: DistanceVectors | None = None  # for disentangled attention
    inspection: LayerInspection | None = None  # what `keel explain` asks of this layer
