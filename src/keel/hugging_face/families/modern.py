"""ModernBERT's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.modern import ModernConfig
from keel.hugging_face.family import Family, drop_tied, renamed
from keel.hugging_face.names import Name

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "local_window": "local_attention",
    "activation": "hidden_activation",
    "dropout": "mlp_dropout",
    "attention_dropout": "attention_dropout",
    "norm_epsilon": "norm_eps",
    "init_std": "initializer_range",
}
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")


def config_to(config: ModernConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    kinds = ["full_attention" if config.is_global(i) else "sliding_attention" for i in range(config.layers)]
    return {
        "model_type": "modernbert",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        **dict.fromkeys(BIASES, False),
        "embedding_dropout": config.dropout,
        "layer_types": kinds,
        "global_attn_every_n_layers": config.global_every,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.global_rope_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_base},
        },
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_activation": "gelu",
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> ModernConfig:
    given = renamed(published, CONFIG_KEYS)
    ropes = published.get("rope_parameters") or {}
    far, near = (ropes.get(kind) or {} for kind in ("full_attention", "sliding_attention"))
    _refuse(published, tensor_names, [far, near])
    kinds = published.get("layer_types")
    every = _every(kinds) if kinds else published.get("global_attn_every_n_layers", 3)
    return ModernConfig(
        **given,
        global_every=every,
        global_rope_base=far.get("rope_theta", published.get("global_rope_theta", 160_000.0)),
        local_rope_base=near.get("rope_theta", published.get("local_rope_theta", 10_000.0)),
        pooler="classifier.weight" in tensor_names,
    )


def _refuse(published: dict[str, Any], tensor_names: set[str], ropes: list[dict[str, Any]]) -> None:
    """Rejects configs that Keel would compute differently from `transformers`."""
    for key in BIASES:
        if published.get(key):
            raise ValueError(f"\n{key} is true; Keel supports this family only without biases")
    if any(rope.get("rope_type", "default") != "default" for rope in ropes):
        raise ValueError("\nrope_type is not default; Keel supports no other")
    if published.get("classifier_activation", "gelu") != "gelu":
        raise ValueError("\nclassifier_activation is not gelu; Keel supports no other for this family's heads")
    if published.get("classifier_pooling", "cls") != "cls" and "classifier.weight" in tensor_names:
        raise ValueError("\nclassifier_pooling is not cls; Keel supports no other for this family's classifiers")


def _every(kinds: list[str]) -> int:
    """The interval of layers with full attention, from the list of all layers."""
    later = [number for number, kind in enumerate(kinds) if kind == "full_attention" and number]
    every = later[0] if later else max(len(kinds), 2)
    if any((kind == "full_attention") != (number % every == 0) for number, kind in enumerate(kinds)):
        raise ValueError("\nlayer_types is irregular; Keel supports full attention in every n-th layer")
    return every


BLOCK_NAMES = {
    "attention_norm": "attn_norm",
    "attention.qkv": "attn.Wqkv",
    "attention.out": "attn.Wo",
    "feed_forward_norm": "mlp_norm",
    "feed_forward.up": "mlp.Wi",
    "feed_forward.down": "mlp.Wo",
}


def names(config: ModernConfig, task: str | None) -> list[Name]:
    names = [
        Name("backbone.tokens.weight", "model.embeddings.tok_embeddings.weight"),
        Name("backbone.norm.weight", "model.embeddings.norm.weight"),
        Name("backbone.final_norm.weight", "model.final_norm.weight"),
        Name("objectives.masked_lm.head.bias", "decoder.bias"),
    ]
    owner = "objectives.masked_lm.head" if task is None else "backbone.pooler"
    names += [Name(f"{owner}.{part}.weight", f"head.{part}.weight") for part in ("dense", "norm")]
    for i in range(config.layers):
        names += [
            Name(f"backbone.blocks.{i}.{ours}.weight", f"model.layers.{i}.{theirs}.weight")
            for ours, theirs in BLOCK_NAMES.items()
            if i or ours != "attention_norm"  # the first layer has none
        ]
    return names


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    current = {
        f"model.{name}" if name.split(".")[0] in ("embeddings", "layers", "final_norm") else name: tensor
        for name, tensor in tensors.items()
    }
    return drop_tied(current, "model.embeddings.tok_embeddings.weight", [("decoder", None)])


HEADS = {
    "classify": ("ModernBertForSequenceClassification", "classifier"),
    "regress": ("ModernBertForSequenceClassification", "classifier"),
    "choose": ("ModernBertForMultipleChoice", "classifier"),
}
CLASSES: list[tuple[str, set[str]]] = [("ModernBertForMaskedLM", {"masked_lm"}), ("ModernBertModel", set())]

FAMILY = Family("modernbert", config_to, config_from, names, tidy, CLASSES, HEADS, names_special_tokens=True)
