"""A backbone and what it is asked to do, as one module.

In: prepared batches. Out: every objective's score by name. The backbone runs once per batch, however many objectives
look at it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Encoding, Objective, Rows, Score, Spelt, Tokenizer
from keel.tokenizers.spelling import spell
from keel.training.encoder import Frozen


class Once:
    """A backbone that remembers its answer to the batch it saw last; everything else is the backbone's own."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._seen: tuple[Batch, Encoding] | None = None

    def __call__(self, batch: Batch) -> Encoding:
        if self._seen is None or self._seen[0] is not batch:
            self._seen = (batch, self._backbone(batch))
        return self._seen[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backbone, name)


class Learner(nn.Module):
    """`view`: what the objectives look at, where it is not the backbone itself (a frozen encoder's layers)."""

    def __init__(self, backbone: Backbone, objectives: dict[str, Objective], view: Frozen | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.objectives = nn.ModuleDict(objectives)
        self.view = view

    @property
    def seen(self) -> Backbone:
        return self.view or self.backbone

    def prepare(self, rows: Rows, tokenizer: Tokenizer, device: torch.device | str = "cpu") -> Batch:
        """Lets each objective hide its answers, in the recipe's order, and makes tensors of the result."""
        targets: dict[str, np.ndarray] = {}
        for objective in self.objectives.values():
            rows, more = objective.prepare(rows, tokenizer)  # type: ignore[operator]
            targets |= more
        return self.batch(rows, tokenizer, targets, device, self._asked(rows, targets))

    def batch(
        self,
        rows: Rows,
        tokenizer: Tokenizer,
        targets: dict[str, np.ndarray] | None = None,
        device: torch.device | str = "cpu",
        asked: np.ndarray | None = None,
    ) -> Batch:
        """Rows as they are, with all that the backbone reads of them."""
        batch = Batch.of(rows, targets or {}, device, asked)
        if self.backbone.reads_spellings:
            batch = replace(batch, spelt=_spelt(rows, tokenizer, self.backbone.config, device))
        return batch

    def _asked(self, rows: Rows, targets: dict[str, np.ndarray]) -> np.ndarray | None:
        """The places that the objectives look at together; None: all."""
        looks = {name: str(objective.looks_at) for name, objective in self.objectives.items()}
        if not looks or "all" in looks.values() or self.backbone.averages:
            return None
        if self.view is not None and self.view.bilstm is not None:
            return None  # whatever is asked, it reads everything
        pooled = rows.ends if self.backbone.causal else rows.starts
        found = [pooled if look == "rows" else targets[f"{name}.places"] for name, look in looks.items()]
        together = np.unique(np.concatenate(found))
        return together if 0 < len(together) < len(rows.ids) else None

    def disguise(self, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        """Lets each objective hide what takes a model to hide."""
        scores: dict[str, Score] = {}
        for objective in self.objectives.values():
            batch, more = objective.disguise(self.seen, batch)  # type: ignore[operator]
            scores |= more
        return batch, scores

    def forward(self, batch: Batch) -> dict[str, Score]:
        batch, scores = self.disguise(batch)
        backbone = Once(self.seen)
        for objective in self.objectives.values():
            scores |= objective(backbone, batch)
        return scores

    @property
    def moves_weights(self) -> bool:
        return any(objective.moves_weights for objective in self.objectives.values())

    def learn(self, rows: Rows, rate: float) -> dict[str, Score]:
        """Lets objectives that move the weights by themselves do so."""
        scores: dict[str, Score] = {}
        for name, objective in self.objectives.items():
            if not objective.moves_weights:
                raise UserError(f"{name} gives gradients, and cannot be learnt beside one that moves weights by itself")
            scores |= objective.learn(self.backbone, rows, rate)  # type: ignore[operator]
        return scores

    def weights(self) -> dict[str, float]:
        """The weight of every score, by name."""
        return {name: weight for objective in self.objectives.values() for name, weight in objective.weights().items()}  # type: ignore[operator]

    def answer_counts(self, batch: Batch) -> dict[str, int]:
        """How many answers each score will be over in this batch, known before the forward pass."""
        return {name: batch.targets[f"{name}.answers"].shape[0] for name in self.weights()}

    def penalise(self) -> None:
        """Adds to a step's gradients what does not come from any answer."""
        if self.view is not None:
            self.view.penalise()

    def named_tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}


def _spelt(rows: Rows, tokenizer: Tokenizer, config: Any, device: torch.device | str) -> Spelt:
    words, which = np.unique(rows.ids, return_inverse=True)
    names = [tokenizer.token(id) for id in words[words >= config.vocabulary].tolist()]

    def send(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    none = torch.empty((0, config.spelling), dtype=torch.int16, device=device)
    return Spelt(send(words), send(which.reshape(-1)), send(spell(names, config.spelling)) if names else none)
