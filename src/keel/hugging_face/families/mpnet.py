"""MPNet's folders: `config.json` keys, tensor names and classes of `transformers`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.mpnet import FIRST_POSITION, MpnetConfig
from keel.hugging_face.families import _post_norm as shared
from keel.hugging_face.family import Family, renamed
from keel.hugging_face.names import Name, layer

CONFIG_KEYS = {name: theirs for name, theirs in shared.CONFIG_KEYS.items() if name != "segments"}
BUCKETS = 32  # which transformers computes with, whatever config.json says


def config_to(config: MpnetConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump() | {"positions": FIRST_POSITION + config.positions}
    return {
        "model_type": "mpnet",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "relative_attention_num_buckets": BUCKETS,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> MpnetConfig:
    buckets = published.get("relative_attention_num_buckets", BUCKETS)
    if buckets != BUCKETS:
        raise ValueError(f"\nrelative_attention_num_buckets is {buckets}; Keel and transformers compute with {BUCKETS}")
    given = {"norm_epsilon": 1e-12} | renamed(published, CONFIG_KEYS)
    given["positions"] = given.get("positions", 512) - FIRST_POSITION
    pooled = {"mpnet.pooler.dense.weight", "classifier.dense.weight"} & tensor_names
    return MpnetConfig(**given, pooler=bool(pooled))


def names(config: MpnetConfig, task: str | None) -> list[Name]:
    embeddings = "mpnet.embeddings"
    pooler = "classifier.dense" if task in ("classify", "regress") else "mpnet.pooler.dense"
    found = [
        Name("backbone.embeddings.tokens.weight", f"{embeddings}.word_embeddings.weight"),
        Name("backbone.embeddings.positions.weight", f"{embeddings}.position_embeddings.weight"),
        *layer("backbone.embeddings.norm", f"{embeddings}.LayerNorm"),
        Name("backbone.relative.table.weight", "mpnet.encoder.relative_attention_bias.weight"),
        *layer("backbone.pooler.dense", pooler),
        *layer("objectives.masked_lm.head.dense", "lm_head.dense"),
        *layer("objectives.masked_lm.head.norm", "lm_head.layer_norm"),
        Name("objectives.masked_lm.head.bias", "lm_head.bias"),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"mpnet.encoder.layer.{i}"
        found += shared.projections(config, f"{ours}.attention.qkv", f"{theirs}.attention.attn", ("q", "k", "v"))
        found += layer(f"{ours}.attention.out", f"{theirs}.attention.attn.o")
        found += layer(f"{ours}.attention_norm", f"{theirs}.attention.LayerNorm")
        found += layer(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        found += layer(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        found += layer(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return found


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return shared.tidy_encoder(tensors, "mpnet", [("lm_head.decoder", "lm_head.bias")])


CLASSES: list[tuple[str, set[str]]] = [
    ("MPNetForMaskedLM", {"masked_lm"}),
    ("MPNetModel", {"pooler"}),
    ("MPNetModel", set()),
]

FAMILY = Family(
    "mpnet",
    config_to,
    config_from,
    names,
    tidy,
    CLASSES,
    shared.task_heads("MPNet", "classifier.out_proj"),
    own_keys=shared.OWN_KEYS,
    computes_same=shared.is_scaled,
)
