"""A modern encoder, as ModernBERT has it (Warner et al. 2024): what Transformers learnt since BERT, in both directions.

Norms come first (Xiong et al. 2020), positions are rotations of queries and keys (Su et al. 2021), the feed-forward is
gated (Shazeer 2020), two layers of three look only at their neighbourhood, and there are no biases. Positions end
nowhere in particular: rows of 8,192 tokens cost what they look at.

Notable choices
- The first layer has no norm before its attention: the embeddings' own norm stands right before it.
- The pooler is the published prediction head (dense, gelu, norm) on [CLS].
- As BERT's, the first layer's heads start out looking at their neighbours (docs/decisions/0011). Rotations know
  distances, but only a query and a key that are the same for all tokens can ask for one; without biases these need a
  coordinate that is the same for all tokens. `attention_start: noise` gives the published start.

Shapes: T tokens, W width.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.backbones.bert import renamed
from keel.checkpoint import Name, Published
from keel.interfaces import Asked, Backbone, Batch, Encoding
from keel.layers.activations import ACTIVATIONS
from keel.layers.aim import beside
from keel.layers.attention import SelfAttention
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.look import EVERYWHERE, Look
from keel.layers.rotary import Turn
from keel.layers.start import shrink_sums, start_weights

CONSTANT = 8.0  # the coordinate that is the same for all tokens, in deviations of the others
SIGNAL = 16.0  # the attention logit of the neighbour at the start


class ModernConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["modern"] = "modern"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int = Field(22, ge=1)
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    feed_forward: int = Field(1152, ge=1)
    positions: int = Field(8192, ge=4, description="tokens of the longest row it is meant for")
    neighbourhood: int = Field(128, ge=2, description="tokens that a local layer sees, half of them on either side")
    global_every: int = Field(3, ge=1, description="of so many layers the first sees the whole row")
    global_base: float = Field(160_000.0, gt=1)
    local_base: float = Field(10_000.0, gt=1)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    start_deviation: float = Field(0.02, gt=0)
    attention_start: Literal["neighbours", "noise"] = "neighbours"
    pooler: bool = False

    @model_validator(mode="after")
    def _heads_are_even(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is not an even multiple of heads {self.heads}")
        return self

    def is_global(self, layer: int) -> bool:
        return layer % self.global_every == 0


class Modern(Backbone):
    Config = ModernConfig
    tokens: nn.Embedding
    head = "dense without biases"
    head_activation = "gelu"

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.longest = config.positions
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.norm = _norm(config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, number) for number in range(config.layers))
        self.last_norm = _norm(config)
        self.pooler = Pooler(config) if config.pooler else None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        x = fill_up(self.dropout(self.norm(self.tokens(batch.ids))))
        size, config = self.width // self.config.heads, self.config
        near, far = (Turn.of(batch.positions, size, base, len(x)) for base in (config.local_base, config.global_base))
        layers = [x]
        asked = None if every_layer else batch.asked
        for number, block in enumerate(self.blocks):
            turn = far if config.is_global(number) else near
            x = block(x, batch.lengths, turn, asked if block is self.blocks[-1] else None)
            layers.append(x)
        layers[-1] = self.last_norm(x)
        return Encoding.of(batch, layers, asked, every_layer)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the rows' [CLS] vectors through the prediction head."""
        assert self.pooler is not None, "this backbone was built without a pooler"
        pooled: Tensor = self.pooler(self.row_vectors(vectors, batch))
        return pooled

    def token_table(self) -> Tensor:
        return self.tokens.weight

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        start_weights(self, self.config.start_deviation, generator)
        shrink_sums(self.blocks)
        if self.config.attention_start == "neighbours":
            self.tokens.weight[:, 0] = CONSTANT * self.config.start_deviation
            _look_at_neighbours(self.blocks[0].attention, self.config.global_base)  # type: ignore[arg-type]


class Block(nn.Module):
    """x = x + attention(norm(x)); x = x + shrink(activation(a) x b), where a and b are halves of grow(norm(x))."""

    def __init__(self, config: ModernConfig, number: int) -> None:
        super().__init__()
        half = config.neighbourhood // 2
        look = EVERYWHERE if config.is_global(number) else Look(half, half)
        self.attention_norm = _norm(config) if number else nn.Identity()
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout, bias=False, look=look)
        self.norm = _norm(config)
        self.grow = nn.Linear(config.width, 2 * config.feed_forward, bias=False)
        self.shrink = nn.Linear(config.feed_forward, config.width, bias=False)
        self.dropout = Dropout(config.dropout)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, lengths: tuple[int, ...], turn: Turn, asked: Asked | None = None) -> Tensor:
        mixed = self.attention(self.attention_norm(x), lengths, asked, turn)
        x = (x if asked is None else x[asked.places]) + self.dropout(mixed)
        value, gate = self.grow(self.norm(x)).chunk(2, 1)
        result: Tensor = x + self.shrink(self.dropout(self.activation(value) * gate))
        return result


class Pooler(nn.Module):
    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width, bias=False)
        self.norm = _norm(config)
        self.activation = ACTIVATIONS["gelu"]

    def forward(self, vectors: Tensor) -> Tensor:
        result: Tensor = self.norm(self.activation(self.dense(vectors)))
        return result


