"""DistilBERT's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones._post_norm import SHARED
from keel.backbones.distilbert import DistilBertConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, drop_tied, renamed
from keel.hugging_face.names import Name, layer

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "n_layers",
    "width": "dim",
    "heads": "n_heads",
    "feed_forward": "hidden_dim",
    "positions": "max_position_embeddings",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
}
EPSILON = 1e-12  # of every norm; config.json has no key for it


def config_to(config: DistilBertConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    entries = {theirs: ours[name] for name, theirs in CONFIG_KEYS.items()}
    return {"model_type": "distilbert", **entries, "pad_token_id": pad, "tie_word_embeddings": True}


def config_from(published: dict[str, Any], tensor_names: set[str]) -> DistilBertConfig:
    return DistilBertConfig(**renamed(published, CONFIG_KEYS), pooler="pre_classifier.weight" in tensor_names)


def names(config: DistilBertConfig, task: str | None) -> list[Name]:
    embeddings = "distilbert.embeddings"
    found = [
        Name("backbone.embeddings.tokens.weight", f"{embeddings}.word_embeddings.weight"),
        Name("backbone.embeddings.positions.weight", f"{embeddings}.position_embeddings.weight"),
        *layer("backbone.embeddings.norm", f"{embeddings}.LayerNorm"),
        *layer("backbone.pooler.dense", "pre_classifier"),
        *layer("objectives.masked_lm.head.dense", "vocab_transform"),
        *layer("objectives.masked_lm.head.norm", "vocab_layer_norm"),
        Name("objectives.masked_lm.head.bias", "vocab_projector.bias"),
    ]
    roles = SHARED[config.attention.shared]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"distilbert.transformer.layer.{i}"
        for role, part in zip(("q_lin", "k_lin", "v_lin"), roles, strict=True):
            found += layer(f"{ours}.attention.qkv", f"{theirs}.attention.{role}", (part, max(roles) + 1))
        found += layer(f"{ours}.attention.out", f"{theirs}.attention.out_lin")
        found += layer(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm")
        found += layer(f"{ours}.feed_forward.up", f"{theirs}.ffn.lin1")
        found += layer(f"{ours}.feed_forward.down", f"{theirs}.ffn.lin2")
        found += layer(f"{ours}.feed_forward_norm", f"{theirs}.output_layer_norm")
    return found


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    bare = ("embeddings", "transformer")  # an encoder saved without a head
    prefixed = {f"distilbert.{name}" if name.split(".")[0] in bare else name: t for name, t in tensors.items()}
    kept = {name: t for name, t in prefixed.items() if not name.endswith("embeddings.position_ids")}
    return drop_tied(
        kept, "distilbert.embeddings.word_embeddings.weight", [("vocab_projector", "vocab_projector.bias")]
    )


def computes_same(config: DistilBertConfig) -> bool:
    return config.attention.scaled and config.norm_epsilon == EPSILON


CLASSES: list[tuple[str, set[str]]] = [("DistilBertForMaskedLM", {"masked_lm"}), ("DistilBertModel", set())]

FAMILY = Family(
    "distilbert",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("DistilBert"),
    own_keys=(*shared.OWN_KEYS, "norm_epsilon"),
    computes_same=computes_same,
)
