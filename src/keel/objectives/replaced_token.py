"""Replaced-token detection (Clark et al. 2020): which of these tokens did a small generator put in?

In: rows of which some tokens are hidden, as in masked language modelling. A generator, a narrower encoder with the same
embeddings, guesses them; what it draws replaces them; the backbone says of every token whether it is the one that was
there. Out: two scores: `replaced_token`, over all ordinary tokens, and `replaced_token.generator`, over the hidden
ones. Every token teaches, and the backbone never sees [MASK].

Notable choices
- The generator is no opponent: it learns to guess, not to deceive, and no gradient passes through what it drew.
- What it draws is a function of the row's key and the weights (the inverse of its distribution at a number that
  `prepare` drew), so held-out figures do not depend on any generator of random numbers.
- A drawn token that happens to be right counts as original.

Shapes: T tokens, P hidden places, N ordinary places, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.backbones.bert import look_at_neighbours, pass_through
from keel.corpus.choose import choose, ordinary_tokens, special_ids
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Objective, Rows, Score, Tokenizer
from keel.layers.activations import ACTIVATIONS
from keel.layers.block import Block
from keel.layers.filler import fill_up
from keel.layers.token_head import TokenHead
from keel.randomness import uniform

DRAW = 4  # the purpose a row's key is used for


class ReplacedTokenConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: float = Field(0.15, gt=0, lt=1, description="share of tokens the generator has to guess")
    generator: float | None = Field(
        0.25, gt=0, le=1, description="the generator's width as a share of the backbone's; null: none, and no training"
    )
    weight: float = Field(50.0, gt=0, description="of telling replaced tokens; guessing them has weight 1")


class ReplacedToken(Objective):
    name = "replaced_token"
    shows_mask = True
    as_published = MappingProxyType({"generator": None})
    Config = ReplacedTokenConfig

    def __init__(self, config: ReplacedTokenConfig, backbone: Backbone) -> None:
        super().__init__()
        if not backbone.has_table:
            raise UserError("replaced_token needs a backbone with a table of tokens, not one that reads spellings")
        if not hasattr(backbone, "embed_tokens"):
            raise UserError("replaced_token needs a backbone whose embeddings a generator can share: kind electra")
        self.config = config
        self.weight = config.weight
        self.generator = Generator(backbone, config.generator) if config.generator else None
        self.dense = nn.Linear(backbone.width, backbone.width)
        self.out = nn.Linear(backbone.width, 1)
        self.activation = ACTIVATIONS[backbone.config.activation]

    def begin(self, generator: torch.Generator) -> None:
        """As the backbone itself: the generator's first layer starts out looking at its neighbours."""
        if self.generator is not None:
            pass_through(self.generator.widen)
            config = self.generator.config
            if config.attention_start == "neighbours" and config.position_start == "sinusoid":
                look_at_neighbours(self.generator.blocks[0].attending.attention)  # type: ignore[union-attr,arg-type]

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        places = np.flatnonzero(choose(rows, self.config.share, tokenizer))
        keys, positions = rows.keys[rows.row_of_token[places]], rows.position_of_token[places]
        ordinary = np.flatnonzero(ordinary_tokens(rows, tokenizer))
        ids = rows.ids.copy()
        ids[places] = tokenizer.mask
        return replace(rows, ids=ids), {
            "replaced_token.generator.places": places,
            "replaced_token.generator.answers": rows.ids[places],
            "replaced_token.draws": uniform(keys, DRAW, positions),
            "replaced_token.barred": special_ids(tokenizer),
            "replaced_token.places": ordinary,
            "replaced_token.answers": np.zeros(len(ordinary), np.int64),
        }

    def weights(self) -> dict[str, float]:
        return {self.name: self.weight, f"{self.name}.generator": 1.0}

    def disguise(self, backbone: Backbone, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        if self.generator is None:
            raise UserError("replaced_token cannot be trained without a generator: set its `generator`, such as 0.25")
        targets = batch.targets
        places, answers = targets["replaced_token.generator.places"], targets["replaced_token.generator.answers"]
        logits = self.generator(backbone, batch, places)
        loss = F.cross_entropy(logits.float(), answers, reduction="sum")
        score = Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])
        possible = logits.detach().float().index_fill(1, targets["replaced_token.barred"], -torch.inf)
        drawn = _draw(possible, targets["replaced_token.draws"])
        ids = batch.ids.index_copy(0, places, drawn)
        replaced = torch.zeros_like(batch.ids).index_copy(0, places, (drawn != answers).long())
        shown = replace(
            batch,
            ids=ids,
            targets=targets | {"replaced_token.answers": replaced[targets["replaced_token.places"]]},
        )
        return shown, {f"{self.name}.generator": score}

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(N, 2): as it was, replaced."""
        vectors = backbone(batch).vectors[batch.targets["replaced_token.places"]]
        replaced = self.out(self.activation(self.dense(vectors)))
        return torch.cat([torch.zeros_like(replaced), replaced], 1)

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(backbone, batch).float(), batch.targets["replaced_token.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}


class Generator(nn.Module):
    """Layers like the backbone's, but narrower, over the backbone's own embeddings."""

    def __init__(self, backbone: Any, share: float) -> None:
        super().__init__()
        config = backbone.config
        heads = max(1, round(config.heads * share))
        width = config.width // config.heads * heads
        smaller = {"width": width, "heads": heads, "feed_forward": max(1, round(config.feed_forward * share))}
        self.config = config.model_copy(update=smaller | {"embedding_width": config.embedding, "pooler": False})
        self.widen = nn.Linear(config.embedding, width)
        self.blocks = nn.ModuleList(Block(self.config) for _ in range(config.layers))
        self.head = TokenHead(_Shape(backbone, width, self.config))  # type: ignore[arg-type]

    def forward(self, backbone: Any, batch: Batch, places: Tensor) -> Tensor:
        """(P, V)"""
        x = fill_up(self.widen(backbone.embed_tokens(batch)))
        for block in self.blocks:
            x = block(x, batch.lengths)
        logits: Tensor = self.head(x[places], backbone.token_table())
        return logits


class _Shape:
    """What a head asks of a backbone, for the generator, which is none."""

    def __init__(self, backbone: Backbone, width: int, config: Any) -> None:
        self.width, self.config, self.head = width, config, backbone.head
        self.head_activation = backbone.head_activation
        self.token_table = backbone.token_table


def _draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """(P,): for each place the token at which the summed chances pass its number."""
    chances = torch.softmax(logits, 1).cumsum(1)
    drawn = torch.searchsorted(chances, (numbers[:, None] * chances[:, -1:]).contiguous(), right=True)
    return drawn.squeeze(1).clamp(max=logits.shape[1] - 1)
