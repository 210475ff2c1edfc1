"""The folders of DeBERTa v2 and v3: `config.json` keys, tensor names and classes of `transformers`.

Two layouts of the masked-LM head are read: that of `transformers` (`cls.predictions`), and the published one
(`lm_predictions`, `legacy: false`). They compute the same, and Keel writes the first, which any version opens.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.deberta import DebertaConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, drop_tied, renamed
from keel.hugging_face.names import Name, layer

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "embedding_width": "embedding_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_epsilon": "layer_norm_eps",
    "init_std": "initializer_range",
    "absolute_positions": "position_biased_input",
    "relative_positions": "relative_attention",
    "share_projections": "share_att_key",
    "farthest": "max_relative_positions",
    "distance_buckets": "position_buckets",
    "convolution": "conv_kernel_size",
    "convolution_groups": "conv_groups",
    "convolution_activation": "conv_act",
    "pooler_activation": "pooler_hidden_act",
}
DEFAULTS: dict[str, Any] = {  # of transformers, where they differ from Keel's
    "layers": 24,
    "width": 1536,
    "heads": 24,
    "feed_forward": 6144,
    "absolute_positions": True,
    "relative_positions": False,
    "share_projections": False,
    "distance_buckets": 0,
}
PRODUCTS = ("c2p", "p2c")
HEAD = {  # the published layout of the head, and that of transformers
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head": "cls.predictions",
}


def config_to(config: DebertaConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump() | {"embedding_width": config.embedding}
    return {
        "model_type": "deberta-v2",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "pos_att_type": list(config.products),
        "position_buckets": config.distance_buckets or -1,
        "norm_rel_ebd": "layer_norm" if config.norm_distances and config.relative_positions else "none",
        "pooler_hidden_size": config.width,
        "pooler_dropout": 0.0,
        "legacy": True,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> DebertaConfig:
    given = DEFAULTS | renamed(published, CONFIG_KEYS)
    given["distance_buckets"] = max(0, given["distance_buckets"])
    if given.get("farthest", -1) < 1:
        given["farthest"] = given.get("positions", 512)
    norms = _parts(published.get("norm_rel_ebd", "none"))
    products = _parts(published.get("pos_att_type") or [])
    for key, found, known in (("norm_rel_ebd", norms, ("none", "layer_norm")), ("pos_att_type", products, PRODUCTS)):
        if unknown := sorted(set(found) - set(known)):
            raise ValueError(f"\n{key} has '{unknown[0]}', which is not supported; known: {', '.join(known)}")
    for key, wanted in (
        ("attention_head_size", given["width"] // max(1, given["heads"])),
        ("pooler_hidden_size", given["width"]),
    ):
        if published.get(key, wanted) != wanted:
            raise ValueError(f"\n{key} is {published[key]}; Keel supports only {wanted} with this hidden_size")
    return DebertaConfig(
        **given,
        products=tuple(product for product in PRODUCTS if product in products),
        norm_distances="layer_norm" in norms,
        pooler="pooler.dense.weight" in tensor_names,
    )


def _parts(given: str | list[str]) -> list[str]:
    """A list, which may be written as `p2c|c2p`."""
    parts = given.lower().split("|") if isinstance(given, str) else given
    return [part.strip() for part in parts]


def names(config: DebertaConfig, task: str | None) -> list[Name]:
    embeddings = "deberta.embeddings"
    found = [
        Name("backbone.embeddings.tokens.weight", f"{embeddings}.word_embeddings.weight"),
        Name("backbone.embeddings.positions.weight", f"{embeddings}.position_embeddings.weight"),
        Name("backbone.embeddings.segments.weight", f"{embeddings}.token_type_embeddings.weight"),
        Name("backbone.embeddings.projection.weight", f"{embeddings}.embed_proj.weight"),
        *layer("backbone.embeddings.norm", f"{embeddings}.LayerNorm"),
        Name("backbone.distances.table.weight", "deberta.encoder.rel_embeddings.weight"),
        *layer("backbone.distances.norm", "deberta.encoder.LayerNorm"),
        *layer("backbone.blocks.0.convolution", "deberta.encoder.conv.conv"),
        *layer("backbone.blocks.0.norm", "deberta.encoder.conv.LayerNorm"),
        *layer("backbone.pooler.dense", "pooler.dense"),
        *layer("objectives.masked_lm.head.dense", "cls.predictions.transform.dense"),
        *layer("objectives.masked_lm.head.norm", "cls.predictions.transform.LayerNorm"),
        Name("objectives.masked_lm.head.bias", "cls.predictions.bias"),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"deberta.encoder.layer.{i}"
        ours += ".block" if config.convolution and i == 0 else ""
        for part, name in enumerate(("query_proj", "key_proj", "value_proj")):
            found += layer(f"{ours}.attention.qkv", f"{theirs}.attention.self.{name}", (part, 3))
        found += layer(f"{ours}.attention.distance_key", f"{theirs}.attention.self.pos_key_proj")
        found += layer(f"{ours}.attention.distance_query", f"{theirs}.attention.self.pos_query_proj")
        found += layer(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
        found += layer(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        found += layer(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        found += layer(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        found += layer(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return found


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of transformers' head and prefix; without the position counter of old versions."""
    current: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        owner, _, part = name.rpartition(".")
        new = f"{HEAD[owner]}.{part}" if owner in HEAD else name
        new = f"deberta.{new}" if new.split(".")[0] in ("embeddings", "encoder") else new
        if not new.endswith("embeddings.position_ids"):
            current[name if new in tensors else new] = tensor
    table = "deberta.embeddings.word_embeddings.weight"
    return drop_tied(current, table, [("cls.predictions.decoder", "cls.predictions.bias")])


def unused(config: DebertaConfig) -> tuple[str, ...]:
    """v3's discriminator head and the change of its embeddings in pretraining, v2's position embeddings, which only its
    enhanced mask decoder reads, and a norm of vectors that are not there."""
    positions = () if config.absolute_positions else ("deberta.embeddings.position_embeddings.",)
    norm = () if config.relative_positions else ("deberta.encoder.LayerNorm.",)
    return ("mask_predictions.", "deberta.embeddings.word_embeddings._weight", *positions, *norm)


CLASSES: list[tuple[str, set[str]]] = [("DebertaV2ForMaskedLM", {"masked_lm"}), ("DebertaV2Model", set())]

FAMILY = Family(
    "deberta-v2",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("DebertaV2"),
    has_segments=True,
    unused=unused,
)
