"""Translation, or any other text-to-text task: a decoder on top of any encoder.

In: two aligned files, or a table with a source and a translation column. Learns: with teacher forcing, all positions of
a translation at once, each from the tokens before it. Out: the translation found by beam search.

decoder  transformer    attends to its own prefix and to all source tokens (Vaswani et al. 2017)
         rnn            reads the source as one fixed vector (Cho et al. 2014)
         rnn-attention  a recurrent decoder that attends to all source tokens (Bahdanau et al. 2015)

Notable choices
- One vocabulary for both languages. If the encoder's embedding matrix is trainable and has the decoder's width, it is
  also the decoder's input embedding and output layer (Press and Wolf 2017); otherwise the decoder has its own.
- BLEU and chrF are sacrebleu's (extra `translate`), on the texts as they are: cased, not tokenised.

Shapes: R rows, Q tokens of all translations, W width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.backbones.transformer import Transformer
from keel.configs import TaskConfig
from keel.errors import UserError
from keel.in_memory import Source
from keel.interfaces import Backbone, CachedEncoder, Objective, Task, Tokenizer
from keel.layers.cross_entropy import tied_cross_entropy
from keel.layers.decoders.beam_search import search
from keel.layers.decoders.rnn import RnnDecoder
from keel.layers.decoders.transformer import TransformerDecoder
from keel.layers.init_weights import init_glorot
from keel.layers.position import Positions
from keel.metrics.translation import TranslationCounts, need_sacrebleu, sentence_chrf
from keel.report_tables import Plot, Table
from keel.tasks._scoring import Variety, Worst
from keel.text.labelled import LabelledData, find_columns
from keel.text.parallel import Pair, read_pairs, two_files
from keel.text.tables import TABLES, kind_of
from keel.tokenizers.special_tokens import frame
from keel.values import Batch, Evaluation, ExampleFile, Rows, Score, Scorer, TaskNeeds, Truncation, Window

PADDING = -1  # after the last token of shorter texts
MOST_PENALTY = 10.0


class TranslateConfig(TaskConfig):
    kind: Literal["translate"] = "translate"
    decoder: Literal["transformer", "rnn", "rnn-attention"] = "transformer"
    layers: int | None = Field(None, ge=1, description="of the transformer decoder; null: as many as the encoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="in the decoder")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread over all tokens")
    max_length: int = Field(256, ge=2, description="tokens of a translation, at most")
    beam_size: int = Field(5, ge=1, description="hypotheses of beam search; 1: greedy search")
    length_penalty: float = Field(
        0.6, ge=0, le=MOST_PENALTY, description="0: rank by probability, which favours short texts"
    )


class Translate(Task):
    Config = TranslateConfig
    needs = TaskNeeds(group_by_length=True, full_embeddings=True, long=("head",))
    config: TranslateConfig
    data: LabelledData

    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        data = self.data
        if not two_files(source) and kind_of(source) in TABLES:
            data = find_columns(source, data, ("text", "label"))
        return ExampleFile(lambda: read_pairs(source, data, labelled), data)

    def example(self, given: Any) -> Pair:
        if not isinstance(given, str):
            raise UserError(f"a text to translate is needed, not {type(given).__name__}")
        if not given.strip():
            raise UserError("an empty text cannot be translated; leave it out")
        return Pair(given, None)

    def fit_labels(self, examples: Sequence[Pair]) -> Self:
        need_sacrebleu()  # fail now, not after an hour of training
        return self

    def objective(self, backbone: Backbone) -> TranslateObjective:
        return TranslateObjective(self.config, backbone)

    def windows(self, examples: Sequence[Pair], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        """One row per example. A source that is too long is truncated, and so is a gold translation."""
        if min(tokenizer.cls, tokenizer.sep) < 0:
            raise UserError("the tokenizer has no tokens that begin and end a text; translation needs both")
        sources = tokenizer.encode([e.text for e in examples])
        encoded = tokenizer.encode([e.answer or "" for e in examples])
        answers = [np.where(ids < tokenizer.size, ids, tokenizer.unk) for ids in encoded]  # ids the decoder can output
        room, answer_room = self.data.length - 2, self.config.max_length - 1
        windows, truncation = [], Truncation()
        for number, (ids, answer) in enumerate(zip(sources, answers, strict=True)):
            lost = max(0, len(ids) - room) + max(0, len(answer) - answer_room)
            truncation += Truncation(1, int(lost > 0), len(ids) + len(answer), lost)
            answer = np.concatenate([[tokenizer.cls], answer[:answer_room], [tokenizer.sep]]).astype(np.int64)
            windows.append(Window(*frame(tokenizer, [ids[:room]]), number, {"translate": answer}, place=tokenizer))
        return windows, truncation

    def answer(
        self, examples: Sequence[Pair], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        answers = []
        for window, output in zip(windows, outputs, strict=True):
            ids = output[1:][output[1:] >= 0].astype(int).tolist()
            answers.append({"translation": window.place.decode(ids).strip(), "score": float(output[0])})
        return answers

    def scorer(self) -> TranslateScorer:
        return TranslateScorer()


class TranslateScorer(Scorer):
    def __init__(self) -> None:
        self.counts, self.variety, self.worst = TranslationCounts(), Variety(), Worst()

    def gold(self, example: Pair) -> Any:
        return example.answer

    def update(self, examples: Sequence[Pair], answers: Sequence[dict[str, Any]]) -> None:
        references, translations = [e.answer or "" for e in examples], [a["translation"] for a in answers]
        self.counts.update(translations, references)
        self.variety.update((e.answer for e in examples), translations)
        errors = []
        for example, translation in zip(examples, translations, strict=True):
            score = sentence_chrf(translation, example.answer or "")
            errors.append((score, (f"{score:.1f}", example.text, example.answer, translation, example.where)))
        self.worst.update(errors)

    def compute(self) -> Evaluation:
        figures = {"bleu": self.counts.bleu, "chrf": self.counts.chrf}
        return Evaluation(figures, "bleu", self.variety.constant, details=self._details)

    def _details(self) -> list[Table | Plot]:
        return [Table("Worst translations", ("chrF", "source", "gold", "predicted", "where"), self.worst.rows)]


class TranslateObjective(Objective):
    name = "translate"

    def __init__(self, config: TranslateConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.width = backbone.config.width
        self.decoder: Any  # both kinds have the same methods, each with its own type for the encoded source
        if config.decoder == "transformer":
            shape = decoder_shape(backbone, config)
            positions = Positions(shape.position, shape.width, shape.heads, config.max_length)
            self.decoder = TransformerDecoder(shape, backbone.width, shape.layers, positions)
        else:
            self.decoder = RnnDecoder(self.width, backbone.width, config.decoder == "rnn-attention", config.dropout)
        vocabulary = backbone.config.vocabulary
        self.table = None if _shares_table(backbone, self.width) else nn.Embedding(vocabulary, self.width)
        self.fixed_offsets = (  # heads are initialised to attend at fixed offsets, like the encoder's
            config.decoder == "transformer"
            and self.table is None
            and isinstance(backbone, Transformer)
            and backbone.offsets_initialised
        )
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        """Translations as a flat batch, longest first, and the row of each; the last token is only a target."""
        targets = rows.answers["translate"]
        lengths = (targets != PADDING).sum(1) - 1
        order = np.argsort(-lengths, kind="stable")
        inside = np.arange(targets.shape[1] - 1) < lengths[order, None]
        return rows, {
            "translate.order": order,
            "translate.lengths": tuple(lengths[order].tolist()),
            "translate.inputs": targets[order, :-1][inside],
            "translate.answers": targets[order, 1:][inside],
            "translate.positions": np.broadcast_to(np.arange(inside.shape[1]), inside.shape)[inside],
            "translate.begin_end": (tokenizer.cls, tokenizer.sep),
        }

    def init_weights(self, generator: torch.Generator) -> None:
        """Glorot, as in the encoder."""
        init_glorot(self, generator)
        if self.fixed_offsets:
            self.decoder.init_offsets()

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        vectors = self._decode(encoder, batch)
        answers = batch.targets["translate.answers"]
        smoothing = self.config.label_smoothing if self.training else 0.0
        loss, right = tied_cross_entropy(vectors, self.token_embeddings(encoder), self.bias, answers, smoothing)
        return {self.name: Score(loss, right, len(answers))}

    def logits(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(Q, V): at every position of the gold translations, from the tokens before it."""
        return torch.addmm(self.bias, self._decode(encoder, batch), self.token_embeddings(encoder).t())

    def _decode(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(Q, W): with teacher forcing."""
        inputs, positions, order = (batch.targets[f"translate.{part}"] for part in ("inputs", "positions", "order"))
        source = self.read_source(encoder, batch).pick(order)
        lengths = batch.targets["translate.lengths"]
        vectors: Tensor = self.decoder(self.embed(encoder, inputs), positions, lengths, source)
        return vectors

    def read_source(self, encoder: CachedEncoder, batch: Batch) -> Any:
        """The encoded rows in the form the decoder needs."""
        vectors = encoder(batch).vectors
        return self.decoder.read(vectors, batch.lengths, encoder.backbone.row_vectors(vectors, batch))

    def token_embeddings(self, encoder: CachedEncoder) -> Tensor:
        """(V, W)"""
        return encoder.backbone.token_embeddings() if self.table is None else self.table.weight

    def embed(self, encoder: CachedEncoder, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.token_embeddings(encoder)) * self.width**0.5

    def attention_weights(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(layers, heads, translation tokens, source tokens), for a batch of one text."""
        if self.config.decoder == "rnn":
            raise UserError("this model's decoder has no attention: it reads the source as one vector")
        inputs, positions = batch.targets["translate.inputs"], batch.targets["translate.positions"]
        source = self.read_source(encoder, batch)
        lengths = batch.targets["translate.lengths"]
        layers = self.decoder.attention_weights(self.embed(encoder, inputs), positions, lengths, source)
        return torch.stack([weights[0] for weights in layers])

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(R, 1 + longest): the score and the tokens of each translation, padded with -1."""
        begin, end = batch.targets["translate.begin_end"]
        beam_size, device = self.config.beam_size, batch.ids.device
        limits = [min(self.config.max_length, 2 * length + 10) for length in batch.lengths]
        rows = torch.arange(len(batch.lengths), device=device).repeat_interleave(beam_size)
        with self.decoder.writing():
            scorer = NextTokenScorer(self, encoder, self.read_source(encoder, batch).pick(rows))
            best = search(scorer.step, limits, begin, end, beam_size, self.config.length_penalty, device)
        table = torch.full((len(best), 1 + max(len(ids) for ids, _ in best)), float(PADDING))
        for row, (ids, score) in zip(table, best, strict=True):
            row[: len(ids) + 1] = torch.tensor([score, *ids])
        return table


class NextTokenScorer:
    """Computes the next token's log-probabilities for beam search. The decoder caches its states of the prefix."""

    def __init__(self, objective: TranslateObjective, encoder: CachedEncoder, source: Any) -> None:
        self.objective, self.encoder, self.source = objective, encoder, source
        self.length = 0  # of the prefix

    def step(self, tokens: Tensor, origin: Tensor | None, kept: Tensor | None) -> Tensor:
        objective, beam = self.objective, self.objective.config.beam_size
        if kept is not None:
            self.source = self.source.pick((kept[:, None] * beam + torch.arange(beam, device=kept.device)).flatten())
        if origin is not None:
            objective.decoder.pick(origin)
        embedded = objective.embed(self.encoder, tokens)
        vectors = objective.decoder(embedded, torch.full_like(tokens, self.length), (1,) * len(tokens), self.source)
        self.length += 1
        return torch.addmm(objective.bias, vectors, objective.token_embeddings(self.encoder).t()).log_softmax(1)


@dataclass(frozen=True)
class DecoderShape:
    width: int
    heads: int
    feed_forward: int
    activation: str
    dropout: float
    attention_dropout: float
    norm_epsilon: float
    layers: int
    position: Literal["sinusoid", "learned", "rotary"]


def decoder_shape(backbone: Backbone, config: TranslateConfig) -> DecoderShape:
    """A transformer decoder with the encoder's dimensions; defaults where the encoder's config lacks a key."""
    given = backbone.config.model_dump()
    width = backbone.config.width
    fitting = next(heads for heads in range(max(1, width // 64), 0, -1) if width % heads == 0)
    activation = given.get("activation", "relu")
    return DecoderShape(
        width=width,
        heads=given.get("heads", fitting),
        feed_forward=given.get("feed_forward") or 4 * width,
        activation=activation if activation in ("relu", "gelu") else "relu",
        dropout=config.dropout,
        attention_dropout=given.get("attention_dropout", 0.0),
        norm_epsilon=given.get("norm_epsilon", 1e-5),
        layers=config.layers or max(1, backbone.config.layers),
        position=given.get("position", "sinusoid"),
    )


def _shares_table(backbone: Backbone, width: int) -> bool:
    """Whether the encoder has a trainable embedding matrix of this width (a frozen encoder has no parameters)."""
    if backbone.config.characters_read:
        return False
    table = backbone.token_embeddings()
    return isinstance(table, nn.Parameter) and table.shape[1] == width
