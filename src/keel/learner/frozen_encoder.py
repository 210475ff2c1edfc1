"""Ways to use a pretrained encoder: fine-tune all of it, fine-tune parts of it, or use its layers as frozen features.

In: the `encoder` section of a fine-tuning recipe and a backbone. Out: the encoder for the task's head, and a factor on
the learning rate for each parameter.

tuned   all weights are trained; lower layers may have lower learning rates (`layer_decay`; Howard and Ruder 2018), the
        lowest may be frozen (`freeze_layers`), and the top ones reinitialised (`reinit_layers`; Zhang et al. 2020)
frozen  only the head is trained, on the last layer, on the last four concatenated, or on a learned mix of all layers:
        gamma x sum of softmax(s)_j x layer_j, with a penalty of lambda x sum of s_j^2 (Peters et al. 2018); a BiLSTM
        may come between encoder and head, with these vectors as its input, concatenated to its output, or both

Notable choice: a frozen encoder runs without dropout and without gradients, so it costs a third of a training step; in
training its outputs for the task's rows come from a cache (`frozen_cache.py`).
"""

from __future__ import annotations

from typing import Literal, Protocol, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.configs import BackboneConfig, Options
from keel.errors import UserError
from keel.interfaces import Backbone
from keel.layers.dropout import Dropout
from keel.layers.init_weights import init_normal
from keel.layers.recurrent.rows import BothSides, whole_rows
from keel.values import Batch, Encoding


class BiLstmSettings(Options):
    cells: int = Field(200, ge=1, description="in each direction")
    dropout: float = Field(0.5, ge=0, lt=1, description="on its input and output")
    at: Literal["input", "output", "both"] = Field(
        "input", description="where the encoder's vectors go: into the BiLSTM, concatenated to its output, or both"
    )


class EncoderSettings(Options):
    frozen: bool = Field(False, description="train only the head, on the encoder's outputs")
    layers: Literal["last", "last-four", "mix"] = Field(
        "last", description="which outputs of a frozen encoder are used"
    )
    mix_penalty: float = Field(0.0, ge=0, description="lambda: pulls the weights of the mix towards each other")
    bilstm: BiLstmSettings | None = Field(None, description="a BiLSTM between a frozen encoder and the head")
    layer_decay: float = Field(1.0, gt=0, le=1, description="a layer's learning rate, relative to the layer above it")
    dropout: float | None = Field(None, ge=0, lt=1, description="null: as in pretraining")
    attention_dropout: float | None = Field(None, ge=0, lt=1, description="null: as dropout")
    reinit_layers: int = Field(0, ge=0, description="top layers to reinitialise")
    freeze_layers: int = Field(0, ge=0, description="lowest layers to freeze; embeddings are then frozen too")

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if not self.frozen and self.layers != "last":
            raise ValueError(f"encoder.layers={self.layers} is for a frozen encoder: set encoder.frozen=true")
        if not self.frozen and self.bilstm:
            raise ValueError("encoder.bilstm is for a frozen encoder: set encoder.frozen=true")
        if self.layers != "mix" and self.mix_penalty:
            raise ValueError("encoder.mix_penalty is for a mix of layers: set encoder.layers=mix")
        if self.frozen and (self.layer_decay != 1 or self.reinit_layers or self.freeze_layers):
            raise ValueError("layer_decay, reinit_layers and freeze_layers are for encoder.frozen=false")
        return self


class EncodingCache(Protocol):
    """Outputs of a frozen encoder, computed in advance."""

    def find(self, batch: Batch) -> Encoding | None: ...


class LayerMix(nn.Module):
    """One vector per token from an encoder's layers: the last, the last four concatenated, or a learned mix of all."""

    def __init__(self, backbone: Backbone, layers: str) -> None:
        super().__init__()
        self.layers = layers
        count = backbone.config.layers
        self.width = backbone.width * (max(1, min(4, count)) if layers == "last-four" else 1)
        if layers == "mix":
            self.weights = nn.Parameter(torch.zeros(count + 1))
            self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, encoding: Encoding) -> Tensor:
        if self.layers == "last":
            return encoding.vectors
        if self.layers == "last-four":
            return torch.cat(encoding.layers[-min(4, max(1, len(encoding.layers) - 1)) :], 1)
        mixed = torch.stack([s * layer for s, layer in zip(self.shares(), encoding.layers, strict=True)]).sum(0)
        return self.gamma * mixed

    def shares(self) -> Tensor:
        return torch.softmax(self.weights, 0)


