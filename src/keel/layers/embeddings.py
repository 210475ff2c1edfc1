"""Input embeddings of BERT and its close relatives: token + segment + learned position, then norm and dropout.

In: a flat batch. Out: (T, E). Other backbones look tokens up with `embed_tokens` too, and add what is theirs.

Shapes: T tokens, E width of an embedding.
"""

from __future__ import annotations

from torch import Tensor, nn

from keel.layers.dropout import Dropout
from keel.values import Batch


def embed_tokens(table: nn.Module, batch: Batch) -> Tensor:
    """(T, E): the embeddings of the tokens, or those that an explanation puts in their place."""
    given = None if batch.inspection is None else batch.inspection.embedded
    embedded: Tensor = table(batch.ids) if given is None else given
    return embedded


class Embeddings(nn.Module):
    """`first_position`: the row of the position table for a text's first token (RoBERTa's table starts with unused
    rows). `segments` 0: there are no segment embeddings. `fixed_segment`: every token gets segment 0; the batch's
    segments are ignored."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        segments: int,
        width: int,
        *,
        dropout: float,
        norm_epsilon: float,
        first_position: int = 0,
        fixed_segment: bool = False,
    ) -> None:
        super().__init__()
        self.first_position, self.fixed_segment = first_position, fixed_segment
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(first_position + positions, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        x = embed_tokens(self.tokens, batch)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if self.fixed_segment else self.segments(batch.segments))
        x = x + self.positions(batch.positions + self.first_position)
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded
