"""The values that pass between rooms: rows, batches, encodings, scores, windows, judgements, needs.

Shapes: T tokens of all rows of a batch, R rows, W width.

Notable choices
- Rows and batches are FLAT: the ids of all rows end to end plus the rows' lengths. There is no padding outside the
  attention kernels, so no other layer needs a mask.
- Rows are sorted by length, longest first: rows of equal length are neighbours and can be attended together.
- `lengths` is a tuple of Python ints: the host knows the shape of the batch, so no kernel launch waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from keel.report_tables import Plot, Table


@dataclass(frozen=True)
class Rows:
    """Packed rows before they become tensors: flat numpy arrays.

    `keys` (R,) uint64 is a stable id of each row: a hash of (seed, epoch, index), from which all randomness about the
    row derives. `answers` holds what the packer or task knows and the model must not see, one value for each row
    (`next_sentence`: 0 follows, 1 random); `token_answers` the same for each token (`tag`: a label's number, or -1).
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
        """(R,): the place of each row's first token, [CLS]."""
        return np.cumsum((0, *self.lengths))[:-1]

    @property
    def ends(self) -> np.ndarray:
        """(R,): the place of each row's last token."""
        return np.cumsum(self.lengths) - 1

    def count(self, places: np.ndarray) -> tuple[int, ...]:
        """How many of these tokens each row has."""
        return tuple(np.bincount(self.row_of_token[places], minlength=len(self.lengths)).tolist())

    @property
    def row_of_token(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position_of_token(self) -> np.ndarray:
        return np.concatenate([np.arange(n) for n in self.lengths]) if self.lengths else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Selected:
    """Some tokens of a flat batch, in order, each once; and how many of each row."""

    places: Tensor  # (S,)
    counts: tuple[int, ...]  # R


@dataclass(frozen=True)
class WordSpellings:
    """The distinct words of a batch, for backbones that read characters."""

    ids: Tensor  # (U,) in order; words without a vocabulary entry come last
    index: Tensor  # (T,) the place of each token's word among them
    unknown: Tensor  # (N, L) the spellings of words without an entry (`tokenizers/spelling.py`)


@dataclass(frozen=True)
class Batch:
    """What a backbone reads. `targets` is filled by objectives, each under its own name.

    `selected` holds the tokens whose vectors some objective reads, where that is not all of them: a backbone may leave
    the others at zero, and so skip most of its last layer.
    """

    ids: Tensor  # (T,)
    lengths: tuple[int, ...]  # R, longest first
    segments: Tensor  # (T,)
    positions: Tensor  # (T,)
    starts: Tensor  # (R,)
    ends: Tensor  # (R,)
    targets: dict[str, Any] = field(default_factory=dict)  # tensors; tuples stay on the host
    selected: Selected | None = None
    spellings: WordSpellings | None = None  # where the backbone reads characters

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
    """A backbone's output: one vector per token, and (if requested) those of every layer, embeddings first."""

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
    """What an objective measured on one batch, as sums, so that micro-batches of a step add up exactly."""

    loss: Tensor  # () sum over the answers
    correct: Tensor | None  # () how many answers were right; None where answers are numbers
    count: int  # how many answers there were
    weight: float = 1.0  # of the mean loss in the sum that training minimises


@dataclass(frozen=True)
class Window:
    """A row that a task made of an example: the whole example, or one of several overlapping parts of a long one."""

    ids: np.ndarray  # (n,) with [CLS] and [SEP]
    segments: np.ndarray  # (n,)
    special: np.ndarray  # (n,) bool
    example: int  # the example's number
    answers: dict[str, Any] = field(default_factory=dict)  # one value for the row
    token_answers: dict[str, np.ndarray] = field(default_factory=dict)  # (n,) one value for each token
    place: Any = None  # private to the task: whatever maps tokens back to the text


@dataclass(frozen=True)
class Truncation:
    """How much of the texts did not fit into rows. Nothing is cut silently."""

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
class Examples:
    """What a task read from a file."""

    examples: list[Any]
    rejected: list[Any]  # rows that cannot be used, with file, line and reason
    data: Any  # the recipe's data section (`text/labelled.py`), with the columns that were found
    notes: tuple[str, ...] = ()  # oddities of examples that can be used nevertheless


@dataclass(frozen=True)
class Judgement:
    """How good a task's answers are."""

    metrics: dict[str, float]
    primary: str  # the metric by which two runs are compared; larger is better
    gold: list[Any]  # the right answer of each example
    constant: bool  # the answers are the same whatever the text, though they should not be: nothing was learned
    details: Callable[[], list[Table | Plot]] = list  # for the report: by label, and the worst errors


@dataclass(frozen=True)
class ObjectiveNeeds:
    """What an objective asks of its rows and of the encoder."""

    packing: str | None = None  # the `data.packing` that gives its answers; None: any
    vectors: Literal["all", "rows", "places"] = "all"  # which it reads: all, the row vectors, or `<name>.places`
    whole_batch: bool = False  # its rows depend on each other (in-batch negatives): their losses do not add up


@dataclass(frozen=True)
class TaskNeeds:
    """What a task asks of training."""

    keep_together: bool = False  # an example's windows are compared with each other, so they share a micro-batch
    group_by_length: bool = False  # a step takes examples of similar length, because padding would cost
    full_embeddings: bool = False  # trains the full embedding matrix, not only the rows that the data uses


@dataclass(frozen=True)
class Usage:
    """How to ask a model of this task: on the command line, and inside `predict([...])`."""

    command: str = '"A text."'
    python: str = '"A text."'
    several_texts: bool = False  # an input is more than one text