@torch.no_grad()
def _look_at_neighbours(attention: SelfAttention, base: float) -> None:
    """Query and key weights for the constant coordinate with which a head attends to the token a fixed shift away.

    The product of both is the sum over pairs of weight x cos(rate x (distance - shift)), largest at the shift. Weights
    are the rates themselves: the quick waves tell neighbours apart, the slow ones what is far.
    """
    width = attention.out.weight.shape[0]
    size = width // attention.heads
    rates = base ** (-torch.arange(0, size, 2) / size)
    constant = CONSTANT / math.sqrt(1 + CONSTANT**2 / width)  # as the embeddings' norm leaves it
    strength = (SIGNAL * math.sqrt(size) * rates / rates.sum()).sqrt() / constant
    query, key, _ = attention.qkv.weight.view(3, attention.heads, size, width)
    for head, shift in enumerate(beside(attention.heads)):
        query[head, :, 0] = torch.cat([strength * (rates * shift).cos(), strength * (rates * shift).sin()])
        key[head, :, 0] = torch.cat([strength, torch.zeros_like(strength)])


def _norm(config: ModernConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, eps=config.norm_epsilon, bias=False)


# The border: Hugging Face's `config.json` keys and tensor names.

CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "neighbourhood": "local_attention",
    "activation": "hidden_activation",
    "dropout": "mlp_dropout",
    "attention_dropout": "attention_dropout",
    "norm_epsilon": "norm_eps",
    "start_deviation": "initializer_range",
}
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")


def to_published(config: ModernConfig, pad: int) -> dict[str, Any]:
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
            "full_attention": {"rope_type": "default", "rope_theta": config.global_base},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_base},
        },
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_activation": "gelu",
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> ModernConfig:
    given = renamed(published, CONFIG_KEYS)
    ropes = published.get("rope_parameters") or {}
    far, near = (ropes.get(kind) or {} for kind in ("full_attention", "sliding_attention"))
    _refuse(published, tensor_names, [far, near])
    kinds = published.get("layer_types")
    every = _every(kinds) if kinds else published.get("global_attn_every_n_layers", 3)
    return ModernConfig(
        **given,
        global_every=every,
        global_base=far.get("rope_theta", published.get("global_rope_theta", 160_000.0)),
        local_base=near.get("rope_theta", published.get("local_rope_theta", 10_000.0)),
        pooler="classifier.weight" in tensor_names,
    )


def _refuse(published: dict[str, Any], tensor_names: set[str], ropes: list[dict[str, Any]]) -> None:
    """What would be computed otherwise there."""
    for key in BIASES:
        if published.get(key):
            raise ValueError(f"\n{key} is true; Keel knows this family without biases")
    if any(rope.get("rope_type", "default") != "default" for rope in ropes):
        raise ValueError("\nrope_type is not default; Keel knows no other")
    if published.get("classifier_activation", "gelu") != "gelu":
        raise ValueError("\nclassifier_activation is not gelu; Keel knows no other for this family's heads")
    if published.get("classifier_pooling", "cls") != "cls" and "classifier.weight" in tensor_names:
        raise ValueError(
            "\nclassifier_pooling is not cls; Keel knows this family's classifiers on the first token only"
        )


def _every(kinds: list[str]) -> int:
    """How often a layer sees everything, from the list of all layers."""
    later = [number for number, kind in enumerate(kinds) if kind == "full_attention" and number]
    every = later[0] if later else max(len(kinds), 2)
    if any((kind == "full_attention") != (number % every == 0) for number, kind in enumerate(kinds)):
        raise ValueError("\nlayer_types is irregular; Keel knows every n-th layer global")
    return every


def published_names(config: ModernConfig, kind: str | None) -> list[Name]:
    names = [
        Name("backbone.tokens.weight", "model.embeddings.tok_embeddings.weight"),
        Name("backbone.norm.weight", "model.embeddings.norm.weight"),
        Name("backbone.last_norm.weight", "model.final_norm.weight"),
        Name("objectives.masked_lm.head.bias", "decoder.bias"),
    ]
    owner = "objectives.masked_lm.head" if kind is None else "backbone.pooler"
    names += [Name(f"{owner}.{part}.weight", f"head.{part}.weight") for part in ("dense", "norm")]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"model.layers.{i}"
        parts = {
            "attention_norm": "attn_norm",
            "attention.qkv": "attn.Wqkv",
            "attention.out": "attn.Wo",
            "norm": "mlp_norm",
            "grow": "mlp.Wi",
            "shrink": "mlp.Wo",
        }
        names += [Name(f"{ours}.{a}.weight", f"{theirs}.{b}.weight") for a, b in parts.items() if i or b != "attn_norm"]
    return names


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    tidy = {
        f"model.{name}" if name.split(".")[0] in ("embeddings", "layers", "final_norm") else name: tensor
        for name, tensor in tensors.items()
    }
    table = tidy.get("model.embeddings.tok_embeddings.weight")
    if "decoder.weight" in tidy and table is not None and torch.equal(tidy["decoder.weight"], table):
        del tidy["decoder.weight"]
    return tidy


HEADS = {
    "classify": ("ModernBertForSequenceClassification", "classifier"),
    "regress": ("ModernBertForSequenceClassification", "classifier"),
    "choose": ("ModernBertForMultipleChoice", "classifier"),
}


CLASSES: list[tuple[str, set[str]]] = [("ModernBertForMaskedLM", {"masked_lm"}), ("ModernBertModel", set())]


Modern.published = Published(
    "modernbert", to_published, from_published, published_names, tidy_published, CLASSES, HEADS
)
