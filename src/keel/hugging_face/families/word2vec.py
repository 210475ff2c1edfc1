"""word2vec's folders: one tensor, the vectors. `transformers` does not support them."""

from __future__ import annotations

from typing import Any

from keel.backbones.word2vec import Word2VecConfig
from keel.hugging_face.family import OWN_PREFIX, Family
from keel.hugging_face.names import Name


def config_to(config: Word2VecConfig, pad: int) -> dict[str, Any]:
    shape = {"vocab_size": config.vocabulary, "hidden_size": config.width, "pad_token_id": pad}
    return {"model_type": f"{OWN_PREFIX}word2vec", **shape}


def config_from(published: dict[str, Any], tensor_names: set[str]) -> Word2VecConfig:
    return Word2VecConfig(vocabulary=published["vocab_size"], width=published["hidden_size"])


def names(config: Word2VecConfig, task: str | None) -> list[Name]:
    return [Name("backbone.tokens.weight", "vectors")]


FAMILY = Family("word2vec", config_to, config_from, names, dict, [("Word2Vec", set())], {})
