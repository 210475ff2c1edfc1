"""A left-to-right Transformer (Radford et al. 2018, 2019): each token sees what came before it, and norms come first.

In: a flat batch. Out: one vector per token, from which the next one is guessed. There are no segments; a row is known
by its last token, the only one that has seen all of it.

Notable choices
- Published checkpoints store linear layers transposed; the name table says so.

Shapes: T tokens, W width.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.backbones.bert import look_at_neighbours, renamed, sinusoid
from keel.checkpoint import Name, Published
from keel.interfaces import Asked, Backbone, Batch, Encoding
from keel.layers.activations import ACTIVATIONS
from keel.layers.attention import SelfAttention
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.look import LEFT
from keel.layers.start import shrink_sums, start_weights


class GptConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["gpt"] = "gpt"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int = Field(12, ge=1)
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    feed_forward: int | None = Field(None, ge=1, description="null: four times the width")
    positions: int = Field(1024, ge=4)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu_new"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-5, gt=0)
    start_deviation: float = Field(0.02, gt=0)
    position_start: Literal["sinusoid", "noise"] = "sinusoid"
    attention_start: Literal["neighbours", "noise"] = "neighbours"
    pooler: bool = False

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class Gpt(Backbone):
    Config = GptConfig
    tokens: nn.Embedding
    causal = True
    head = "plain"

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.longest = config.positions
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        x = fill_up(self.dropout(self.tokens(batch.ids) + self.positions(batch.positions)))
        layers = [x]
        asked = None if every_layer else batch.asked
        for block in self.blocks:
            x = block(x, batch.lengths, asked if block is self.blocks[-1] else None)
            layers.append(x)
        layers[-1] = self.norm(x)
        return Encoding.of(batch, layers, asked, every_layer)

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the rows' last vectors, through the pooler where a task made one."""
        last = self.row_vectors(vectors, batch)
        return last if self.pooler is None else torch.tanh(self.pooler(last))

    def token_table(self) -> Tensor:
        return self.tokens.weight

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """Positions and the first layer's heads start as BERT's do here (`bert.py`)."""
        config = self.config
        start_weights(self, config.start_deviation, generator)
        if config.position_start == "sinusoid":
            wave = sinusoid(config.positions, config.width, config.width // config.heads)
            self.positions.weight.copy_(wave * (config.start_deviation / wave.std()))
            if config.attention_start == "neighbours":
                look_at_neighbours(self.blocks[0].attention, ahead=False)  # type: ignore[arg-type]
        shrink_sums(self.blocks)


class Block(nn.Module):
    """x = x + attention(norm(x)); x = x + feed_forward(norm(x))."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        inner = config.feed_forward or 4 * config.width
        self.attention_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout, look=LEFT)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.grow = nn.Linear(config.width, inner)
        self.shrink = nn.Linear(inner, config.width)
        self.dropout = Dropout(config.dropout)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None) -> Tensor:
        mixed = self.attention(self.attention_norm(x), lengths, asked)
        x = (x if asked is None else x[asked.places]) + self.dropout(mixed)
        result: Tensor = x + self.dropout(self.shrink(self.activation(self.grow(self.norm(x)))))
        return result


# The border: Hugging Face's `config.json` keys and tensor names.

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
    "start_deviation": "initializer_range",
}


def to_published(config: GptConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "gpt2",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "embd_pdrop": config.dropout,
        "pad_token_id": pad,
        "tie_word_embeddings": True,
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> GptConfig:
    if not published.get("scale_attn_weights", True) or published.get("scale_attn_by_inverse_layer_idx"):
        raise ValueError("\nits attention is scaled in another way than Keel knows (scale_attn_...)")
    return GptConfig(**renamed(published, CONFIG_KEYS))


def published_names(config: GptConfig, kind: str | None) -> list[Name]:
    names = [
        Name("backbone.tokens.weight", "transformer.wte.weight"),
        Name("backbone.positions.weight", "transformer.wpe.weight"),
        *_turned("backbone.norm", "transformer.ln_f", turned=False),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"transformer.h.{i}"
        names += _turned(f"{ours}.attention_norm", f"{theirs}.ln_1", turned=False)
        names += _turned(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn")
        names += _turned(f"{ours}.attention.out", f"{theirs}.attn.c_proj")
        names += _turned(f"{ours}.norm", f"{theirs}.ln_2", turned=False)
        names += _turned(f"{ours}.grow", f"{theirs}.mlp.c_fc")
        names += _turned(f"{ours}.shrink", f"{theirs}.mlp.c_proj")
    return names


def _turned(ours: str, theirs: str, turned: bool = True) -> list[Name]:
    return [Name(f"{ours}.weight", f"{theirs}.weight", turned=turned), Name(f"{ours}.bias", f"{theirs}.bias")]


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    tidy: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        name = f"transformer.{name}" if name.split(".")[0] in ("wte", "wpe", "h", "ln_f") else name
        if not name.endswith((".attn.bias", ".attn.masked_bias")):  # the mask, which old versions saved
            tidy[name] = tensor
    table = tidy.get("transformer.wte.weight")
    if "lm_head.weight" in tidy and table is not None and torch.equal(tidy["lm_head.weight"], table):
        del tidy["lm_head.weight"]
    return tidy


HEADS = {
    "tag": ("GPT2ForTokenClassification", "classifier"),
    "answer": ("GPT2ForQuestionAnswering", "qa_outputs"),
}


CLASSES: list[tuple[str, set[str]]] = [("GPT2LMHeadModel", {"left_to_right"}), ("GPT2Model", set())]


Gpt.published = Published("gpt2", to_published, from_published, published_names, tidy_published, CLASSES, HEADS)
