"""ALBERT's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.albert import AlbertConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, renamed
from keel.hugging_face.names import Name, layer


def config_to(config: AlbertConfig, pad: int) -> dict[str, Any]:
    return {
        "model_type": "albert",
        **shared.config_keys(config),
        "embedding_size": config.embedding,
        "num_hidden_groups": 1 if config.share_parameters == "all" else config.layers,
        "inner_group_num": 1,
        "classifier_dropout_prob": config.dropout,
        "pad_token_id": pad,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> AlbertConfig:
    given = renamed(published, shared.CONFIG_KEYS)
    groups, layers = published.get("num_hidden_groups", 1), given.get("layers", 12)
    if published.get("inner_group_num", 1) != 1 or groups not in (1, layers):
        raise ValueError(f"\n{groups} groups of layers: Keel supports one group, or one per layer")
    return AlbertConfig(
        **given,
        embedding_width=published.get("embedding_size", 128),
        share_parameters="all" if groups == 1 else "none",
        pooler="albert.pooler.weight" in tensor_names,
    )


def names(config: AlbertConfig, task: str | None) -> list[Name]:
    names = [
        *shared.embedding_names("albert"),
        *layer("backbone.embedding_projection", "albert.encoder.embedding_hidden_mapping_in"),
        *layer("backbone.pooler.dense", "albert.pooler"),
        *layer("objectives.masked_lm.head.dense", "predictions.dense"),
        *layer("objectives.masked_lm.head.norm", "predictions.LayerNorm"),
        Name("objectives.masked_lm.head.bias", "predictions.bias"),
        *layer("objectives.sentence_order.classifier", "sop_classifier.classifier"),
    ]
    for i in range(1 if config.share_parameters == "all" else config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"albert.encoder.albert_layer_groups.{i}.albert_layers.0"
        names += shared.projections(config, f"{ours}.attention.qkv", f"{theirs}.attention")
        names += layer(f"{ours}.attention.out", f"{theirs}.attention.dense")
        names += layer(f"{ours}.attention_norm", f"{theirs}.attention.LayerNorm")
        names += layer(f"{ours}.feed_forward.up", f"{theirs}.ffn")
        names += layer(f"{ours}.feed_forward.down", f"{theirs}.ffn_output")
        names += layer(f"{ours}.feed_forward_norm", f"{theirs}.full_layer_layer_norm")
    return names


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return shared.tidy_encoder(tensors, "albert", [("predictions.decoder", "predictions.bias")])


CLASSES: list[tuple[str, set[str]]] = [
    ("AlbertForPreTraining", {"masked_lm", "sentence_order", "pooler"}),
    ("AlbertForMaskedLM", {"masked_lm"}),
    ("AlbertModel", {"pooler"}),
    ("AlbertModel", set()),
]

FAMILY = Family(
    "albert",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("Albert"),
    own_keys=(*shared.OWN_KEYS, "share_parameters"),
    has_segments=True,
    computes_same=shared.is_scaled,
)
