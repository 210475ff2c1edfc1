"""READ FIRST: the words Keel is built from.

A token passes these in order: `Tokenizer` (text -> ids), corpus (ids on disk with sentence, document and word
boundaries), `Rows` (some packed rows as numpy arrays), `Objective.prepare` (hides the answers), `Batch` (the same as
tensors), `Backbone` (one vector per token), `Objective.forward` (named losses).

Shapes: T tokens of all rows of a batch, R rows, W width, P positions an objective asks about.

Notable choices
- Rows and batches are FLAT: the ids of all rows end to end plus the rows' lengths. There is no padding outside the
  attention kernel, so no other layer needs a mask.
- Rows stand in order of length, longest first: rows of equal length are neighbours and can be attended together.
- `lengths` is a tuple of Python ints: the host knows the shape of the batch, so no kernel launch waits for the device.
- An objective receives the backbone, not its output: weight tying is a call, and an objective may own or call a
  backbone of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from keel.checkpoint import Published

if TYPE_CHECKING:
    from pydantic import BaseModel


class Tokenizer(Protocol):
    """Text <-> ids. Special tokens are known by role, not by spelling."""

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


@dataclass(frozen=True)
class Rows:
    """Packed rows before they become tensors: flat numpy arrays.

    `keys` (R,) uint64 names each row for ever: a hash of (seed, epoch, index). All randomness about a row derives
    from its key. `answers` holds what the packer knows and the model must not, for each row (`next_sentence`: 0
    follows, 1 random), and `marks` the same for each token (`tag`: the label of the word that begins here, or -1).
    """

    ids: np.ndarray  # (T,) int64
    lengths: tuple[int, ...]  # R
    segments: np.ndarray  # (T,) int64
    special: np.ndarray  # (T,) bool: [CLS], [SEP]; never hidden
    word_starts: np.ndarray  # (T,) bool
    keys: np.ndarray  # (R,) uint64
    answers: dict[str, np.ndarray] = field(default_factory=dict)
    marks: dict[str, np.ndarray] = field(default_factory=dict)

    def pick(self, rows: Sequence[int]) -> Rows:
        """Some of the rows, in the order asked for."""
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
            {name: values[places] for name, values in self.marks.items()},
        )

    @property
    def starts(self) -> np.ndarray:
        """Where each row begins: the place of its [CLS]."""
        return np.cumsum((0, *self.lengths))[:-1]

    @property
    def ends(self) -> np.ndarray:
        """The place of each row's last token."""
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
class Asked:
    """Some places of a flat batch, in order, each once; and how many of each row."""

    places: Tensor  # (A,)
    counts: tuple[int, ...]  # R


@dataclass(frozen=True)
class Spelt:
    """The different words of a batch, for backbones that read their characters."""

    ids: Tensor  # (U,) in order; those beyond the vocabulary come last
    which: Tensor  # (T,) the place of each token's word among them
    unknown: Tensor  # (N, L) how those beyond the vocabulary are spelt (`tokenizers/spelling.py`)


@dataclass(frozen=True)
class Batch:
    """What a backbone reads. `targets` is filled by objectives, each under its own name.

    `asked` holds the places whose vectors somebody will look at, where that is not all of them: a backbone may leave
    the others at zero, and so save most of its last layer.
    """

    ids: Tensor  # (T,)
    lengths: tuple[int, ...]  # R, longest first
    segments: Tensor  # (T,)
    positions: Tensor  # (T,)
    starts: Tensor  # (R,)
    ends: Tensor  # (R,)
    targets: dict[str, Any] = field(default_factory=dict)  # tensors; what is a tuple stays on the host
    asked: Asked | None = None
    spelt: Spelt | None = None  # where the backbone reads spellings

    @staticmethod
    def of(
        rows: Rows,
        targets: dict[str, Any],
        device: torch.device | str = "cpu",
        asked: np.ndarray | None = None,
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
            None if asked is None else Asked(send(asked), rows.count(asked)),
        )


@dataclass(frozen=True)
class Encoding:
    """A backbone's answer: one vector per token, and (if asked) those of every layer, embeddings first."""

    vectors: Tensor  # (T, W)
    layers: tuple[Tensor, ...] = ()

    @staticmethod
    def of(batch: Batch, layers: Sequence[Tensor], asked: Asked | None, every_layer: bool) -> Encoding:
        """Filler cut off; where only some places were asked for, the last layer has no others, and they become zero."""
        tokens, last = len(batch.ids), layers[-1]
        if asked is not None:
            return Encoding(last.new_zeros(tokens, last.shape[1]).index_copy(0, asked.places, last))
        return Encoding(last[:tokens], tuple(layer[:tokens] for layer in layers) if every_layer else ())


