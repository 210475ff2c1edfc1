"""Ways to use a pretrained encoder: train all of it, parts of it, or only read its layers.

In: the `encoder` section of a fine-tuning recipe and a backbone. Out: what the task's head looks at, and each
parameter's share of the learning rate.

all     every weight learns; lower layers may learn more slowly (`layer_decay`; Howard and Ruder 2018), the lowest not
        at all (`freeze`), and the top ones may start afresh (`restart`; Zhang et al. 2020)
frozen  nothing but the head learns, from the last layer, from the last four side by side, or from a learned mix of all
        layers: gamma x sum of softmax(s)_j x layer_j, with a penalty of lambda x sum of s_j^2 (Peters et al. 2018); the
        head may be put on a BiLSTM that reads this, or that has it beside its own states, or both

Notable choice: a frozen encoder runs without dropout and without a gradient, so it costs a third of a training step;
and while a task is learnt, what it says of the task's rows is there already (`training/kept_layers.py`).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.dropout import Dropout
from keel.layers.recurrent import BothSides, whole_rows
from keel.layers.start import start_weights


class BiLstmUse(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cells: int = Field(200, ge=1, description="in each direction")
    dropout: float = Field(0.5, ge=0, lt=1, description="on what it reads and on what it gives")
    at: Literal["input", "output", "both"] = Field(
        "input", description="where the encoder's vectors are used: read by the BiLSTM, put beside its states, or both"
    )


class EncoderUse(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    use: Literal["all", "frozen"] = "all"
    layers: Literal["last", "last-four", "mix"] = Field("last", description="what a frozen encoder shows")
    penalty: float = Field(0.0, ge=0, description="lambda: pulls the shares of a mix towards each other")
    bilstm: BiLstmUse | None = Field(None, description="a BiLSTM between a frozen encoder and the head")
    layer_decay: float = Field(1.0, gt=0, le=1, description="a layer's learning rate, as a share of the one above it")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: as the model was pretrained")
    attention_dropout: float | None = Field(None, ge=0, lt=1, description="null: as dropout")
    restart: int = Field(0, ge=0, description="top layers that start from fresh weights")
    freeze: int = Field(0, ge=0, description="lowest layers that do not learn; the embeddings are then frozen too")

    @model_validator(mode="after")
    def _frozen_has_no_rates(self) -> EncoderUse:
        if self.use == "all" and self.layers != "last":
            raise ValueError(f"encoder.layers={self.layers} is for a frozen encoder: set encoder.use=frozen")
        if self.use == "all" and self.bilstm:
            raise ValueError("encoder.bilstm is for a frozen encoder: set encoder.use=frozen")
        if self.layers != "mix" and self.penalty:
            raise ValueError("encoder.penalty is about the shares of a mix: set encoder.layers=mix")
        if self.use == "frozen" and (self.layer_decay != 1 or self.restart or self.freeze):
            raise ValueError("layer_decay, restart and freeze are for encoder.use=all")
        return self


class Kept(Protocol):
    """What a frozen encoder said before."""

    def find(self, batch: Batch) -> Encoding | None: ...


class Shown(nn.Module):
    """What is seen of an encoder's layers: the last, the last four side by side, or a learned mix of all."""

    def __init__(self, backbone: Backbone, layers: str) -> None:
        super().__init__()
        self.layers = layers
        count = backbone.config.layers
        self.width = backbone.width * (max(1, min(4, count)) if layers == "last-four" else 1)
        if layers == "mix":
            self.weights = nn.Parameter(torch.zeros(count + 1))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, found: Encoding) -> Tensor:
        if self.layers == "last":
            return found.vectors
        if self.layers == "last-four":
            return torch.cat(found.layers[-min(4, max(1, len(found.layers) - 1)) :], 1)
        mixed = torch.stack([s * layer for s, layer in zip(self.shares(), found.layers, strict=True)]).sum(0)
        return self.gamma * mixed

    def shares(self) -> Tensor:
        return torch.softmax(self.weights, 0)


class Frozen(Backbone):
    """A backbone that does not learn, seen through some of its layers, and perhaps read by a BiLSTM. It satisfies
    `Backbone` for a head."""

    def __init__(self, backbone: Backbone, use: EncoderUse) -> None:
        super().__init__()
        self._inner = [backbone]  # in a list: its weights belong to the learner, not to this view
        self.config = backbone.config
        self.longest = backbone.longest
        self.causal, self.averages = backbone.causal, backbone.averages
        self.use = use
        self.kept: Kept | None = None  # only while a task is learnt
        at = use.bilstm.at if use.bilstm else "input"
        self.read = Shown(backbone, use.layers) if at != "output" else None
        self.beside = Shown(backbone, use.layers) if at != "input" else None
        self.width = self.read.width if self.read else backbone.width
        if use.bilstm:
            self.bilstm: BothSides | None = BothSides(self.width, use.bilstm.cells)
            self.dropout = Dropout(use.bilstm.dropout)
            self.width = 2 * use.bilstm.cells + (self.beside.width if self.beside else 0)
        else:
            self.bilstm = None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        found = (self.kept.find(batch) if self.kept else None) or self.ask(batch)
        x = self.read(found) if self.read else found.layers[0]
        if self.bilstm is None:
            return Encoding(x)
        states = self.dropout(self.bilstm(self.dropout(x), batch))
        return Encoding(torch.cat([states, self.beside(found)], 1) if self.beside else states)

    @torch.no_grad()
    def ask(self, batch: Batch) -> Encoding:
        """The encoder itself."""
        found: Encoding = self._inner[0].eval()(batch, every_layer=self.use.layers != "last" or self.read is None)
        return found

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """As the backbone; of a BiLSTM's states, those that have read the whole row."""
        if self.bilstm is None:
            return self._inner[0].row_vectors(vectors, batch)
        cells = self.bilstm.forwards.hidden_size
        states, beside = vectors[:, : 2 * cells], vectors[:, 2 * cells :]
        whole = whole_rows(states, batch, cells)
        return torch.cat([whole, self._inner[0].row_vectors(beside, batch)], 1) if self.beside else whole

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """Equal shares of all layers, and a fresh BiLSTM. The encoder itself is not this view's to change."""
        start_weights(self, self.config.start_deviation, generator)

    def token_table(self) -> Tensor:
        return self._inner[0].token_table()

    def penalise(self) -> None:
        """Adds the penalty's gradient to what has been gathered in a step."""
        for mix in (self.read, self.beside):
            if mix is not None and self.use.penalty and mix.weights.grad is not None:
                mix.weights.grad += 2 * self.use.penalty * mix.weights.detach()

    def mixes(self) -> dict[str, list[float]]:
        """The shares of the layers, lowest first, by where they are used."""
        if self.use.layers != "mix":
            return {}
        named = {"read": self.read, "beside": self.beside}
        return {
            name: [*mix.shares().tolist(), float(mix.gamma.detach())] for name, mix in named.items() if mix is not None
        }


def view(backbone: Backbone, use: EncoderUse) -> Frozen | None:
    """What the head looks at instead of the backbone itself; None: the backbone."""
    return Frozen(backbone, use) if use.use == "frozen" else None


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
