"""ALBERT (Lan et al. 2019): BERT with small embeddings, widened once, and one layer's weights used in every layer.

The two cuts in parameters are the model; sentence-order prediction instead of next-sentence prediction, and masks over
n-grams, stand in its recipe.

Notable choices
- `share` says what the layers have in common: everything, their attention, their feed-forward, or nothing. All layers
  together are then one entry of `blocks`: they cannot be frozen, restarted or given a rate one by one.
- Published folders know groups of layers, not halves of them. A model that shares half is written as one group per
  layer, with the shared half repeated, and computes the same there.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.backbones.bert import (
    CONFIG_KEYS,
    Bert,
    BertConfig,
    pair,
    pass_through,
    projections,
    renamed,
    tidy_encoder,
)
from keel.checkpoint import Name, Published
from keel.interfaces import Batch, Encoding
from keel.layers.attention import SelfAttention
from keel.layers.block import Attending, FeedForward
from keel.layers.filler import fill_up


class AlbertConfig(BertConfig):
    kind: Literal["albert"] = "albert"  # type: ignore[assignment]
    embedding_width: int = Field(128, ge=1)
    share: Literal["all", "attention", "feed-forward", "none"] = "all"
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu_new"
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)

    @property
    def embedding(self) -> int:
        return self.embedding_width

    @model_validator(mode="after")
    def _looks_both_ways(self) -> Self:
        if self.attention.look != "both":
            raise ValueError("this family looks both ways; for left to right take bert, roberta or gpt")
        return self


class Layers(nn.Module):
    """All layers: as many attention and feed-forward halves as there are different ones."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        attending = 1 if config.share in ("all", "attention") else config.layers
        feeding = 1 if config.share in ("all", "feed-forward") else config.layers
        self.count = config.layers
        self.attending = nn.ModuleList(Attending(config, config.attention) for _ in range(attending))
        self.feed = nn.ModuleList(FeedForward(config) for _ in range(feeding))

    def forward(self, x: Tensor, batch: Batch, every_layer: bool) -> list[Tensor]:
        """The vectors before the first layer and after each; the last one's only where they are asked for."""
        found = [x]
        for i in range(self.count):
            asked = batch.asked if i == self.count - 1 and not every_layer else None
            mixed = self.attending[min(i, len(self.attending) - 1)](found[-1], batch.lengths, asked)
            found.append(self.feed[min(i, len(self.feed) - 1)](mixed))
        return found


class Albert(Bert):
    Config = AlbertConfig

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.widen = nn.Linear(config.embedding, config.width)

    def _make_blocks(self) -> nn.ModuleList:
        return nn.ModuleList([Layers(self.config)])

    def embed(self, batch: Batch) -> Tensor:
        widened: Tensor = self.widen(super().embed(batch))
        return widened

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        layers = self.blocks[0](fill_up(self.embed(batch)), batch, every_layer)
        return Encoding.of(batch, layers, None if every_layer else batch.asked, every_layer)

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        super().start(generator)
        pass_through(self.widen)

    def _first_attention(self) -> SelfAttention | None:
        attending: Any = self.blocks[0].attending
        return attending[0].attention if len(attending) > 1 else None


# The border: Hugging Face's `config.json` keys and tensor names.


def to_published(config: AlbertConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "albert",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "embedding_size": config.embedding,
        "num_hidden_groups": 1 if config.share == "all" else config.layers,
        "inner_group_num": 1,
        "classifier_dropout_prob": config.dropout,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> AlbertConfig:
    given = renamed(published, CONFIG_KEYS)
    groups, layers = published.get("num_hidden_groups", 1), given.get("layers", 12)
    if published.get("inner_group_num", 1) != 1 or groups not in (1, layers):
        raise ValueError(f"\n{groups} groups of layers: Keel knows one group, or one for each layer")
    return AlbertConfig(
        **given,
        embedding_width=published.get("embedding_size", 128),
        share="all" if groups == 1 else "none",
        pooler="albert.pooler.weight" in tensor_names,
    )


def published_names(config: AlbertConfig, kind: str | None) -> list[Name]:
    names = [
        Name("backbone.tokens.weight", "albert.embeddings.word_embeddings.weight"),
        Name("backbone.positions.weight", "albert.embeddings.position_embeddings.weight"),
        Name("backbone.segments.weight", "albert.embeddings.token_type_embeddings.weight"),
        *pair("backbone.norm", "albert.embeddings.LayerNorm"),
        *pair("backbone.widen", "albert.encoder.embedding_hidden_mapping_in"),
        *pair("backbone.pooler", "albert.pooler"),
        *pair("objectives.masked_lm.head.dense", "predictions.dense"),
        *pair("objectives.masked_lm.head.norm", "predictions.LayerNorm"),
        Name("objectives.masked_lm.head.bias", "predictions.bias"),
        *pair("objectives.sentence_order.classifier", "sop_classifier.classifier"),
    ]
    for i in range(1 if config.share == "all" else config.layers):
        theirs = f"albert.encoder.albert_layer_groups.{i}.albert_layers.0"
        attending = f"backbone.blocks.0.attending.{0 if config.share in ('all', 'attention') else i}"
        feed = f"backbone.blocks.0.feed.{0 if config.share in ('all', 'feed-forward') else i}"
        names += projections(config, f"{attending}.attention.qkv", f"{theirs}.attention")
        names += pair(f"{attending}.attention.out", f"{theirs}.attention.dense")
        names += pair(f"{attending}.norm", f"{theirs}.attention.LayerNorm")
        names += pair(f"{feed}.grow", f"{theirs}.ffn")
        names += pair(f"{feed}.shrink", f"{theirs}.ffn_output")
        names += pair(f"{feed}.norm", f"{theirs}.full_layer_layer_norm")
    return names


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tidy_encoder(tensors, "albert", [("predictions.decoder", "predictions.bias")])


HEADS = {
    "classify": ("AlbertForSequenceClassification", "classifier"),
    "regress": ("AlbertForSequenceClassification", "classifier"),
    "tag": ("AlbertForTokenClassification", "classifier"),
    "answer": ("AlbertForQuestionAnswering", "qa_outputs"),
    "choose": ("AlbertForMultipleChoice", "classifier"),
}


CLASSES: list[tuple[str, set[str]]] = [
    ("AlbertForPreTraining", {"masked_lm", "sentence_order", "pooler"}),
    ("AlbertForMaskedLM", {"masked_lm"}),
    ("AlbertModel", {"pooler"}),
    ("AlbertModel", set()),
]


Albert.published = Published("albert", to_published, from_published, published_names, tidy_published, CLASSES, HEADS)
