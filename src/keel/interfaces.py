"""READ FIRST: the contracts of Keel. A new tokenizer, backbone, objective or task is one class in one file.

The path of a token: `Tokenizer` (text -> ids), corpus (ids on disk with sentence, document and word boundaries),
`Rows` (packed rows as numpy arrays), `Objective.prepare` (hides the answers), `Batch` (the same as tensors),
`Backbone` (one vector per token), `Objective.forward` (named losses). The values are in `values.py`, the options that
recipes set in `configs.py`.

Shapes: T tokens of all rows of a batch, R rows, W width, E width of an embedding, V vocabulary.

Notable choice: an objective receives the encoder, not its output. Weight tying is then a call, and an objective may
encode twice, or own a backbone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from keel.configs import BackboneConfig, ObjectiveConfig, TaskConfig
from keel.values import (
    Batch,
    Encoding,
    Examples,
    Judgement,
    ObjectiveNeeds,
    Rows,
    Score,
    TaskNeeds,
    Truncation,
    Usage,
    Window,
)


class Tokenizer(Protocol):
    """Text <-> ids. Special tokens are known by role, not by spelling; the id of a role that is missing is -1."""

    size: int
    cls: int
    sep: int
    mask: int
    pad: int
    unk: int
    between: int  # separators between two texts

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]: ...
    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def token(self, id: int) -> str: ...
    def fingerprint(self) -> str: ...


class Backbone(nn.Module, ABC):
    """`forward(batch) -> Encoding`: one vector per token. No loss; the output head is made here but used elsewhere."""

    Config: type[BackboneConfig]
    blocks: nn.ModuleList  # the layers, lowest first: may be frozen, reinitialised or given a learning rate one by one

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        assert config.vocabulary, "the vocabulary's size is known before the model is built"
        self.config: Any = config
        self.width = config.width  # of the vectors it gives
        self.max_length, self.context = config.max_length, config.context
        self.pooler: nn.Module | None = None  # (R, W) -> (R, W); set where `config.pooler` asks for one

    @abstractmethod
    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        """Encodes. `all_layers` also returns the vectors of each layer, embeddings first."""

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Fresh weights, the same for the same generator."""

    @abstractmethod
    def token_embeddings(self) -> Tensor:
        """(V, E): the input embeddings, for output layers that are tied to them."""

    @abstractmethod
    def token_head(self) -> nn.Module:
        """A fresh head that predicts tokens from vectors (`layers/token_head.py`), as this family has it."""

    def attach_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Takes what only the tokenizer knows (spellings), before the first step."""
        return

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the vector that represents each row: that of [CLS], or of the last token where context is left."""
        return vectors[batch.ends if self.context == "left" else batch.starts]

    @final
    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the row vectors through the pooler, where there is one."""
        rows = self.row_vectors(vectors, batch)
        return rows if self.pooler is None else self.pooler(rows)


class CachedEncoder:
    """The encoder as objectives see it: it encodes a batch once, however many objectives read it."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self._last: tuple[Batch, bool, Encoding] | None = None

    def __call__(self, batch: Batch, all_layers: bool = False) -> Encoding:
        if self._last is None or self._last[0] is not batch or self._last[1] < all_layers:
            self._last = (batch, all_layers, self.fresh(batch, all_layers))
        return self._last[2]

    def fresh(self, batch: Batch, all_layers: bool = False) -> Encoding:
        """Encodes again, with another dropout mask."""
        encoding: Encoding = self.backbone(batch, all_layers)
        return encoding


class Objective(nn.Module, ABC):
    """What a backbone is trained to do: hide the answer, predict it, score it. One file each in `objectives/`; those
    that learn from labels are in `tasks/`, beside the task they belong to. `__init__(config, backbone)`.

    Targets are named after the objective: `<name>.answers` (one entry for each answer that is scored) is required;
    `<name>.places` are the tokens it reads; `<name>.counts` says how many outputs `predict` gives for each row, where
    that is not one.
    """

    name: str
    Config: type[ObjectiveConfig]
    config: Any
    needs: ObjectiveNeeds = ObjectiveNeeds()

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets fresh weights that are not to start as small noise, which all have been given before."""
        return

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: Callable[[], np.ndarray]) -> None:
        """Takes what only the tokenizer and the corpus know; raises a UserError where they cannot serve."""
        return

    @abstractmethod
    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        """The rows as the model will see them, and the targets: arrays, and tuples of what stays on the host."""

    def corrupt(self, encoder: CachedEncoder, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        """Hides what takes a model to hide (ELECTRA's generator): the batch as all objectives will see it, and scores
        of its own, named `<name>.<part>`."""
        return batch, {}

    @abstractmethod
    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """The outputs for the batch, such as logits; for tasks what `Task.answer` understands."""

    @abstractmethod
    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        """Scores by name; training minimises the weighted sum of their means."""


class SelfUpdatingObjective(Objective):
    """An objective that updates the weights itself instead of giving gradients (word2vec's compiled loops)."""

    @abstractmethod
    def update(self, backbone: Backbone, rows: Rows, learning_rate: float) -> dict[str, Score]:
        """Changes its own weights and the backbone's by what the rows teach."""


class Task(ABC):
    """A kind of problem people have: labelled data, the objective that learns it, the metrics that judge it.

    Training, evaluation and prediction go the same way: `read` files into examples, cut them into `windows`, run the
    objective, combine the windows' outputs into one `answer` per example, and `judge` the answers.
    """

    Config: type[TaskConfig]
    needs: TaskNeeds = TaskNeeds()
    usage: Usage = Usage()

    def __init__(self, config: Any, data: Any) -> None:
        self.config, self.data = config, data  # `data`: the recipe's section (`text/labelled.py`)

    @final
    def replace(self, config: dict[str, Any] | None = None, **data: Any) -> Self:
        """The same task with some values of its config or of its data section changed."""
        return type(self)(self.config.model_copy(update=config or {}), self.data.model_copy(update=data))

    @abstractmethod
    def read(self, path: str, labelled: bool = True) -> Examples:
        """The examples of a file; columns that the recipe does not name are found by their usual names."""

    @abstractmethod
    def example(self, given: Any) -> Any:
        """An example without an answer, from what a Python caller gives."""

    def fit_labels(self, examples: Sequence[Any]) -> Self:
        """The task with what only the training examples can tell (its labels) filled in."""
        return self

    @abstractmethod
    def objective(self, backbone: Backbone) -> Objective:
        """A fresh head for this backbone."""

    @abstractmethod
    def windows(self, examples: Sequence[Any], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        """The rows of the examples, in order, and what did not fit."""

    @abstractmethod
    def answer(
        self, examples: Sequence[Any], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        """One answer for each example, from the outputs for its windows."""

    def tune(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> Self:
        """The task with what only scored answers can tell (a threshold) filled in."""
        return self

    @abstractmethod
    def judge(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> Judgement:
        """Metrics, the right answers, and what a report shows."""