class Backbone(nn.Module, ABC):
    """`forward(batch) -> Encoding`. No head, no loss. Subclasses carry a `Config` (pydantic) and a `config`, and
    `published`, their border with Hugging Face folders.

    Fine-tuning reaches inside by three names: `tokens`, in whose place it may put a table of fewer rows; `blocks`, the
    layers from the bottom up, which may learn at different rates, not at all, or start afresh; `pooler`, which comes
    and goes with the task (the config's `pooler` says whether there is one).

    `causal`: a token sees only what came before it, so a row is best known by its last token.
    `averages`: a token sees nothing but itself, so a row is best known by the mean of its tokens.
    `reads_spellings`: tokens are words and are read character by character, those without an entry too.
    `head`: what the family has between its vectors and a guess of the token (`layers/token_head.py`).
    """

    Config: type[BaseModel]
    published: Published
    config: Any
    width: int
    longest: int
    tokens: nn.Module  # (T,) ids -> (T, E), with a `weight`; E is W unless a family has smaller embeddings. Those that
    # read spellings have none
    blocks: nn.ModuleList
    pooler: nn.Module | None
    causal: bool = False
    averages: bool = False
    reads_spellings: bool = False
    has_table: bool = True  # whether tokens have input embeddings (`token_table`)
    head: Literal["dense", "dense without biases", "plain"] = "dense"
    head_activation: str | None = None  # of that head, where it is not the layers'

    @abstractmethod
    def forward(self, batch: Batch, every_layer: bool = False) -> Encoding:
        """Encodes. `every_layer` also returns the vectors of each layer, embeddings first."""

    def meet(self, tokenizer: Tokenizer) -> None:
        """Takes note of what only the tokenizer knows, before the first step."""
        return

    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the vector by which each row is known best: that of its [CLS], or of its last token."""
        return vectors[batch.ends if self.causal else batch.starts]

    def pool(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(R, W): the same through the pooler, where there is one."""
        return self.row_vectors(vectors, batch)

    @abstractmethod
    def start(self, generator: torch.Generator) -> None:
        """Fresh weights, the same for the same generator."""

    @abstractmethod
    def token_table(self) -> Tensor:
        """(vocabulary, E): the input embeddings, for objectives that tie their output to them."""


@dataclass(frozen=True)
class Score:
    """What an objective measured on one batch, as sums, so that slices of a step add up exactly."""

    loss: Tensor  # () sum over the answers
    correct: Tensor | None  # () how many answers were right; None where an answer is a number, near or far
    count: int  # how many answers there were


class Objective(nn.Module, ABC):
    """What a backbone is asked to do: hide the answer, predict it, score it. One file each in `objectives/`; those
    that learn from labels stand in `tasks/`, beside the task they belong to."""

    name: str
    Config: type[BaseModel]
    config: Any
    weight: float = 1.0  # of its loss in the sum that training minimises
    as_published: Mapping[str, Any] = MappingProxyType({})  # the options of a head that a published folder has
    shows_mask = False  # whether it hides behind the tokenizer's mask token
    moves_weights = False  # whether it learns by a `learn(backbone, rows, rate)` of its own, not by gradients
    searches = False  # whether `predict` looks at numbers on its way, and so waits for the device
    wants_counts = False  # whether it is to `meet` the corpus
    packing: str | None = None  # the `data.packing` whose answers it learns from; None: any
    looks_at: Literal["all", "rows", "places"] = "all"  # which vectors: all, what rows are pooled from, `<name>.places`
    one_for: Literal["row", "token", "mark"] = "row"  # what `predict` gives one output for; marks are those >= 0

    def begin(self, generator: torch.Generator) -> None:
        """Gives those of its fresh weights that are not to start as small noise their values."""
        return

    def meet(self, counts: np.ndarray, tokenizer: Tokenizer) -> None:
        """Takes note of how often each token occurs in the corpus."""
        return

    @abstractmethod
    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        """Hides: the rows as the model will see them, and the targets (names start with the objective's own): arrays,
        and tuples of what must be known without waiting for a device."""

    def disguise(self, backbone: Backbone, batch: Batch) -> tuple[Batch, dict[str, Score]]:
        """Hides what takes a model to hide: the batch as all objectives will see it, and what that was worth by itself
        (names are the objective's own and a part: `replaced_token.generator`)."""
        return batch, {}

    def weights(self) -> dict[str, float]:
        """The weight of each score, by name."""
        return {self.name: self.weight}

    @abstractmethod
    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        """The logits at the places the batch asks about."""

    @abstractmethod
    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        """Scores by name; training minimises the sum of their means."""


