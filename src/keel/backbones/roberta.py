"""RoBERTa (Liu et al. 2019): BERT without segments, its positions counted from behind the padding token's id.

The model is BERT's; what RoBERTa changed stands in its recipe: no next-sentence prediction, rows full of sentences,
masks drawn anew each time, larger batches, byte-level pieces.

Notable choices
- Published checkpoints add the same segment row to every token, and never use their first `padding + 1` position rows.
  Both are kept, so that folders open in `transformers` and from there.
- The published classifier has no pooler of its own: its `classifier.dense` is the pooler here, under their name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from keel.backbones.bert import CONFIG_KEYS, Bert, BertConfig, encoder_names, pair, renamed, tidy_encoder
from keel.checkpoint import Name, Published
from keel.interfaces import Batch


class RobertaConfig(BertConfig):
    kind: Literal["roberta"] = "roberta"  # type: ignore[assignment]
    segments: int = Field(1, ge=1, description="rows in the table; only the first is ever used")
    padding: int | None = Field(None, ge=0, description="id of the padding token; null: the tokenizer's")
    norm_epsilon: float = Field(1e-5, gt=0)
    pooler: bool = False

    @property
    def first_position(self) -> int:
        assert self.padding is not None, "the padding token is settled before the model is built"
        return self.padding + 1


class Roberta(Bert):
    Config = RobertaConfig
    head_activation = "gelu"  # whatever the layers'

    def embed(self, batch: Batch) -> Tensor:
        x = self.tokens(batch.ids) + self.segments.weight[0]
        x = x + self.positions(batch.positions + self.config.first_position)
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded


# The border: Hugging Face's `config.json` keys and tensor names.


def to_published(config: RobertaConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump() | {"positions": config.first_position + config.positions}
    return {
        "model_type": "roberta",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "pad_token_id": config.padding,
        "tie_word_embeddings": True,
        "is_decoder": config.attention.look == "left",
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> RobertaConfig:
    given = renamed(published, CONFIG_KEYS)
    padding = published.get("pad_token_id", 1)
    given["positions"] = given.get("positions", 512) - padding - 1
    pooled = {"roberta.pooler.dense.weight", "classifier.dense.weight"} & tensor_names
    look = {"look": "left"} if published.get("is_decoder") else {}
    return RobertaConfig(**given, padding=padding, attention=look, pooler=bool(pooled))


def published_names(config: RobertaConfig, kind: str | None) -> list[Name]:
    head = "objectives.masked_lm.head" if config.attention.look == "both" else "objectives.left_to_right.head"
    return [
        *encoder_names(config, "roberta"),
        *pair("backbone.pooler", "classifier.dense" if kind in ("classify", "regress") else "roberta.pooler.dense"),
        *pair(f"{head}.dense", "lm_head.dense"),
        *pair(f"{head}.norm", "lm_head.layer_norm"),
        Name(f"{head}.bias", "lm_head.bias"),
    ]


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tidy_encoder(tensors, "roberta", [("lm_head.decoder", "lm_head.bias")])


HEADS = {
    "classify": ("RobertaForSequenceClassification", "classifier.out_proj"),
    "regress": ("RobertaForSequenceClassification", "classifier.out_proj"),
    "tag": ("RobertaForTokenClassification", "classifier"),
    "answer": ("RobertaForQuestionAnswering", "qa_outputs"),
    "choose": ("RobertaForMultipleChoice", "classifier"),
}


CLASSES: list[tuple[str, set[str]]] = [
    ("RobertaForMaskedLM", {"masked_lm"}),
    ("RobertaForCausalLM", {"left_to_right"}),
    ("RobertaModel", {"pooler"}),
    ("RobertaModel", set()),
]


Roberta.published = Published("roberta", to_published, from_published, published_names, tidy_published, CLASSES, HEADS)
