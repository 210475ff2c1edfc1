"""BERT's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.bert import BertConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, renamed
from keel.hugging_face.names import Name, layer


def config_to(config: BertConfig, pad: int) -> dict[str, Any]:
    return {
        "model_type": "bert",
        **shared.config_keys(config),
        "pad_token_id": pad,
        "position_embedding_type": "absolute",
        "is_decoder": config.attention.causal,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> BertConfig:
    given = renamed(published, shared.CONFIG_KEYS)
    pooler = "bert.pooler.dense.weight" in tensor_names
    return BertConfig(**given, attention=shared.causal_section(published), pooler=pooler)


def names(config: BertConfig, task: str | None) -> list[Name]:
    head = shared.language_model_head(config)
    return [
        *shared.encoder_names(config, "bert"),
        *layer("backbone.pooler.dense", "bert.pooler.dense"),
        *layer(f"{head}.dense", "cls.predictions.transform.dense"),
        *layer(f"{head}.norm", "cls.predictions.transform.LayerNorm"),
        Name(f"{head}.bias", "cls.predictions.bias"),
        *layer("objectives.next_sentence.classifier", "cls.seq_relationship"),
    ]


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames tensors of older and partial folders as in BertForPreTraining."""
    current = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }
    return shared.tidy_encoder(current, "bert", [("cls.predictions.decoder", "cls.predictions.bias")])


CLASSES: list[tuple[str, set[str]]] = [
    ("BertForPreTraining", {"masked_lm", "next_sentence", "pooler"}),
    ("BertForMaskedLM", {"masked_lm"}),
    ("BertForNextSentencePrediction", {"next_sentence", "pooler"}),
    ("BertLMHeadModel", {"causal_lm"}),
    ("BertModel", {"pooler"}),
    ("BertModel", set()),
]

FAMILY = Family(
    "bert",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("Bert"),
    own_keys=shared.OWN_KEYS,
    has_segments=True,
    computes_same=shared.is_scaled,
)
