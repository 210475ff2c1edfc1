"""GPT-2's folders: `config.json` keys, tensor names and classes of `transformers`.

The weights of linear layers are transposed in these folders."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from keel.backbones.gpt import GptConfig
from keel.hugging_face.family import Family, drop_tied, renamed
from keel.hugging_face.names import Name, layer

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "feed_forward": "n_inner",
    "positions": "n_positions",
    "activation": "activation_function",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "norm_epsilon": "layer_norm_epsilon",
    "init_std": "initializer_range",
}


def config_to(config: GptConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "gpt2",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "embd_pdrop": config.dropout,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def config_from(published: dict[str, Any], tensor_names: set[str]) -> GptConfig:
    if not published.get("scale_attn_weights", True) or published.get("scale_attn_by_inverse_layer_idx"):
        raise ValueError("\nits attention scaling is not supported (scale_attn_...)")
    return GptConfig(**renamed(published, CONFIG_KEYS))


def names(config: GptConfig, task: str | None) -> list[Name]:
    names = [
        Name("backbone.tokens.weight", "transformer.wte.weight"),
        Name("backbone.positions.weight", "transformer.wpe.weight"),
        *layer("backbone.norm", "transformer.ln_f"),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"transformer.h.{i}"
        names += layer(f"{ours}.attention_norm", f"{theirs}.ln_1")
        names += layer(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", transposed=True)
        names += layer(f"{ours}.attention.out", f"{theirs}.attn.c_proj", transposed=True)
        names += layer(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        names += layer(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", transposed=True)
        names += layer(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", transposed=True)
    return names


def tidy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    current: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        name = f"transformer.{name}" if name.split(".")[0] in ("wte", "wpe", "h", "ln_f") else name
        if not name.endswith((".attn.bias", ".attn.masked_bias")):  # the causal mask, saved by old versions
            current[name] = tensor
    return drop_tied(current, "transformer.wte.weight", [("lm_head", None)])


HEADS = {
    "tag": ("GPT2ForTokenClassification", "classifier"),
    "answer": ("GPT2ForQuestionAnswering", "qa_outputs"),
}
CLASSES: list[tuple[str, set[str]]] = [("GPT2LMHeadModel", {"causal_lm"}), ("GPT2Model", set())]

FAMILY = Family("gpt2", config_to, config_from, names, tidy, CLASSES, HEADS)
