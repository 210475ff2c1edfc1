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
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from keel.checkpoint import Name, Published
from keel.interfaces import Backbone, Batch, Encoding
from keel.layers.aim import aim, behind, beside
from keel.layers.attention import SelfAttention
from keel.layers.block import SHARED, AttentionShape, Block
from keel.layers.dropout import Dropout
from keel.layers.filler import fill_up
from keel.layers.start import start_weights

QUICK = (2.6, 0.5)  # radians a position, of the quickest and the slowest wave that heads start out looking for
SLOWEST = 1e-4
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
    learn_positions: bool = Field(True, description="false: positions stay as they start")
    attention: AttentionShape = AttentionShape()
    pooler: bool = True

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    @property
    def embedding(self) -> int:
        """The size of an embedding; that of all other vectors, unless a descendant says otherwise."""
        return self.width

    @property
    def first_position(self) -> int:
        """The row of the position table where a text begins."""
        return 0


class Bert(Backbone):
    Config = BertConfig
    tokens: nn.Embedding

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is settled before the model is built"
        self.config = config
        self.width = config.width
        self.longest = config.positions
        self.causal = config.attention.look == "left"
        self.tokens = nn.Embedding(config.vocabulary, config.embedding)
        self.positions = nn.Embedding(config.first_position + config.positions, config.embedding)
        self.positions.weight.requires_grad_(config.learn_positions)
        self.segments = nn.Embedding(config.segments, config.embedding)
        self.norm = nn.LayerNorm(config.embedding, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.blocks = self._make_blocks()
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None

    def _make_blocks(self) -> nn.ModuleList:
        return nn.ModuleList(Block(self.config, self.config.attention) for _ in range(self.config.layers))

    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        x = fill_up(self.embed(batch))
        layers = [x]
        asked = None if every_layer else batch.asked
        for block in self.blocks:
            x = block(x, batch.lengths, asked if block is self.blocks[-1] else None)
            layers.append(x)
        return Encoding.of(batch, layers, asked, every_layer)

    def embed(self, batch: Batch) -> Tensor:
        """(T, E): what a token is, in which segment and where."""
        x = self.tokens(batch.ids) + self.segments(batch.segments)
        x = x + self.positions(batch.positions + self.config.first_position)
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the rows' [CLS] vectors through the pooler."""
        assert self.pooler is not None, "this backbone was built without a pooler"
        return torch.tanh(self.pooler(self.row_vectors(vectors, batch)))

    def token_table(self) -> Tensor:
        return self.tokens.weight

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        config = self.config
        start_weights(self, config.start_deviation, generator)
        if config.position_start == "sinusoid":
            wave = sinusoid(config.positions, config.embedding, config.width // config.heads)
            self.positions.weight[config.first_position :] = wave * (config.start_deviation / wave.std())
            first = self._first_attention()
            if first is not None and config.attention_start == "neighbours" and config.attention.shared == "none":
                look_at_neighbours(first, ahead=not self.causal)

    def _first_attention(self) -> SelfAttention | None:
        """Of a first layer that no other layer is."""
        attention: SelfAttention = self.blocks[0].attending.attention  # type: ignore[union-attr,assignment]
        return attention


def sinusoid(positions: int, width: int, size: int) -> Tensor:
    """(positions, width): sin and cos of position x rate in turns (Vaswani et al. 2017, with other rates)."""
    angles = torch.arange(positions)[:, None] * rates(width, size)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


def rates(width: int, size: int) -> Tensor:
    """Radians a position: quick waves for a head of this size, then ever slower ones.

    The quick ones are even steps between QUICK. Their sum is large at distance 0 and nearly nothing at 1, so a head
    that looks for them finds one place. The published rates are too slow for that in narrow models.
    """
    waves = (width + 1) // 2
    count = min(size // 2, waves)
    fastest, slowest = QUICK
    slower = torch.linspace(0, 1, waves - count + 1)[1:] * math.log(slowest / SLOWEST)
    return torch.cat([torch.linspace(fastest, slowest, count), slowest * torch.exp(-slower)])


def look_at_neighbours(attention: SelfAttention, ahead: bool = True) -> None:
    """Query and key weights with which a head attends to the token a fixed shift away, by the quick waves."""
    width = attention.out.weight.shape[0]
    query, key, _ = attention.qkv.weight.detach().chunk(3)
    shifts = (beside if ahead else behind)(attention.heads)
    aim(query, key, attention.heads, shifts, rates(width, width // attention.heads), SIGNAL)


@torch.no_grad()
def pass_through(layer: nn.Linear) -> None:
    """A layer that starts by passing its input on, as far as that fits; what was drawn stays in a tenth of its size."""
    shared = min(layer.weight.shape)
    layer.weight[:shared] *= 0.1
    layer.weight += torch.eye(*layer.weight.shape)


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
ALIASES = {"gelu_pytorch_tanh": "gelu_new"}


def to_published(config: BertConfig, pad: int) -> dict[str, Any]:
    ours = config.model_dump()
    return {
        "model_type": "bert",
        **{theirs: ours[name] for name, theirs in CONFIG_KEYS.items()},
        "pad_token_id": pad,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "is_decoder": config.attention.look == "left",
    }


def from_published(published: dict[str, Any], tensor_names: set[str]) -> BertConfig:
    look = {"look": "left"} if published.get("is_decoder") else {}
    given = renamed(published, CONFIG_KEYS)
    return BertConfig(**given, attention=look, pooler="bert.pooler.dense.weight" in tensor_names)


def renamed(published: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
    """The published values under our names, those that are there."""
    given = {name: published[theirs] for name, theirs in keys.items() if theirs in published}
    if "activation" in given:
        given["activation"] = ALIASES.get(given["activation"], given["activation"])
    return given


def published_names(config: BertConfig, kind: str | None) -> list[Name]:
    """Ours, theirs; head tensors stand under the objective that owns them."""
    head = "objectives.masked_lm.head" if config.attention.look == "both" else "objectives.left_to_right.head"
    return [
        *encoder_names(config, "bert"),
        *pair("backbone.pooler", "bert.pooler.dense"),
        *pair(f"{head}.dense", "cls.predictions.transform.dense"),
        *pair(f"{head}.norm", "cls.predictions.transform.LayerNorm"),
        Name(f"{head}.bias", "cls.predictions.bias"),
        *pair("objectives.next_sentence.classifier", "cls.seq_relationship"),
    ]


def encoder_names(config: BertConfig, prefix: str) -> list[Name]:
    """Embeddings and blocks, which some descendants have under the same names behind another prefix."""
    names = [
        Name("backbone.tokens.weight", f"{prefix}.embeddings.word_embeddings.weight"),
        Name("backbone.positions.weight", f"{prefix}.embeddings.position_embeddings.weight"),
        Name("backbone.segments.weight", f"{prefix}.embeddings.token_type_embeddings.weight"),
        *pair("backbone.norm", f"{prefix}.embeddings.LayerNorm"),
    ]
    for i in range(config.layers):
        ours, theirs = f"backbone.blocks.{i}", f"{prefix}.encoder.layer.{i}"
        names += projections(config, f"{ours}.attending.attention.qkv", f"{theirs}.attention.self")
        names += pair(f"{ours}.attending.attention.out", f"{theirs}.attention.output.dense")
        names += pair(f"{ours}.attending.norm", f"{theirs}.attention.output.LayerNorm")
        names += pair(f"{ours}.feed.grow", f"{theirs}.intermediate.dense")
        names += pair(f"{ours}.feed.shrink", f"{theirs}.output.dense")
        names += pair(f"{ours}.feed.norm", f"{theirs}.output.LayerNorm")
    return names


def projections(config: BertConfig, ours: str, theirs: str) -> list[Name]:
    """Query, key and value, which they store apart whether or not they are the same."""
    roles = SHARED[config.attention.shared]
    parts = zip(("query", "key", "value"), roles, strict=True)
    return [name for role, part in parts for name in pair(ours, f"{theirs}.{role}", (part, max(roles) + 1))]


def pair(ours: str, theirs: str, part: tuple[int, int] = (0, 1)) -> list[Name]:
    return [Name(f"{ours}.{kind}", f"{theirs}.{kind}", part) for kind in ("weight", "bias")]


def tidy_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Older and partial folders, brought to the names of BertForPreTraining."""
    tidy = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        tidy[name] = tensor
    return tidy_encoder(tidy, "bert", [("cls.predictions.decoder", "cls.predictions.bias")])


def tidy_encoder(tensors: dict[str, Tensor], prefix: str, outputs: list[tuple[str, str]]) -> dict[str, Tensor]:
    """Encoders saved alone get their prefix; counters, and output layers that repeat the table, are dropped.

    `outputs`: an output layer that is tied to the table, and the bias it is tied to."""
    tidy: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.split(".")[0] in ("embeddings", "encoder", "pooler", "embeddings_project"):
            name = f"{prefix}.{name}"
        if not name.endswith("embeddings.position_ids"):  # a counter that old versions saved
            tidy[name] = tensor
    table = tidy.get(f"{prefix}.embeddings.word_embeddings.weight")
    for layer, bias in outputs:
        for alias, original in ((f"{layer}.weight", table), (f"{layer}.bias", tidy.get(bias))):
            if alias in tidy and alias != bias and original is not None and torch.equal(tidy[alias], original):
                del tidy[alias]
    return tidy


HEADS = {
    "classify": ("BertForSequenceClassification", "classifier"),
    "regress": ("BertForSequenceClassification", "classifier"),
    "tag": ("BertForTokenClassification", "classifier"),
    "answer": ("BertForQuestionAnswering", "qa_outputs"),
    "choose": ("BertForMultipleChoice", "classifier"),
}


CLASSES: list[tuple[str, set[str]]] = [
    ("BertForPreTraining", {"masked_lm", "next_sentence", "pooler"}),
    ("BertForMaskedLM", {"masked_lm"}),
    ("BertForNextSentencePrediction", {"next_sentence", "pooler"}),
    ("BertLMHeadModel", {"left_to_right"}),
    ("BertModel", {"pooler"}),
    ("BertModel", set()),
]


Bert.published = Published("bert", to_published, from_published, published_names, tidy_published, CLASSES, HEADS)
