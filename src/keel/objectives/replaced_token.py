"""Replaced-token detection (Clark et al. 2020): predict which tokens were replaced by a small generator.

In: rows with masked tokens, as in masked language modelling. A generator, a narrower encoder with the same embeddings,
predicts them; samples from its predictions replace them; the backbone classifies every token as original or replaced.
Out: two scores: `replaced_token`, over all ordinary tokens, and `replaced_token.generator`, over the masked ones. Every
token contributes to the loss, and the backbone never sees [MASK].

Notable choices
- Training is not adversarial: the generator learns by maximum likelihood, and no gradient passes through its samples.
- A sample is a function of the row's key and the weights (the inverse CDF of the prediction at a number that `prepare`
  drew), so held-out metrics do not depend on a random number generator.
- A sampled token that equals the original counts as original.

Shapes: T tokens, P masked tokens, N ordinary tokens, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.backbones._post_norm import make_block
from keel.backbones.electra import Electra
from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, Tokenizer
from keel.layers.activations import ACTIVATIONS
from keel.layers.attention.context import AttentionContext
from keel.layers.block import attention_of
from keel.layers.init_offsets import init_learned_offsets
from keel.layers.init_weights import init_identity
from keel.layers.padding import pad_to_multiple
from keel.objectives._masking import need_mask_token, ordinary_tokens, select_tokens, special_ids
from keel.randomness import Draw, uniform
from keel.values import Batch, Rows, Score


class ReplacedTokenConfig(ObjectiveConfig):
    mask_prob: float = Field(0.15, gt=0, lt=1, description="fraction of tokens that the generator predicts")
    generator_size: float | None = Field(
        0.25, gt=0, le=1, description="generator width / backbone width; null: no generator, hence no training"
    )
    weight: float = Field(50.0, gt=0, description="weight of the detection loss; the generator's loss has weight 1")


class ReplacedToken(Objective):
    name = "replaced_token"
    Config = ReplacedTokenConfig

    def __init__(self, config: ReplacedTokenConfig, backbone: Backbone) -> None:
        super().__init__()
        if not isinstance(backbone, Electra):
            raise UserError("replaced_token needs a backbone that shares its embeddings with a generator: kind electra")
        self.config = config
        self.generator = Generator(backbone, config.generator_size) if config.generator_size else None
        self.dense = nn.Linear(backbone.width, backbone.width)
        self.out = nn.Linear(backbone.width, 1)
        self.activation = ACTIVATIONS[backbone.config.activation]

    def init_weights(self, generator: torch.Generator) -> None:
        """As in the backbone: the generator's first layer is initialised to attend to neighbouring tokens."""
        if self.generator is not None:
            init_identity(self.generator.embedding_projection)
            config = self.generator.config
            if config.attention_init == "neighbours" and config.position_init == "sinusoid":
                init_learned_offsets(attention_of(self.generator.blocks[0]))

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: object) -> None:
        need_mask_token(self.name, tokenizer)

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        places = np.flatnonzero(select_tokens(rows, self.config.mask_prob, tokenizer))
        keys, positions = rows.keys[rows.row_of_token[places]], rows.position_of_token[places]
        ordinary = np.flatnonzero(ordinary_tokens(rows, tokenizer))
        ids = rows.ids.copy()
        ids[places] = tokenizer.mask
        return replace(rows, ids=ids), {
            "replaced_token.generator.places": places,
            "replaced_token.generator.answers": rows.ids[places],
            "replaced_token.draws": uniform(keys, Draw.REPLACEMENT, positions),
            "replaced_token.excluded": special_ids(tokenizer),
            "replaced_token.places": ordinary,
            "replaced_token.answers": np.zeros(len(ordinary), np.int64),
        }

    def corrupt(self, encoder: CachedEncoder, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        if self.generator is None:
            raise UserError(
                "replaced_token cannot be trained without a generator: set its `generator_size`, such as 0.25"
            )
        targets = batch.targets
        places, answers = targets["replaced_token.generator.places"], targets["replaced_token.generator.answers"]
        logits = self.generator(encoder.backbone, batch, places)
        loss = F.cross_entropy(logits.float(), answers, reduction="sum")
        score = Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])
        possible = logits.detach().float().index_fill(1, targets["replaced_token.excluded"], -torch.inf)
        drawn = _draw(possible, targets["replaced_token.draws"])
        ids = batch.ids.index_copy(0, places, drawn)
        replaced = torch.zeros_like(batch.ids).index_copy(0, places, (drawn != answers).long())
        shown = replace(
            batch,
            ids=ids,
            targets=targets | {"replaced_token.answers": replaced[targets["replaced_token.places"]]},
        )
        return shown, {f"{self.name}.generator": score}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(N, 2): logits for original and replaced."""
        vectors = encoder(batch).vectors[batch.targets["replaced_token.places"]]
        replaced = self.out(self.activation(self.dense(vectors)))
        return torch.cat([torch.zeros_like(replaced), replaced], 1)

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(encoder, batch).float(), batch.targets["replaced_token.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        correct = (logits.argmax(1) == answers).sum()
        return {self.name: Score(loss, correct, answers.shape[0], self.config.weight)}


class Generator(nn.Module):
    """A narrower copy of the backbone's layers, on the backbone's embeddings."""

    def __init__(self, backbone: Electra, size: float) -> None:
        super().__init__()
        config = backbone.config
        heads = max(1, round(config.heads * size))
        width = config.width // config.heads * heads
        smaller = {"width": width, "heads": heads, "feed_forward": max(1, round(config.feed_forward * size))}
        self.config = config.model_copy(update=smaller | {"embedding_width": config.embedding, "pooler": False})
        self.embedding_projection = nn.Linear(config.embedding, width)
        self.blocks = nn.ModuleList(make_block(self.config) for _ in range(config.layers))
        self.head = backbone.head_for(width)

    def forward(self, backbone: Backbone, batch: Batch, places: Tensor) -> Tensor:
        """(P, V)"""
        assert isinstance(backbone, Electra)
        x = pad_to_multiple(self.embedding_projection(backbone.embeddings(batch)))
        for block in self.blocks:
            x = block(x, AttentionContext(batch.lengths))
        logits: Tensor = self.head(x[places], backbone.token_embeddings())
        return logits


def _draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """(P,): inverse-CDF sampling: the token at which the cumulative probability passes the position's number."""
    chances = torch.softmax(logits, 1).cumsum(1)
    drawn = torch.searchsorted(chances, (numbers[:, None] * chances[:, -1:]).contiguous(), right=True)
    return drawn.squeeze(1).clamp(max=logits.shape[1] - 1)
