"""A backbone and its objectives as one module.

In: prepared batches. Out: every objective's score by name. The backbone runs once per batch, whatever the number of
objectives.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, ValuesView
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, SelfUpdatingObjective, Tokenizer
from keel.learner.frozen_encoder import FrozenEncoder
from keel.tokenizers.spelling import spell
from keel.values import Batch, Rows, Score, WordSpellings

ANSWERS = ".answers"


class Objectives(nn.ModuleDict):
    """Objectives by name."""

    def __getitem__(self, name: str) -> Objective:
        return cast(Objective, super().__getitem__(name))

    def values(self) -> ValuesView[Objective]:
        return cast(ValuesView[Objective], super().values())

    def items(self) -> ItemsView[str, Objective]:
        return cast(ItemsView[str, Objective], super().items())


class Learner(nn.Module):
    """`frozen`: the encoder that the objectives use instead of the backbone itself."""

    def __init__(
        self, backbone: Backbone, objectives: dict[str, Objective], frozen: FrozenEncoder | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.objectives = Objectives(objectives)
        self.frozen = frozen
        self._reads_characters = backbone.config.characters_read > 0

    def encoder(self) -> CachedEncoder:
        """The encoder of the objectives; a new one for each step, since it caches the step's outputs."""
        return CachedEncoder(self.frozen or self.backbone)

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: Callable[[], np.ndarray]) -> None:
        """Gives backbone and objectives the tokenizer and the corpus statistics, before the first step."""
        self.backbone.attach_tokenizer(tokenizer)
        for objective in self.objectives.values():
            objective.attach_corpus(tokenizer, count_tokens)

    def prepare(self, rows: Rows, tokenizer: Tokenizer, device: torch.device | str = "cpu") -> Batch:
        """Applies each objective's masking, in the recipe's order, and converts the result to tensors."""
        targets: dict[str, Any] = {}
        for objective in self.objectives.values():
            rows, more = objective.prepare(rows, tokenizer)
            targets |= more
        return self.batch(rows, tokenizer, targets, device, self._selected(rows, targets))

    def batch(
        self,
        rows: Rows,
        tokenizer: Tokenizer,
        targets: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
        selected: np.ndarray | None = None,
    ) -> Batch:
        """Rows as they are, as a batch with all inputs of the backbone."""
        batch = Batch.of(rows, targets or {}, device, selected)
        if self._reads_characters:
            batch = replace(batch, spellings=_spellings(rows, tokenizer, self.backbone.config, device))
        return batch

    def _selected(self, rows: Rows, targets: dict[str, Any]) -> np.ndarray | None:
        """The tokens whose vectors some objective needs; None: all."""
        context = self.backbone.context
        reads = {name: objective.needs.vectors for name, objective in self.objectives.items()}
        if not reads or "all" in reads.values() or context == "none":
            return None
        if self.frozen is not None and self.frozen.bilstm is not None:
            return None  # the BiLSTM needs every token
        row_tokens = rows.ends if context == "left" else rows.starts
        places = [row_tokens if read == "rows" else targets[f"{name}.places"] for name, read in reads.items()]
        together = np.unique(np.concatenate(places))
        return together if 0 < len(together) < len(rows.ids) else None

    def corrupt(self, encoder: CachedEncoder, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        """Applies each objective's corruption that needs a model (ELECTRA's generator)."""
        scores: dict[str, Score] = {}
        for objective in self.objectives.values():
            batch, more = objective.corrupt(encoder, batch)
            scores |= more
        return batch, scores

    def forward(self, batch: Batch) -> dict[str, Score]:
        encoder = self.encoder()
        batch, scores = self.corrupt(encoder, batch)
        for objective in self.objectives.values():
            scores |= objective(encoder, batch)
        return scores

    @property
    def updates_itself(self) -> bool:
        return any(isinstance(objective, SelfUpdatingObjective) for objective in self.objectives.values())

    def update(self, rows: Rows, learning_rate: float) -> dict[str, Score]:
        """One step of self-updating objectives."""
        scores: dict[str, Score] = {}
        for name, objective in self.objectives.items():
            if not isinstance(objective, SelfUpdatingObjective):
                raise UserError(f"{name} needs gradients; it cannot be combined with an objective that updates itself")
            scores |= objective.update(self.backbone, rows, learning_rate)
        return scores

    def add_penalties(self) -> None:
        """Adds the gradients of penalties to a step's gradients."""
        if self.frozen is not None:
            self.frozen.add_penalty()

    def named_tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}


def answer_counts(batch: Batch) -> dict[str, int]:
    """The number of predictions that each score of this batch is summed over, known before the forward pass."""
    named = {key.removesuffix(ANSWERS): answers for key, answers in batch.targets.items() if key.endswith(ANSWERS)}
    return {name: answers.shape[0] for name, answers in named.items()}


def _spellings(rows: Rows, tokenizer: Tokenizer, config: Any, device: torch.device | str) -> WordSpellings:
    words, index = np.unique(rows.ids, return_inverse=True)
    names = [tokenizer.token(id) for id in words[words >= config.vocabulary].tolist()]

    def send(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    none = torch.empty((0, config.characters_read), dtype=torch.int16, device=device)
    unknown = send(spell(names, config.characters_read)) if names else none
    return WordSpellings(send(words), send(index.reshape(-1)), unknown)
