"""XLM-R's folders: those of RoBERTa with another type and other classes of `transformers`."""

from __future__ import annotations

from typing import Any

from keel.backbones.xlm_roberta import XlmRobertaConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.families import roberta
from keel.hugging_face.family import Family

CLASSES: list[tuple[str, set[str]]] = [(f"XLM{name}", parts) for name, parts in roberta.CLASSES]


def config_to(config: XlmRobertaConfig, pad: int) -> dict[str, Any]:
    return {**roberta.config_keys(config), "model_type": "xlm-roberta"}


def config_from(published: dict[str, Any], tensor_names: set[str]) -> XlmRobertaConfig:
    return XlmRobertaConfig(**roberta.given_keys(published, tensor_names))


FAMILY = Family(
    "xlm-roberta",
    config_to,
    config_from,
    roberta.names,
    roberta.tidy,
    CLASSES,
    shared.task_heads("XLMRoberta", "classifier.out_proj"),
    own_keys=shared.OWN_KEYS,
    computes_same=shared.is_scaled,
)
