"""The values passed between rooms: rows, batches, encodings, scores, windows, examples, evaluations, needs.

Shapes: T tokens of all rows of a batch, R rows, W width.

Notable choices
- Rows and batches are FLAT: the ids of all rows end to end plus the rows' lengths. There is no padding outside the
  attention kernels, so no other layer needs a mask.
- Rows are sorted by length, longest first: rows of equal length are adjacent, so attention can batch them.
- `lengths` is a tuple of Python ints: the host knows a batch's shape without synchronising with the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from keel.errors import Rejected, separate
from keel.report_tables import Plot, Table


@dataclass(frozen=True)
class Rows:
    """Packed rows before they become tensors: flat numpy arrays.

    `keys` (R,) uint64 is a stable id of each row: a hash of (seed, epoch, index), from which all randomness about the
    row derives. `answers` holds labels from the packer or task, which the model must not see, one value per row
    (`next_sentence`: 0 follows, 1 random); `token_answers` the same per token (`tag`: the index of a label, or -1).
    """

    ids: np.ndarray  # (T,) int64
    lengths: tuple[int, ...]  # R
    segments: np.ndarray  # (T,) int64
    special: np.ndarray  # (T,) bool: [CLS], [SEP]; never masked
    word_starts: np.ndarray  # (T,) bool
    keys: np.ndarray  # (R,) uint64
    answers: dict[str, np.ndarray] = field(default_factory=dict)
    token_answers: dict[str, np.ndarray] = field(default_factory=dict)

    def pick(self, rows: Sequence[int]) -> Rows:
        """Some of the rows, in the given order."""
        stops = np.cumsum(self.lengths)
        places = np.concatenate([np.arange(stops[r] - self.lengths[r], stops[r]) for r in rows])
        chosen = np.asarray(rows)
        return Rows(
            self.ids[places],
            tuple(self.lengths[r] for r in rows),
            self.segments[places],
            self.special[places],
            self.word_starts[places],
            self.keys[chosen],
            {name: values[chosen] for name, values in self.answers.items()},
            {name: values[places] for name, values in self.token_answers.items()},
        )

    @property
    def starts(self) -> np.ndarray:
        """(R,): the index of each row's first token, [CLS]."""
        return np.cumsum((0, *self.lengths))[:-1]

    @property
    def ends(self) -> np.ndarray:
        """(R,): the index of each row's last token."""
        return np.cumsum(self.lengths) - 1

    def count(self, places: np.ndarray) -> tuple[int, ...]:
        """The number of these tokens in each row."""
        return tuple(np.bincount(self.row_of_token[places], minlength=len(self.lengths)).tolist())

    @property
    def row_of_token(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position_of_token(self) -> np.ndarray:
        return np.concatenate([np.arange(n) for n in self.lengths]) if self.lengths else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Selected:
    """Some tokens of a flat batch, in order, each once; and their number in each row."""

    places: Tensor  # (S,)
    counts: tuple[int, ...]  # R


@dataclass(frozen=True)
class WordSpellings:
    """The distinct words of a batch, for backbones that read characters."""

    ids: Tensor  # (U,) in order; out-of-vocabulary words come last
    index: Tensor  # (T,) the index of each token's word among them
    unknown: Tensor  # (N, L) the spellings of out-of-vocabulary words (`tokenizers/spelling.py`)


@dataclass(frozen=True)
class Inspection:
    """What an explanation (`explain/`) changes inside one forward pass, and what it collects there.

    Shapes: T tokens, E width of an embedding, N layers, R rows, H heads, L length of a row."""

    embedded: Tensor | None = None  # (T, E): used instead of the token embeddings of `ids`
    head_factors: Tensor | None = None  # (N, R, H): factors on the outputs of the heads; 0 switches a head off
    weights: dict[int, list[Tensor]] | None = None  # filled by layer: (R, H, L, L) for each run of rows of equal length
    normed: bool = False  # apply a stack's final norm to every layer, so that a head can read each of them


@dataclass(frozen=True)
class Batch:
    """The input of a backbone. `targets` is filled by objectives, each under its own name.

    `selected` holds the tokens whose vectors some objective reads, if not all: a backbone may leave the others at zero
    and so skip most of its last layer.
    """

    ids: Tensor  # (T,)
    lengths: tuple[int, ...]  # R, longest first
    segments: Tensor  # (T,)
    positions: Tensor  # (T,)
    starts: Tensor  # (R,)
    ends: Tensor  # (R,)
    targets: dict[str, Any] = field(default_factory=dict)  # tensors; tuples stay on the host
    selected: Selected | None = None
    spellings: WordSpellings | None = None  # for backbones that read characters
    inspection: Inspection | None = None  # for `keel explain`; otherwise None, and nothing is collected

    @staticmethod
    def of(
        rows: Rows,
        targets: dict[str, Any],
        device: torch.device | str = "cpu",
        selected: np.ndarray | None = None,
    ) -> Batch:
        def send(array: np.ndarray) -> Tensor:
            kind = np.float32 if np.issubdtype(array.dtype, np.floating) else np.int64
            return torch.from_numpy(np.ascontiguousarray(array, dtype=kind)).to(device, non_blocking=True)

        return Batch(
            send(rows.ids),
            rows.lengths,
            send(rows.segments),
            send(rows.position_of_token),
            send(rows.starts),
            send(rows.ends),
            {name: values if isinstance(values, tuple) else send(values) for name, values in targets.items()},
            None if selected is None else Selected(send(selected), rows.count(selected)),
        )


@dataclass(frozen=True)
class Encoding:
    """A backbone's output: one vector per token, and on request those of every layer, embeddings first."""

    vectors: Tensor  # (T, W)
    layers: tuple[Tensor, ...] = ()

    @staticmethod
    def of(batch: Batch, layers: Sequence[Tensor], selected: Selected | None, all_layers: bool) -> Encoding:
        """Drops padding tokens; vectors of tokens that were not selected become zero."""
        tokens, last = len(batch.ids), layers[-1]
        if selected is not None:
            return Encoding(last.new_zeros(tokens, last.shape[1]).index_copy(0, selected.places, last))
        return Encoding(last[:tokens], tuple(layer[:tokens] for layer in layers) if all_layers else ())


@dataclass(frozen=True)
class Score:
    """An objective's loss and accuracy on one batch, as sums, so that the micro-batches of a step add up exactly."""

    loss: Tensor  # () sum over the predictions
    correct: Tensor | None  # () number of correct predictions; None for regression
    count: int  # number of predictions
    weight: float = 1.0  # of the mean loss in the total loss


@dataclass(frozen=True)
class Window:
    """A row made from an example: all of it, or one of several overlapping parts of a long text."""

    ids: np.ndarray  # (n,) with [CLS] and [SEP]
    segments: np.ndarray  # (n,)
    special: np.ndarray  # (n,) bool
    example: int  # the example's index
    answers: dict[str, Any] = field(default_factory=dict)  # one value for the row
    token_answers: dict[str, np.ndarray] = field(default_factory=dict)  # (n,) one value per token
    place: Any = None  # private to the task: whatever maps tokens back to the text


@dataclass(frozen=True)
class Truncation:
    """The amount of text that did not fit into rows. Nothing is truncated silently."""

    texts: int = 0
    truncated_texts: int = 0
    tokens: int = 0
    truncated_tokens: int = 0

    def __add__(self, other: Truncation) -> Truncation:
        return Truncation(
            self.texts + other.texts,
            self.truncated_texts + other.truncated_texts,
            self.tokens + other.tokens,
            self.truncated_tokens + other.truncated_tokens,
        )


@dataclass(frozen=True)
class ExampleFile:
    """The examples of a file. `rows` reads it from the beginning each time, so they need not fit into memory."""

    rows: Callable[[], Iterator[Any]]  # examples, and a `Rejected` for each row that cannot be used
    data: Any  # the recipe's data section (`text/labelled.py`), with the columns that were found
    notes: Callable[[Iterable[Any]], tuple[str, ...]] = lambda examples: ()  # warnings about usable examples


@dataclass(frozen=True)
class Examples:
    """All examples of a file, in memory."""

    examples: list[Any]
    rejected: list[Rejected]
    data: Any
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(file: ExampleFile) -> Examples:
        examples, rejected = separate(file.rows())
        return Examples(examples, rejected, file.data, file.notes(examples))


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a task's answers."""

    metrics: dict[str, float]
    primary: str  # the metric by which two runs are compared; larger is better
    constant: bool  # all answers are the same although the gold ones are not
    baseline: float = 0.0  # the primary metric of the best answer that is the same for all examples
    details: Callable[[], list[Table | Plot]] = list  # for the report: scores by label, and the worst errors
    f1_by_label: dict[str, float] = field(default_factory=dict)  # or by type of entity, if the task has them

    @property
    def learned_nothing(self) -> bool:
        """Whether the model is no better than a constant answer."""
        return self.constant or not self.metrics[self.primary] > self.baseline


class Scorer(ABC):
    """Evaluates answers that arrive in groups. It keeps counts, not texts, so memory does not grow with the file."""

    @abstractmethod
    def update(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> None:
        """Adds some examples and their answers."""

    @abstractmethod
    def compute(self) -> Evaluation:
        """The metrics of all answers so far."""

    @abstractmethod
    def gold(self, example: Any) -> Any:
        """The gold answer of an example, as JSON."""

    @final
    def evaluate(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> Evaluation:
        """The metrics of a single group."""
        self.update(examples, answers)
        return self.compute()


@dataclass(frozen=True)
class ObjectiveNeeds:
    """An objective's requirements on rows and encoder."""

    packing: str | None = None  # the `data.packing` that provides its labels; None: any
    vectors: Literal["all", "rows", "places"] = "all"  # those it reads: all, the row vectors, or `<name>.places`
    whole_batch: bool = False  # rows depend on each other (in-batch negatives), so micro-batch losses do not add up


@dataclass(frozen=True)
class TaskNeeds:
    """A task's requirements on training."""

    keep_together: bool = False  # an example's windows are compared with each other, so they share a micro-batch
    group_by_length: bool = False  # a step has examples of similar length, because its decoder pads
    full_embeddings: bool = False  # trains the full embedding matrix, not only the rows that the data uses
    long: tuple[str, ...] = ("head", "tail", "head-tail", "windows")  # the strategies for long texts that it has


@dataclass(frozen=True)
class Usage:
    """An example input of this task: on the command line, and inside `predict([...])`."""

    command: str = '"A text."'
    python: str = '"A text."'
    several_texts: bool = False  # an input is more than one text