class FrozenEncoder(Backbone):
    """A frozen backbone with a choice of its layers as output, and optionally a BiLSTM on top. To a head it is a
    backbone like any other."""

    Config = BackboneConfig

    def __init__(self, backbone: Backbone, settings: EncoderSettings) -> None:
        super().__init__(backbone.config)
        self._inner = [backbone]  # in a list: its weights belong to the learner, not to this module
        self.settings = settings
        self.cache: EncodingCache | None = None  # set in training only
        at = settings.bilstm.at if settings.bilstm else "input"
        self.read = LayerMix(backbone, settings.layers) if at != "output" else None
        self.beside = LayerMix(backbone, settings.layers) if at != "input" else None
        self.width = self.read.width if self.read else backbone.width
        self.blocks = nn.ModuleList()
        self.bilstm: BothSides | None = None
        if settings.bilstm:
            self.bilstm = BothSides(self.width, settings.bilstm.cells)
            self.dropout = Dropout(settings.bilstm.dropout)
            self.width = 2 * settings.bilstm.cells + (self.beside.width if self.beside else 0)

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        encoding = (self.cache.find(batch) if self.cache else None) or self.encode(batch)
        x = self.read(encoding) if self.read else encoding.layers[0]
        if self.bilstm is None:
            return Encoding(x)
        states = self.dropout(self.bilstm(self.dropout(x), batch))
        return Encoding(torch.cat([states, self.beside(encoding)], 1) if self.beside else states)

    def encode(self, batch: Batch) -> Encoding:
        """The outputs of the encoder, not from the cache. Gradients are for explanations only (`Inspection`)."""
        all_layers = self.settings.layers != "last" or self.read is None
        explained = batch.inspection is not None and batch.inspection.embedded is not None
        with torch.set_grad_enabled(explained and torch.is_grad_enabled()):
            encoding: Encoding = self._inner[0].eval()(batch, all_layers=all_layers)
        return encoding

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """As the backbone's; of a BiLSTM, the final state of each direction."""
        if self.bilstm is None:
            return self._inner[0].row_vectors(vectors, batch)
        cells = self.bilstm.forwards.hidden_size
        states, beside = vectors[:, : 2 * cells], vectors[:, 2 * cells :]
        rows = whole_rows(states, batch, cells)
        return torch.cat([rows, self._inner[0].row_vectors(beside, batch)], 1) if self.beside else rows

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Equal weights for all layers, and a fresh BiLSTM. The encoder itself is not changed."""
        init_normal(self, self.config.init_std, generator)

    def token_embeddings(self) -> Tensor:
        """Detached, so that a tied output layer is not trained."""
        return self._inner[0].token_embeddings().detach()

    def token_head(self) -> nn.Module:
        return self._inner[0].token_head()

    def add_penalty(self) -> None:
        """Adds the mix penalty's gradient to a step's gradients."""
        for mix in (self.read, self.beside):
            if mix is not None and self.settings.mix_penalty and mix.weights.grad is not None:
                mix.weights.grad += 2 * self.settings.mix_penalty * mix.weights.detach()

    def mixes(self) -> dict[str, list[float]]:
        """The layer weights, lowest first, and gamma, for each place where a mix is used."""
        if self.settings.layers != "mix":
            return {}
        named = {"read": self.read, "beside": self.beside}
        return {
            name: [*mix.shares().tolist(), float(mix.gamma.detach())] for name, mix in named.items() if mix is not None
        }


def reinit_layers(backbone: Backbone, settings: EncoderSettings, generator: torch.Generator) -> None:
    """Reinitialises the top layers."""
    _check_layers(backbone, settings)
    for block in list(backbone.blocks)[len(backbone.blocks) - settings.reinit_layers :]:
        init_normal(block, backbone.config.init_std, generator)


def rate_scales(backbone: Backbone, settings: EncoderSettings) -> dict[nn.Parameter, float]:
    """The learning-rate factor of each of the backbone's parameters; 0: frozen. Heads have a factor of 1."""
    _check_layers(backbone, settings)
    if settings.frozen:
        return dict.fromkeys(backbone.parameters(), 0.0)
    count = len(backbone.blocks)
    scales = {
        p: settings.layer_decay ** (count + 1) * float(settings.freeze_layers == 0) for p in backbone.parameters()
    }
    for number, block in enumerate(backbone.blocks):
        share = settings.layer_decay ** (count - number) * float(number >= settings.freeze_layers)
        scales |= dict.fromkeys(block.parameters(), share)
    if backbone.pooler is not None:
        scales |= dict.fromkeys(backbone.pooler.parameters(), 1.0)
    return scales


def _check_layers(backbone: Backbone, settings: EncoderSettings) -> None:
    for name, count in (("reinit_layers", settings.reinit_layers), ("freeze_layers", settings.freeze_layers)):
        if count > len(backbone.blocks):
            raise UserError(f"encoder.{name} is {count}, but the model has {len(backbone.blocks)} layers")
