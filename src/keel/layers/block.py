"""The Transformer block as BERT and its nearest kin have it: norms stand behind the sums (Vaswani et al. 2017).

In: (T, W) vectors and the rows' lengths. Out: x = norm(x + attention(x)); x = norm(x + feed_forward(x)).
The two halves are modules of their own, so that a model may share either of them between its layers.

Shapes: T tokens, W width.
"""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.interfaces import Asked
from keel.layers.activations import ACTIVATIONS
from keel.layers.attention import ROLES, SelfAttention
from keel.layers.dropout import Dropout
from keel.layers.look import EVERYWHERE, LEFT
from keel.layers.rotary import Turn

SHARED: dict[str, tuple[int, int, int]] = {"none": ROLES, "qk": (0, 0, 1), "kv": (0, 1, 1), "qkv": (0, 0, 0)}


class AttentionShape(BaseModel):
    """What an ablation changes about attention; as it stands here it is the published one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    look: Literal["both", "left"] = Field("both", description="both: at the whole row; left: only at what came before")
    shared: Literal["none", "qk", "kv", "qkv"] = Field("none", description="which projections are one and the same")
    scaled: bool = Field(True, description="whether dot products are divided by the root of a head's size")


class Shape(Protocol):
    """What a block needs to know of a backbone's config."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def feed_forward(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def norm_epsilon(self) -> float: ...


PUBLISHED = AttentionShape()


class Attending(nn.Module):
    """norm(x + attention(x))."""

    def __init__(self, config: Shape, shape: AttentionShape = PUBLISHED) -> None:
        super().__init__()
        self.attention = SelfAttention(
            config.width,
            config.heads,
            config.attention_dropout,
            look=LEFT if shape.look == "left" else EVERYWHERE,
            roles=SHARED[shape.shared],
            scale=None if shape.scaled else 1.0,
        )
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None, turn: Turn | None = None
    ) -> Tensor:
        mixed = self.attention(x, lengths, asked, turn)
        result: Tensor = self.norm((x if asked is None else x[asked.places]) + self.dropout(mixed))
        return result


class FeedForward(nn.Module):
    """norm(x + shrink(activation(grow(x))))."""

    def __init__(self, config: Shape) -> None:
        super().__init__()
        self.grow = nn.Linear(config.width, config.feed_forward)
        self.shrink = nn.Linear(config.feed_forward, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(x + self.dropout(self.shrink(self.activation(self.grow(x)))))
        return result


class Block(nn.Module):
    def __init__(self, config: Shape, shape: AttentionShape = PUBLISHED) -> None:
        super().__init__()
        self.attending = Attending(config, shape)
        self.feed = FeedForward(config)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None, turn: Turn | None = None
    ) -> Tensor:
        """`asked`: the places whose vectors are wanted (all are looked at); None: all. `turn`: rotary positions."""
        result: Tensor = self.feed(self.attending(x, lengths, asked, turn))
        return result
