"""Config keys and tensor names shared by the Hugging Face folders of BERT, RoBERTa, ELECTRA and ALBERT."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones._post_norm import SHARED, PostNormConfig
from keel.hugging_face.family import drop_tied
from keel.hugging_face.names import Name, layer

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_epsilon": "layer_norm_eps",
    "init_std": "initializer_range",
}
OWN_KEYS = ("attention", "learn_positions")


def config_keys(config: PostNormConfig, **changes: Any) -> dict[str, Any]:
    """The keys of config.json that all four have."""
    ours = config.model_dump() | changes
    return {**{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()}, "tie_word_embeddings": True}


def causal_section(published: dict[str, Any]) -> dict[str, Any]:
    return {"causal": True} if published.get("is_decoder") else {}


def is_scaled(config: PostNormConfig) -> bool:
    """Attention without scaling is an ablation that `transformers` does not compute."""
    return config.attention.scaled


def language_model_head(config: PostNormConfig) -> str:
    """The prefix of our tensors of the language model head."""
    return f"objectives.{'causal_lm' if config.attention.causal else 'masked_lm'}.head"


def embedding_names(prefix: str) -> list[Name]:
    return [
        Name("backbone.embeddings.tokens.weight", f"{prefix}.embeddings.word_embeddings.weight"),
        Name("backbone.embeddings.positions.weight", f"{prefix}.embeddings.position_embeddings.weight"),
        Name("backbone.embeddings.segments.weight", f"{prefix}.embeddings.token_type_embeddings.weight"),
        *layer("backbone.embeddings.norm", f"{prefix}.embeddings.LayerNorm"),
    ]


def encoder_names(config: PostNormConfig, prefix: str) -> list[Name]:
    """Embeddings and blocks; three of the families use the same names, each with its own prefix."""
    names = embedding_names(prefix)
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"{prefix}.encoder.layer.{i}"
        names += projections(config, f"{ours}.attention.qkv", f"{theirs}.attention.self")
        names += layer(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
        names += layer(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        names += layer(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        names += layer(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        names += layer(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return names


def projections(
    config: PostNormConfig, ours: str, theirs: str, named: tuple[str, str, str] = ("query", "key", "value")
) -> list[Name]:
    """Query, key and value, which `transformers` stores separately even if they share weights."""
    roles = SHARED[config.attention.shared]
    parts = zip(named, roles, strict=True)
    return [name for role, part in parts for name in layer(ours, f"{theirs}.{role}", (part, max(roles) + 1))]


def tidy_encoder(tensors: dict[str, Tensor], prefix: str, outputs: list[tuple[str, str | None]]) -> dict[str, Tensor]:
    """Adds the prefix to encoders saved without a head; drops position counters and tied output layers."""
    tidy: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.split(".")[0] in ("embeddings", "encoder", "pooler", "embeddings_project"):
            name = f"{prefix}.{name}"
        if not name.endswith("embeddings.position_ids"):  # saved by old versions
            tidy[name] = tensor
    return drop_tied(tidy, f"{prefix}.embeddings.word_embeddings.weight", outputs)


def task_heads(prefix: str, classifier: str = "classifier") -> dict[str, tuple[str, str]]:
    """The family's classes with a task head, and their last layers."""
    return {
        "classify": (f"{prefix}ForSequenceClassification", classifier),
        "regress": (f"{prefix}ForSequenceClassification", classifier),
        "tag": (f"{prefix}ForTokenClassification", "classifier"),
        "answer": (f"{prefix}ForQuestionAnswering", "qa_outputs"),
        "choose": (f"{prefix}ForMultipleChoice", "classifier"),
    }
