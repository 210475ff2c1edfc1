"""ELECTRA's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.electra import ElectraConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, renamed
from keel.hugging_face.names import Name, layer


def config_to(config: ElectraConfig, pad: int) -> dict[str, Any]:
    return {
        "model_type": "electra",
        **shared.config_keys(config),
        "embedding_size": config.embedding,
        "pad_token_id": pad,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> ElectraConfig:
    pooled = {"classifier.dense.weight", "sequence_summary.summary.weight"} & tensor_names
    size = published.get("embedding_size", 128)
    return ElectraConfig(**renamed(published, shared.CONFIG_KEYS), embedding_width=size, pooler=bool(pooled))


def names(config: ElectraConfig, task: str | None) -> list[Name]:
    return [
        *shared.encoder_names(config, "electra"),
        *layer("backbone.embedding_projection", "electra.embeddings_project"),
        *layer("backbone.pooler.dense", "sequence_summary.summary" if task == "choose" else "classifier.dense"),
        *layer("objectives.masked_lm.head.dense", "generator_predictions.dense"),
        *layer("objectives.masked_lm.head.norm", "generator_predictions.LayerNorm"),
        Name("objectives.masked_lm.head.bias", "generator_lm_head.bias"),
        *layer("objectives.replaced_token.dense", "discriminator_predictions.dense"),
        *layer("objectives.replaced_token.out", "discriminator_predictions.dense_prediction"),
    ]


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return shared.tidy_encoder(tensors, "electra", [("generator_lm_head", "generator_lm_head.bias")])


CLASSES: list[tuple[str, set[str]]] = [
    ("ElectraForPreTraining", {"replaced_token"}),
    ("ElectraForMaskedLM", {"masked_lm"}),
    ("ElectraModel", set()),
]

FAMILY = Family(
    "electra",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("Electra", "classifier.out_proj"),
    own_keys=shared.OWN_KEYS,
    has_segments=True,
    computes_same=shared.is_scaled,
)
