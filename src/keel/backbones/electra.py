"""ELECTRA (Clark et al. 2020): BERT with embeddings that may be smaller than its layers, and no pooler in pretraining.

What makes it ELECTRA is its objective (`objectives/replaced_token.py`): to tell the tokens that a small generator put
in from those that were there. Generator and discriminator are both backbones of this kind and share their embeddings.

Notable choice: a matrix widens the embeddings where they are smaller; it starts near the identity, so that the first
layer finds the positions' waves where it starts out looking for them (`bert.py`).
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from keel.backbones.bert import CONFIG_KEYS, Bert, BertConfig, encoder_names, pair, pass_through, renamed, tidy_encoder
from keel.checkpoint import Name, Published
from keel.interfaces import Batch


class ElectraConfig(BertConfig):
    kind: Literal["electra"] = "electra"  # type: ignore[assignment]
    embedding_width: int | None = Field(None, ge=1, description="null: the layers' width")
    pooler: bool = False

    @property
    def embedding(self) -> int:
        return self.embedding_width or self.width

    @model_validator(mode="after")
    def _looks_both_ways(self) -> Self:
        if self.attention.look != "both":
            raise ValueError("this family looks both ways; for left to right take bert, roberta or gpt")
        return self


class Electra(Bert):
    Config = ElectraConfig
    head_activation = "gelu"  # the generator's, whatever the layers'

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__(config)
        self.widen = nn.Linear(config.embedding, config.width) if config.embedding != config.width else None

    def embed_tokens(self, batch: Batch) -> Tensor:
        """(T, E): what generator and discriminator share."""
        return super().embed(batch)

    def embed(self, batch: Batch) -> Tensor:
        x = self.embed_tokens(batch)
        return x if self.widen is None else self.widen(x)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """As the published classifier does it: gelu instead of tanh."""
        assert self.pooler is not None, "this backbone was built without a pooler"
        return F.gelu(self.pooler(vectors[batch.starts]))

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        super().start(generator)
        if self.widen is not None:
            pass_through(self.widen)


# The border: Hugging Face's `config.json` keys and tensor names.


def to_published(config: ElectraConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "electra",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "embedding_size": config.embedding,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> ElectraConfig:
    pooled = {"classifier.dense.weight", "sequence_summary.summary.weight"} & tensor_names
    size = published.get("embedding_size", 128)
    return ElectraConfig(**renamed(published, CONFIG_KEYS), embedding_width=size, pooler=bool(pooled))


def published_names(config: ElectraConfig, kind: str | None) -> list[Name]:
    return [
        *encoder_names(config, "electra"),
        *pair("backbone.widen", "electra.embeddings_project"),
        *pair("backbone.pooler", "sequence_summary.summary" if kind == "choose" else "classifier.dense"),
        *pair("objectives.masked_lm.head.dense", "generator_predictions.dense"),
        *pair("objectives.masked_lm.head.norm", "generator_predictions.LayerNorm"),
        Name("objectives.masked_lm.head.bias", "generator_lm_head.bias"),
        *pair("objectives.replaced_token.dense", "discriminator_predictions.dense"),
        *pair("objectives.replaced_token.out", "discriminator_predictions.dense_prediction"),
    ]


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tidy_encoder(tensors, "electra", [("generator_lm_head", "generator_lm_head.bias")])


HEADS = {
    "classify": ("ElectraForSequenceClassification", "classifier.out_proj"),
    "regress": ("ElectraForSequenceClassification", "classifier.out_proj"),
    "tag": ("ElectraForTokenClassification", "classifier"),
    "answer": ("ElectraForQuestionAnswering", "qa_outputs"),
    "choose": ("ElectraForMultipleChoice", "classifier"),
}


CLASSES: list[tuple[str, set[str]]] = [
    ("ElectraForPreTraining", {"replaced_token"}),
    ("ElectraForMaskedLM", {"masked_lm"}),
    ("ElectraModel", set()),
]


Electra.published = Published("electra", to_published, from_published, published_names, tidy_published, CLASSES, HEADS)
