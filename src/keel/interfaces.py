"""READ FIRST: the contracts of Keel. A new tokenizer, backbone, objective or task is one class in one file.

The path of a token: `Tokenizer` (text -> ids), corpus (ids on disk with sentence, document and word boundaries),
`Rows` (packed rows as numpy arrays), `Objective.prepare` (masks the targets), `Batch` (the same as tensors),
`Backbone` (one vector per token), `Objective.forward` (named losses). The values are in `values.py`, the options that
recipes set in `configs.py`.

Shapes: T tokens of all rows of a batch, R rows, W width, E width of an embedding, V vocabulary.

Notable choice: an objective receives the encoder, not its output. Weight tying is then a method call, and an objective
may encode twice, or own a backbone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from keel.configs import BackboneConfig, ObjectiveConfig, TaskConfig
from keel.in_memory import Source
from keel.values import (
    Batch,
    Encoding,
    ExampleFile,
    ObjectiveNeeds,
    Rows,
    Score,
    Scorer,
    TaskNeeds,
    Truncation,
    Usage,
    Window,
)


class Tokenizer(Protocol):
    """Text <-> ids. Special tokens are identified by role, not by spelling; the id of a missing role is -1."""

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
        assert config.vocabulary, "the vocabulary size must be known before the model is built"
        self.config: Any = config
        self.width = config.width  # of its output vectors
        self.max_length, self.context = config.max_length, config.context
        self.pooler: nn.Module | None = None  # (R, W) -> (R, W); set if `config.pooler` is true

    @abstractmethod
    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        """Encodes. `all_layers` also returns the vectors of each layer, embeddings first."""

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Initialises the weights; the same generator gives the same weights."""

    @abstractmethod
    def token_embeddings(self) -> Tensor:
        """(V, E): the input embeddings, for tied output layers."""

    @abstractmethod
    def token_head(self) -> nn.Module:
        """A new head of this family that predicts tokens from vectors (`layers/token_head.py`)."""

    def attach_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Copies what it needs from the tokenizer (spellings), before the first step."""
        return

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the vector that represents each row: that of [CLS], or of the last token of a causal model."""
        return vectors[batch.ends if self.context == "left" else batch.starts]

    @final
    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the row vectors, after the pooler if there is one."""
        rows = self.row_vectors(vectors, batch)
        return rows if self.pooler is None else self.pooler(rows)


class CachedEncoder:
    """The encoder that objectives get: it encodes a batch once, whatever the number of objectives."""

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
    """A training objective: masks the targets, predicts them, scores the predictions. One file each in `objectives/`;
    those that learn from labels are in `tasks/`, next to their task. `__init__(config, backbone)`.

    Targets are named after the objective: `<name>.answers` (one entry per scored prediction) is required;
    `<name>.places` are the tokens it reads; `<name>.counts` is the number of outputs of `predict` for each row, if not
    one.
    """

    name: str
    Config: type[ObjectiveConfig]
    config: Any
    needs: ObjectiveNeeds = ObjectiveNeeds()

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets the weights that should not keep their default initialisation (small normal noise)."""
        return

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: Callable[[], np.ndarray]) -> None:
        """Copies what it needs from tokenizer and corpus; raises a UserError if they are unsuitable."""
        return

    @abstractmethod
    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        """The rows as model input, and the targets: arrays, and tuples for values that stay on the host."""

    def corrupt(self, encoder: CachedEncoder, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        """Corruption that needs a model (ELECTRA's generator): the batch for all, and scores named `<name>.<part>`."""
        return batch, {}

    @abstractmethod
    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """The outputs for the batch, such as logits; for tasks, the input of `Task.answer`."""

    @abstractmethod
    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        """Scores by name; training minimises the weighted sum of their means."""


class SelfUpdatingObjective(Objective):
    """An objective that updates the weights itself, without gradients (word2vec's compiled loops)."""

    @abstractmethod
    def update(self, backbone: Backbone, rows: Rows, learning_rate: float) -> dict[str, Score]:
        """One training step on these rows: updates its own weights and the backbone's."""


class Task(ABC):
    """A kind of problem: labelled data, the objective that learns it, the metrics that evaluate it.

    Training, evaluation and prediction share these steps: `open` a file of examples, split them into `windows`, run the
    objective, combine the windows' outputs into one `answer` per example, and evaluate the answers with a `scorer`.
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
    def open(self, source: Source, labelled: bool = True) -> ExampleFile:
        """The examples of a file, or of rows in memory; columns that the recipe does not name are guessed."""

    @abstractmethod
    def example(self, given: Any) -> Any:
        """An example without an answer, from a Python caller's input."""

    def fit_labels(self, examples: Sequence[Any]) -> Self:
        """The task with settings derived from the training examples (its labels)."""
        return self

    @abstractmethod
    def objective(self, backbone: Backbone) -> Objective:
        """A new head for this backbone."""

    @abstractmethod
    def windows(self, examples: Sequence[Any], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        """The rows of the examples, in order, and how much was truncated."""

    @abstractmethod
    def answer(
        self, examples: Sequence[Any], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        """One answer per example, from the outputs for its windows."""

    def tune(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> Self:
        """The task with settings tuned on scored answers (a threshold)."""
        return self

    @abstractmethod
    def scorer(self) -> Scorer:
        """Computes the metrics of answers, and the tables and plots of a report."""
