"""RoBERTa's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones._post_norm import OffsetConfig
from keel.backbones.roberta import RobertaConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, renamed
from keel.hugging_face.names import Name, layer


def config_to(config: RobertaConfig, pad: int) -> dict[str, Any]:
    return {**config_keys(config), "model_type": "roberta"}


def config_from(published: dict[str, Any], tensor_names: set[str]) -> RobertaConfig:
    return RobertaConfig(**given_keys(published, tensor_names))


def config_keys(config: OffsetConfig) -> dict[str, Any]:
    return {
        **shared.config_keys(config, positions=config.first_position + config.positions),
        "pad_token_id": config.padding,
        "is_decoder": config.attention.causal,
    }


def given_keys(published: dict[str, Any], tensor_names: set[str]) -> dict[str, Any]:
    """The values of a published config under our names."""
    given = renamed(published, shared.CONFIG_KEYS)
    padding = published.get("pad_token_id", 1)
    given["positions"] = given.get("positions", 512) - padding - 1
    pooled = {"roberta.pooler.dense.weight", "classifier.dense.weight"} & tensor_names
    return given | {"padding": padding, "attention": shared.causal_section(published), "pooler": bool(pooled)}


def names(config: OffsetConfig, task: str | None) -> list[Name]:
    head = shared.language_model_head(config)
    pooler = "classifier.dense" if task in ("classify", "regress") else "roberta.pooler.dense"
    return [
        *shared.encoder_names(config, "roberta"),
        *layer("backbone.pooler.dense", pooler),
        *layer(f"{head}.dense", "lm_head.dense"),
        *layer(f"{head}.norm", "lm_head.layer_norm"),
        Name(f"{head}.bias", "lm_head.bias"),
    ]


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return shared.tidy_encoder(tensors, "roberta", [("lm_head.decoder", "lm_head.bias")])


CLASSES: list[tuple[str, set[str]]] = [
    ("RobertaForMaskedLM", {"masked_lm"}),
    ("RobertaForCausalLM", {"causal_lm"}),
    ("RobertaModel", {"pooler"}),
    ("RobertaModel", set()),
]

FAMILY = Family(
    "roberta",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("Roberta", "classifier.out_proj"),
    own_keys=shared.OWN_KEYS,
    computes_same=shared.is_scaled,
)
