"""BERT (Devlin et al. 2018): token + segment + learned position embeddings, then post-norm Transformer blocks.

In: a flat batch. Out: one vector per token. The pooler (dense + tanh on [CLS]) belongs to the encoder, as in the
published checkpoints, because later tasks start from it.

Notable choices
- Learned positions start as a sinusoid of the other embeddings' size (`position_start`), and the first layer's heads
  start out looking at the tokens next to theirs (`attention_start`), instead of noise. Every small BERT otherwise sits
  on a plateau until it has found its neighbours; this way it begins there and trains about four times as fast
  (docs/notebook.md). Both are starting values only: every weight is learnt, and the model remains BERT.
- Published names stay in the table at the end of this file; `qkv` is three published tensors.

Shapes: T tokens, R rows, W width.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.checkpoint import Name, Published
from keel.interfaces import Asked, Backbone, Batch, Encoding
from keel.layers.activations import ACTIVATIONS
from keel.layers.attention import SelfAttention
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.start import start_weights

QUICK = (2.6, 0.5)  # radians a position, of the quickest and the slowest wave that heads start out looking for
SLOWEST = 1e-4
LOOKING = 8  # heads that start out looking at neighbours; those beyond start as noise
SIGNAL = 24.0  # how much the neighbour stands out at the start: its attention logit is about a third of this


class BertConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["bert"] = "bert"
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int = Field(12, ge=1)
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    feed_forward: int = Field(3072, ge=1)
    positions: int = Field(512, ge=4)
    segments: int = Field(2, ge=1)
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    norm_epsilon: float = Field(1e-12, gt=0)
    start_deviation: float = Field(0.02, gt=0)
    position_start: Literal["sinusoid", "noise"] = "sinusoid"
    attention_start: Literal["neighbours", "noise"] = "neighbours"
    pooler: bool = True

    @model_validator(mode="after")
    def _heads_divide_width(self) -> BertConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class Bert(Backbone):
    Config = BertConfig
    tokens: nn.Embedding

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.longest = config.positions
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        x = self.tokens(batch.ids) + self.segments(batch.segments) + self.positions(batch.positions)
        x = fill_up(self.dropout(self.norm(x)))
        layers = [x]
        asked = None if every_layer else batch.asked
        for block in self.blocks:
            x = block(x, batch.lengths, asked if block is self.blocks[-1] else None)
            layers.append(x)
        tokens = len(batch.ids)
        if asked is not None:
            return Encoding(x.new_zeros(tokens, self.width).index_copy(0, asked.places, x))
        return Encoding(x[:tokens], tuple(layer[:tokens] for layer in layers) if every_layer else ())

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the rows' [CLS] vectors through the pooler."""
        assert self.pooler is not None, "this backbone was built without a pooler"
        return torch.tanh(self.pooler(vectors[batch.starts]))

    def token_table(self) -> Tensor:
        return self.tokens.weight

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        start_weights(self, self.config.start_deviation, generator)
        if self.config.position_start == "sinusoid":
            wave = sinusoid(self.config.positions, self.config.width, self.config.heads)
            self.positions.weight.copy_(wave * (self.config.start_deviation / wave.std()))
            if self.config.attention_start == "neighbours":
                look_at_neighbours(self.blocks[0].attention)  # type: ignore[arg-type]


