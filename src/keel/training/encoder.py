"""Ways to use a pretrained encoder: train all of it, parts of it, or only read its layers.

In: the `encoder` section of a fine-tuning recipe and a backbone. Out: what the task's head looks at, and each
parameter's share of the learning rate.

all     every weight learns; lower layers may learn more slowly (`layer_decay`; Howard and Ruder 2018), the lowest not
        at all (`freeze`), and the top ones may start afresh (`restart`; Zhang et al. 2020)
frozen  nothing but the head learns, from the last layer, from the last four side by side, or from a learned mix of all
        layers: gamma x sum of softmax(s)_j x layer_j (Peters et al. 2018)

Notable choice: a frozen encoder runs without dropout and without a gradient, so it costs a third of a training step.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.start import start_weights


class EncoderUse(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    use: Literal["all", "frozen"] = "all"
    layers: Literal["last", "last-four", "mix"] = Field("last", description="what a frozen encoder shows")
    layer_decay: float = Field(1.0, gt=0, le=1, description="a layer's learning rate, as a share of the one above it")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: as the model was pretrained")
    restart: int = Field(0, ge=0, description="top layers that start from fresh weights")
    freeze: int = Field(0, ge=0, description="lowest layers that do not learn; the embeddings are then frozen too")

    @model_validator(mode="after")
    def _frozen_has_no_rates(self) -> EncoderUse:
        if self.use == "all" and self.layers != "last":
            raise ValueError(f"encoder.layers={self.layers} is for a frozen encoder: set encoder.use=frozen")
        if self.use == "frozen" and (self.layer_decay != 1 or self.restart or self.freeze):
            raise ValueError("layer_decay, restart and freeze are for encoder.use=all")
        return self


class Frozen(Backbone):
    """A backbone that does not learn, seen through some of its layers. It satisfies `Backbone` for a head."""

    def __init__(self, backbone: Backbone, layers: str) -> None:
        super().__init__()
        self._inner = [backbone]  # in a list: its weights belong to the learner, not to this view
        self.config = backbone.config
        self.longest = backbone.longest
        self.causal, self.averages = backbone.causal, backbone.averages
        self.layers = layers
        self.width = backbone.width * (max(1, min(4, backbone.config.layers)) if layers == "last-four" else 1)
        if layers == "mix":
            self.weights = nn.Parameter(torch.zeros(backbone.config.layers + 1))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        backbone = self._inner[0].eval()
        with torch.no_grad():
            found = backbone(batch, every_layer=self.layers != "last")
        if self.layers == "last":
            return Encoding(found.vectors)
        if self.layers == "last-four":
            return Encoding(torch.cat(found.layers[-min(4, len(found.layers) - 1) :], 1))
        shares = torch.softmax(self.weights, 0)
        mixed = torch.stack([share * layer for share, layer in zip(shares, found.layers, strict=True)]).sum(0)
        return Encoding(self.gamma * mixed)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """As the backbone, but without its pooler."""
        return self._inner[0].pool(vectors, batch) if self.averages else super().pool(vectors, batch)

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """All layers with equal shares. The encoder itself is not this view's to change."""
        if self.layers == "mix":
            self.weights.zero_()
            self.gamma.fill_(1.0)

    def token_table(self) -> Tensor:
        return self._inner[0].token_table()


def view(backbone: Backbone, use: EncoderUse) -> Frozen | None:
    """What the head looks at instead of the backbone itself; None: the backbone."""
    return Frozen(backbone, use.layers) if use.use == "frozen" else None


def restart_layers(backbone: Any, use: EncoderUse, generator: torch.Generator) -> None:
    """Fresh weights for the top layers."""
    _check_layers(backbone, use)
    for block in list(backbone.blocks)[len(backbone.blocks) - use.restart :]:
        start_weights(block, backbone.config.start_deviation, generator)


def rate_scales(backbone: Any, use: EncoderUse) -> dict[nn.Parameter, float]:
    """The share of the learning rate for each of the backbone's parameters; 0 is frozen. Heads learn at full rate."""
    _check_layers(backbone, use)
    if use.use == "frozen":
        return dict.fromkeys(backbone.parameters(), 0.0)
    count = len(backbone.blocks)
    scales = {p: use.layer_decay ** (count + 1) * float(use.freeze == 0) for p in backbone.parameters()}
    for number, block in enumerate(backbone.blocks):
        share = use.layer_decay ** (count - number) * float(number >= use.freeze)
        scales |= dict.fromkeys(block.parameters(), share)
    if backbone.pooler is not None:
        scales |= dict.fromkeys(backbone.pooler.parameters(), 1.0)
    return scales


def _check_layers(backbone: Any, use: EncoderUse) -> None:
    for name in ("restart", "freeze"):
        if getattr(use, name) > len(backbone.blocks):
            raise UserError(f"encoder.{name} is {getattr(use, name)}, but the model has {len(backbone.blocks)} layers")