@dataclass(frozen=True)
class Window:
    """A row that a task made of an example: the whole of it, or one of several parts of a long one."""

    ids: np.ndarray  # (n,) with [CLS] and [SEP]
    segments: np.ndarray  # (n,)
    special: np.ndarray  # (n,) bool
    example: int  # the example's number
    answers: dict[str, Any] = field(default_factory=dict)  # one value for the row
    marks: dict[str, np.ndarray] = field(default_factory=dict)  # (n,) one value for each token
    place: Any = None  # the task's own: what it needs to find its way from tokens back to the text


@dataclass(frozen=True)
class Table:
    """Something a person reads in a report. `matrix`: counts of pairs, shaded by their share of the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    matrix: bool = False


@dataclass(frozen=True)
class Plot:
    """The same as a picture. `diagonal`: the line that perfect answers would lie on."""

    title: str
    points: Sequence[tuple[float, float]]
    x_label: str
    y_label: str
    diagonal: bool = False


class Task(ABC):
    """A kind of problem people have: labelled data, the objective that learns it, the metrics that judge it, and how
    an answer is shown. One file each in `tasks/`.

    Training, evaluation and prediction go the same way: `read` files to examples, cut them into `windows`, ask the
    objective, put the windows' outputs together in `answer`, and `score` answers against what the examples say.
    """

    Config: type[BaseModel]
    config: Any
    headline: str  # the figure by which two runs are compared; larger is better
    gist: str  # the key of an answer that says most
    whole = False  # an example's windows are compared with each other, so they stay together in a step
    needs_table = False  # the whole of the encoder's table of tokens learns, not only what the training data mentions
    alike = False  # a step takes examples of similar length: the objective fills shorter ones up, or walks through them
    several_texts = False  # an input is more than one text
    usage = ('"A text."', '"A text."')  # what to ask: on the command line, and inside predict([...])

    def bind(self, path: str) -> Task:
        """The task with the columns of this training file found, where the recipe does not name them."""
        return self

    @abstractmethod
    def read(self, path: str, labelled: bool = True) -> tuple[list[Any], list[Any]]:
        """The examples of a file, and the rows that had to be left out with their reasons."""

    @abstractmethod
    def example(self, given: Any) -> Any:
        """An example without an answer, from what a Python caller gives."""

    def remarks(self, examples: Sequence[Any]) -> list[str]:
        """What was odd about examples that can be used nevertheless."""
        return []

    @abstractmethod
    def settle(self, examples: Sequence[Any]) -> Task:
        """The task with what only the training examples can tell (its labels) filled in."""

    @abstractmethod
    def objective(self, backbone: Backbone) -> Objective:
        """A fresh head for this backbone."""

    @abstractmethod
    def windows(self, examples: Sequence[Any], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        """The rows of the examples, in order, and what did not fit."""

    @abstractmethod
    def answer(
        self, examples: Sequence[Any], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        """One answer for each example, from the outputs for its windows."""

    def tune(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> Task:
        """The task with what only judged answers can tell (a threshold) filled in."""
        return self

    @abstractmethod
    def score(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        """The figures that judge the answers."""

    def gold(self, example: Any) -> Any:
        """What the example says is right."""
        return example.answer

    def degenerate(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> bool:
        """Whether the answers are the same whatever the text, though they should not be: nothing was learnt."""
        said = {str(answer[self.gist]) for answer in answers}
        return len(said) == 1 and len({str(self.gold(example)) for example in examples}) > 1

    def details(self, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        """What a person wants to see beyond the figures: by label, and the worst errors."""
        return []


@dataclass(frozen=True)
class Cut:
    """How much of the texts did not fit into rows. Nothing is cut silently."""

    texts: int = 0
    cut_texts: int = 0
    tokens: int = 0
    cut_tokens: int = 0

    def __add__(self, other: Cut) -> Cut:
        return Cut(
            self.texts + other.texts,
            self.cut_texts + other.cut_texts,
            self.tokens + other.tokens,
            self.cut_tokens + other.cut_tokens,
        )
