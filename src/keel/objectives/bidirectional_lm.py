"""Bidirectional language modelling (Peters et al. 2018): the next word left to right, the previous one right to left.

In: rows, unmasked, and a backbone whose two directions never exchange information (`backbones/elmo.py`). Out: a loss
per direction (`bidirectional_lm` forward, `bidirectional_lm.backward` backward), whose exponentials are the two
perplexities. Both directions share the output embeddings.

The output embedding of a word is
    table        a row of an embedding matrix
    characters   computed from its spelling, plus a small projected correction per word: C(spelling) + M c_w (the CNN
                 softmax of Jozefowicz et al. 2016), so that words with similar spellings can still be distinguished

Notable choice: in training the softmax may be over the target and a sample of other words shared by all positions of a
batch. Each word occurs once, and its logit, the target's too, is reduced by the log-probability of being in the sample
(Jean et al. 2015), so that words gain nothing by being drawn often. Held-out losses always use the full vocabulary.

Shapes: T tokens, V words, S sampled words, P positions of one direction, H width of one direction's state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from keel.backbones.elmo import Elmo
from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, Tokenizer
from keel.layers.cross_entropy import tied_cross_entropy
from keel.randomness import Draw, uniform
from keel.values import Batch, Rows, Score

NEVER = -1e9  # a logit with probability zero and a gradient of zero
POWER = 0.75  # words are sampled in proportion to their count to this power
WAYS = ("bidirectional_lm", "bidirectional_lm.backward")  # forward, backward


class BidirectionalLMConfig(ObjectiveConfig):
    output: Literal["table", "characters"] = "table"
    sample: int | None = Field(None, ge=1, description="words sampled for the softmax in training; null: all words")
    correction: int = Field(128, ge=1, description="width of a word's own correction, with output=characters")


class BidirectionalLM(Objective):
    name = "bidirectional_lm"
    Config = BidirectionalLMConfig

    def __init__(self, config: BidirectionalLMConfig, backbone: Backbone) -> None:
        super().__init__()
        if not isinstance(backbone, Elmo):
            raise UserError("bidirectional_lm needs a backbone with two independent directions: kind elmo")
        self.config = config
        size, width = backbone.config.vocabulary, backbone.width // 2
        self.bias = nn.Parameter(torch.zeros(size))
        if config.output == "table":
            self.table: nn.Embedding | None = nn.Embedding(size, width)
        else:
            self.table = None
            self.characters = backbone.make_characters()
            self.corrections = nn.Embedding(size, config.correction)
            self.projection = nn.Linear(config.correction, width, bias=False)
        self.counts: Tensor
        self.register_buffer("counts", torch.ones(size, dtype=torch.int64))  # all equal until a corpus is attached
        self._sums: np.ndarray | None = None

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: Callable[[], np.ndarray]) -> None:
        """Initialises the bias with the words' log frequencies."""
        counts = np.maximum(count_tokens(), 1)  # a word that does not occur here may still be a target
        counts[[tokenizer.cls, tokenizer.sep]] = counts.max()  # in every row, but not stored in the corpus
        self.counts.copy_(torch.from_numpy(counts))
        with torch.no_grad():
            self.bias.copy_(torch.log(self.counts / self.counts.sum()))
        self._sums = None

    def init_weights(self, generator: torch.Generator) -> None:
        if self.table is None:
            self.characters.init_weights(generator)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        every = np.arange(len(rows.ids))
        targets = {}
        for way, step, last in zip(WAYS, (1, -1), (rows.ends, rows.starts), strict=True):
            places = np.setdiff1d(every, last)
            targets[f"{way}.places"] = places
            targets[f"{way}.answers"] = rows.ids[places + step]
        if self.config.sample and not self.counts.is_meta:
            drawn = self._draw(rows.keys[:1])
            words = np.unique(np.concatenate([drawn, *(targets[f"{way}.answers"] for way in WAYS)]))
            targets |= {f"{way}.which": np.searchsorted(words, targets[f"{way}.answers"]) for way in WAYS}
            targets |= {f"{self.name}.words": words, f"{self.name}.drawn": np.searchsorted(words, drawn)}
        return rows, targets

    def _draw(self, key: np.ndarray) -> np.ndarray:
        """The sampled words, without repetitions."""
        if self._sums is None:
            self._sums = (self.counts.cpu().numpy().astype(np.float64) ** POWER).cumsum()
        draws = uniform(key, Draw.SAMPLED_SOFTMAX, np.arange(self.config.sample)) * self._sums[-1]
        return np.unique(np.searchsorted(self._sums, draws, side="right").clip(max=len(self._sums) - 1))

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, V): the logits of the forward direction."""
        return torch.addmm(self.bias, self._states(encoder, batch, self.name), self._vectors(encoder).t())

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        return (self._sampled if self.training and self.config.sample else self._full)(encoder, batch)

    def _states(self, encoder: CachedEncoder, batch: Batch, way: str) -> Tensor:
        """(P, H): the states from which the words of one direction are predicted."""
        half = encoder(batch).vectors.chunk(2, 1)[WAYS.index(way)]
        return half[batch.targets[f"{way}.places"]]

    def _vectors(self, encoder: CachedEncoder, words: Tensor | None = None) -> Tensor:
        """Output embeddings: (V, H), or those of some words."""
        if self.table is not None:
            return self.table.weight if words is None else self.table(words)
        assert isinstance(encoder.backbone, Elmo)
        spellings = encoder.backbone.spellings if words is None else encoder.backbone.spellings[words]
        own = self.corrections.weight if words is None else self.corrections(words)
        vectors: Tensor = self.characters(spellings) + self.projection(own)
        return vectors

    def _full(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        vectors, scores = self._vectors(encoder), {}
        for way in WAYS:
            answers = batch.targets[f"{way}.answers"]
            loss, right = tied_cross_entropy(self._states(encoder, batch, way), vectors, self.bias, answers)
            scores[way] = Score(loss, right, len(answers), self.config.weight)
        return scores

    def _sampled(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        """Computes output embeddings only for the sampled words and the targets, each once."""
        words, drawn = batch.targets[f"{self.name}.words"], batch.targets[f"{self.name}.drawn"]
        shares = self.counts.double() ** POWER
        chances = -torch.expm1(self.config.sample * torch.log1p(-shares / shares.sum()))  # to be in the sample
        lowered = (self.bias - chances.log().to(self.bias.dtype)).float()[words]
        vectors, scores = self._vectors(encoder, words), {}
        sample = vectors[drawn]
        for way in WAYS:
            which = batch.targets[f"{way}.which"]
            states = self._states(encoder, batch, way)
            right = (states.float() * vectors[which].float()).sum(1) + lowered[which]
            others = (states @ sample.t()).float() + lowered[drawn]
            others = others.masked_fill(drawn == which[:, None], NEVER)
            loss = torch.logaddexp(torch.logsumexp(others, 1), right) - right
            scores[way] = Score(loss.sum(), (right > others.max(1).values).sum(), len(which), self.config.weight)
        return scores