class Block(nn.Module):
    """x = norm(x + attention(x)); x = norm(x + feed_forward(x))."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.grow = nn.Linear(config.width, config.feed_forward)
        self.shrink = nn.Linear(config.feed_forward, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, lengths: tuple[int, ...], asked: Asked | None = None) -> Tensor:
        """`asked`: the places whose vectors are wanted (all are looked at); None: all."""
        mixed = self.attention(x, lengths, asked)
        x = self.attention_norm((x if asked is None else x[asked.places]) + self.dropout(mixed))
        return self.norm(x + self.dropout(self.shrink(self.activation(self.grow(x)))))


def sinusoid(positions: int, width: int, heads: int) -> Tensor:
    """(positions, width): sin and cos of position x rate in turns (Vaswani et al. 2017, with other rates)."""
    angles = torch.arange(positions)[:, None] * rates(width, heads)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


def rates(width: int, heads: int) -> Tensor:
    """Radians a position: one head's worth of quick waves, then ever slower ones.

    The quick ones are even steps between QUICK. Their sum is large at distance 0 and nearly nothing at 1, so a head
    that looks for them finds one place. The published rates are too slow for that in narrow models.
    """
    waves = (width + 1) // 2
    count = min(width // heads // 2, waves)
    fastest, slowest = QUICK
    slower = torch.linspace(0, 1, waves - count + 1)[1:] * math.log(slowest / SLOWEST)
    return torch.cat([torch.linspace(fastest, slowest, count), slowest * torch.exp(-slower)])


@torch.no_grad()
def look_at_neighbours(attention: SelfAttention) -> None:
    """Query and key weights with which a head attends to the token a fixed shift away: -1, +1, -2, +2, ...

    A head's keys are the quick waves of the position, its queries the same waves turned by rate x shift, so that
    their product is largest where the key stands at the query's position + shift. What was drawn stays in a tenth of
    its size, so that no two heads are exactly alike.
    """
    width = attention.out.weight.shape[0]
    size = width // attention.heads
    even = torch.arange(0, size - 1, 2)
    strength = math.sqrt(SIGNAL / math.sqrt(size))
    query, key, _ = attention.qkv.weight.view(3, attention.heads, size, width)
    for head in range(min(attention.heads, LOOKING)):
        shift = (head // 2 + 1) * (1 if head % 2 else -1)
        angle = rates(width, attention.heads)[: len(even)] * shift
        turn, waves = torch.zeros(size, width), torch.zeros(size, width)
        turn[even, even] = turn[even + 1, even + 1] = angle.cos()
        turn[even, even + 1], turn[even + 1, even] = angle.sin(), -angle.sin()
        waves[even, even] = waves[even + 1, even + 1] = torch.ones(len(even))
        query[head] = 0.1 * query[head] + strength * turn
        key[head] = 0.1 * key[head] + strength * waves


# The border: Hugging Face's `config.json` keys and tensor names.

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
    "start_deviation": "initializer_range",
}


def to_published(config: BertConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "bert",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "pad_token_id": pad,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> BertConfig:
    given = {name: published[theirs] for name, theirs in CONFIG_KEYS.items() if theirs in published}
    given["activation"] = {"gelu_pytorch_tanh": "gelu_new"}.get(
        given.get("activation", "gelu"), given.get("activation")
    )
    return BertConfig(**given, pooler="bert.pooler.dense.weight" in tensor_names)


def published_names(config: BertConfig) -> list[Name]:
    """Ours, theirs; head tensors stand under the objective that owns them."""
    names = [
        Name("backbone.tokens.weight", "bert.embeddings.word_embeddings.weight"),
        Name("backbone.positions.weight", "bert.embeddings.position_embeddings.weight"),
        Name("backbone.segments.weight", "bert.embeddings.token_type_embeddings.weight"),
        *_pair("backbone.norm", "bert.embeddings.LayerNorm"),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"bert.encoder.layer.{i}"
        for part, role in enumerate(("query", "key", "value")):
            names += _pair(f"{ours}.attention.qkv", f"{theirs}.attention.self.{role}", (part, 3))
        names += _pair(f"{ours}.attention.out", f"{theirs}.attention.output.dense")
        names += _pair(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        names += _pair(f"{ours}.grow", f"{theirs}.intermediate.dense")
        names += _pair(f"{ours}.shrink", f"{theirs}.output.dense")
        names += _pair(f"{ours}.norm", f"{theirs}.output.LayerNorm")
    if config.pooler:
        names += _pair("backbone.pooler", "bert.pooler.dense")
    names += _pair("objectives.masked_lm.dense", "cls.predictions.transform.dense")
    names += _pair("objectives.masked_lm.norm", "cls.predictions.transform.LayerNorm")
    names += [Name("objectives.masked_lm.bias", "cls.predictions.bias")]
    names += _pair("objectives.next_sentence.classifier", "cls.seq_relationship")
    return names


def _pair(ours: str, theirs: str, part: tuple[int, int] | None = None) -> list[Name]:
    return [Name(f"{ours}.{kind}", f"{theirs}.{kind}", part) for kind in ("weight", "bias")]


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Older and partial folders, brought to the names of BertForPreTraining."""
    tidy: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name.split(".")[0] in ("embeddings", "encoder", "pooler"):
            name = f"bert.{name}"
        if name != "bert.embeddings.position_ids":  # a counter that old versions saved
            tidy[name] = tensor
    table = tidy.get("bert.embeddings.word_embeddings.weight")
    for alias, original in (
        ("cls.predictions.decoder.weight", table),
        ("cls.predictions.decoder.bias", tidy.get("cls.predictions.bias")),
    ):
        if alias in tidy and original is not None and torch.equal(tidy[alias], original):
            del tidy[alias]
    return tidy


HEADS = {
    "classify": ("BertForSequenceClassification", "classifier"),
    "regress": ("BertForSequenceClassification", "classifier"),
    "tag": ("BertForTokenClassification", "classifier"),
    "answer": ("BertForQuestionAnswering", "qa_outputs"),
    "choose": ("BertForMultipleChoice", "classifier"),
}


def architecture(objectives: set[str]) -> str:
    """The class that has these heads."""
    for kind in objectives & set(HEADS):
        return HEADS[kind][0]
    if not objectives & {"masked_lm", "next_sentence"}:
        return "BertModel"
    if "next_sentence" not in objectives:
        return "BertForMaskedLM"
    return "BertForPreTraining" if "masked_lm" in objectives else "BertForNextSentencePrediction"


Bert.published = Published("bert", to_published, from_published, published_names, tidy_published, architecture, HEADS)
