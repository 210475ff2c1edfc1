"""`keel.load(path)`: a loaded model.

In: texts. Out: `fill` gives ranked predictions for each [MASK], `encode` one array of token vectors per text, `embed`
one vector per text, `predict` the answers of the model's task.

Notable choices
- Texts are encoded in order of length, in flat batches of a fixed number of tokens, and returned in the given order:
  no padding, and memory does not grow with the number of texts.
- A text longer than the model's positions is an error in `fill` and `encode`, never silently truncated; `predict`
  handles long texts as in training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from keel.batching import groups
from keel.configs import brief
from keel.errors import UserError, separate, suggest
from keel.explain.explain import explain
from keel.files.folders import check_free, write_folder
from keel.hugging_face.folder import load_model, save_model
from keel.hugging_face.sentence_encoder import SentenceEncoder, copy_sentence_encoder, read_sentence_encoder
from keel.in_memory import as_source, is_table
from keel.inference.generate import generate
from keel.inference.work import Work, run
from keel.interfaces import Task
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import output
from keel.machine import find_device, prepare_cpu, return_freed_memory
from keel.tokenizers.library import LibraryTokenizer
from keel.values import Batch, Rows, Truncation

GROUP_SIZE = 1 << 21  # characters of the examples that are computed together: about 2,000 short texts
POOLINGS = ("mean", "cls", "max")
MASK_SIZE = 8  # of a [MASK] in a batch, in tokens: the product with the vocabulary, and its memory
EXAMPLE_SIZE = 1 << 10  # of an example without text
GROUPS_AT_ONCE = 4  # computed before memory is returned; each may leave as many holes as it has tensors

T = TypeVar("T")
Truncate = bool | Literal["left"]


class Answered(NamedTuple):
    """Examples that were computed together, their answers, and what did not fit."""

    examples: list[Any]
    answers: list[dict[str, Any]]
    truncation: Truncation


class TooLong(UserError):
    """A text has more tokens than the model reads."""


class Model:
    def __init__(
        self,
        learner: Learner,
        tokenizer: LibraryTokenizer,
        path: Path,
        task: Task | None = None,
        encoder: EncoderSettings | None = None,
    ) -> None:
        self.learner = learner.eval()
        self.tokenizer = tokenizer
        self.path = path
        self.task = task
        self.encoder_settings = encoder or EncoderSettings()
        self.device = next(learner.parameters()).device
        self._versions = self._count_updates()

    @staticmethod
    def load(path: str | os.PathLike[str], allow_pickle: bool = False, device: str = "auto") -> Model:
        """`device`: auto uses a GPU if there is one."""
        prepare_cpu()
        where = find_device(device)
        loaded = load_model(os.fspath(path), pickle=allow_pickle)
        encoder = loaded.setup.encoder if loaded.setup else None
        return Model(loaded.learner.to(where), loaded.tokenizer, loaded.path, loaded.task, encoder)

    def __repr__(self) -> str:
        config = self.learner.backbone.config
        heads = ", ".join(self.learner.objectives) or "no head"
        count = sum(parameter.numel() for parameter in self.learner.parameters())
        shape = f"{config.layers} layers of width {config.width}, {count:,} parameters, {self.tokenizer.size:,} tokens"
        return f"Model({str(self.path)!r}: {config.kind} with {heads}; {shape}; on {self.device})"

    @property
    def changed(self) -> bool:
        """Whether weights were changed since the model was opened, for instance by an optimizer."""
        return self._count_updates() != self._versions

    def _count_updates(self) -> tuple[int, ...]:
        return tuple(part._version for part in (*self.learner.parameters(), *self.learner.buffers()))

    @property
    def module(self) -> Learner:
        """The network as an nn.Module: `module.backbone` the encoder, `module.objectives` its heads."""
        return self.learner

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Writes the model, as it is now, into a new folder, and returns its path."""
        target = Path(out)
        check_free(target)
        card = self.path / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else f"# {target.name}\n"
        setup = TaskSetup(self.task, self.encoder_settings) if self.task else None
        with write_folder(target, {"keel": "save", "from": str(self.path)}) as folder:
            save_model(folder, self.learner, self.tokenizer, text, setup)
            copy_sentence_encoder(self.path, folder)
        return target

    def fill(self, text: str, top: int = 5) -> list[list[dict[str, Any]]]:
        """One ranked list of predictions per [MASK]."""
        return run(self.fill_work([text], top))[0]

    def fill_work(self, texts: Sequence[str], top: int = 5) -> Work[list[list[list[dict[str, Any]]]]]:
        """The same for several texts, as work."""
        if "masked_lm" not in self.learner.objectives:
            raise UserError(f"{self.path}: this model has no masked-language-model head, so it cannot fill blanks")
        rows = []
        for text in texts:
            ids, _ = self.tokenizer.encode_with_offsets(self.tokenizer.with_masks(text))
            rows.append(self._framed(np.asarray(ids), text))
            if self.tokenizer.mask not in ids:
                raise UserError(f"there is no {self.tokenizer.token(self.tokenizer.mask)} in the text: {_short(text)}")
        sizes = [len(row) + MASK_SIZE * int((row == self.tokenizer.mask).sum()) for row in rows]
        return Work((id(self), "fill", top), rows, sizes, lambda batch: self._fill(batch, top), list)

    def _fill(self, rows: list[np.ndarray], top: int) -> list[list[list[dict[str, Any]]]]:
        batch, order = self._batch(rows, lambda flat: {"masked_lm.places": np.flatnonzero(flat == self.tokenizer.mask)})
        with torch.inference_mode():
            logits = self.learner.objectives["masked_lm"].predict(self.learner.encoder(), batch)
            best = logits[:, : self.tokenizer.size].softmax(-1).topk(min(top, self.tokenizer.size))
        ranked = iter(zip(best.values.tolist(), best.indices.tolist(), strict=True))
        filled: list[Any] = [None] * len(rows)
        for row in order:
            filled[row] = [
                self._predictions(*next(ranked)) for _ in range(int((rows[row] == self.tokenizer.mask).sum()))
            ]
        return filled

    def _predictions(self, chances: list[float], ids: list[int]) -> list[dict[str, Any]]:
        return [
            {"token": self.tokenizer.shown(id).strip(), "id": id, "probability": chance}
            for chance, id in zip(chances, ids, strict=True)
        ]

    def predict(self, inputs: Any) -> list[dict[str, Any]]:
        """The model's predictions for its task, in the given order.

        An input is a text; a pair of texts; for `answer` a question and its text; for `choose` a text and its choices.
        A frame, a data set or a list of dictionaries has the columns that the model was trained with.
        """
        if isinstance(inputs, str):
            raise UserError("predict takes a list; write predict([text]) for one")
        if is_table(inputs):
            return self.answer(self._rows_of(inputs))
        return self.answer([self.example(given, number) for number, given in enumerate(inputs, 1)])

    def _rows_of(self, table: Any) -> list[Any]:
        """The examples of a table, each of which must be usable, so that answers stay aligned."""
        examples, rejected = separate(self.need_task().open(as_source(table, "inputs"), labelled=False).rows())
        if rejected:
            raise UserError(str(rejected[0]))
        return examples

    def example(self, given: Any, number: int) -> Any:
        """An example of the task, from the input with this number."""
        task = self.need_task()
        parts = list(_flat(given))
        if not all(isinstance(part, str) for part in parts):
            wrong = next(part for part in parts if not isinstance(part, str))
            raise UserError(f"input {number}: {brief(wrong)} is not a text; an input is {task.usage.python}")
        blank = [not part.strip() for part in parts]
        if all(blank) or (any(blank) and task.usage.several_texts):
            raise UserError(f"input {number}: the text is empty; leave it out")
        try:
            return task.example(given)
        except UserError as error:
            raise UserError(f"input {number}: {error}") from None

    def need_task(self) -> Task:
        if self.task is None:
            raise UserError(f"{self.path}: this model has not been fine-tuned, so it cannot predict; see keel finetune")
        return self.task

    def answer(self, examples: Sequence[Any], tell: Callable[[Truncation], None] | None = None) -> list[dict[str, Any]]:
        """The same for a task's examples, such as those read from a file. `tell` is called with what did not fit."""
        answers, truncation = list[dict[str, Any]](), Truncation()
        for group in self.answer_groups(examples):
            answers += group.answers
            truncation += group.truncation
        if tell:
            tell(truncation)
        return answers

    def answer_groups(self, examples: Iterable[Any]) -> Iterator[Answered]:
        """The answers group by group: examples, windows and outputs of one group are in memory at once."""
        for group in in_bounded_memory(groups(examples, size_of, GROUP_SIZE)):
            yield self.answer_group(group)

    def answer_group(self, examples: list[Any]) -> Answered:
        """The answers for examples that fit into memory together."""
        return run(self.answer_work(examples))

    def answer_work(self, examples: list[Any]) -> Work[Answered]:
        """The same as work."""
        task = self.need_task()
        windows, truncation = task.windows(examples, self.tokenizer)
        return Work(
            (id(self), "answer"),
            windows,
            [len(window.ids) for window in windows],
            lambda batch: output(self.learner, batch, self.tokenizer, self.device),
            lambda outputs: Answered(examples, task.answer(examples, windows, outputs), truncation),
        )

    def generate(self, text: str = "", **options: Any) -> list[dict[str, Any]]:
        """Texts that continue this one; the options are those of `keel.inference.generate.generate`."""
        return generate(self, text, **options)

    def explain(self, text: str, pair: Any = None, method: str = "attention", **options: Any) -> Any:
        """What the model computes for a text: `attention`, `heads`, `layers` or `attribution` (`keel.explain.explain`).

        The value has `as_json()`; the options are those of the method."""
        return explain(self, text, pair, method, **options)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """One (tokens, width) array per text, [CLS] and [SEP] included."""
        return run(self.encode_work(texts))

    def encode_work(
        self, texts: Sequence[str], *, prompt: str | None = None, truncate: Truncate = False
    ) -> Work[list[np.ndarray]]:
        """The same as work; `prompt` and `truncate` as in `embed`."""
        return self._vector_work(self.frame(self.prompted(texts, prompt), truncate), (-1,), None, list)

    def batch(self, texts: Sequence[str]) -> tuple[Batch, list[int]]:
        """The texts as an input of `module.backbone`, and which text is in which row: rows are sorted by length."""
        return self._batch(self.frame(texts))

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layers: Sequence[int] = (-1,),
        *,
        normalize: bool | None = None,
        prompt: str | None = None,
        truncate: Truncate = False,
    ) -> np.ndarray:
        """(texts, width): one vector per text, averaged over `layers`, where 0 is the embeddings and -1 the last layer.

        `pooling`: mean over the tokens, cls, or max; `normalize`: to length 1; `prompt`: the name of a text of the
        model's that is put before each text. None: as a sentence-transformers folder says, else the mean, as it is.
        `truncate`: cut the end (`"left"`: the beginning) of texts that are longer than a sentence-transformers folder
        says, or than the model's positions, which is an error otherwise.
        """
        return run(self.embed_work(texts, pooling, layers, normalize=normalize, prompt=prompt, truncate=truncate))

    def embed_work(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layers: Sequence[int] = (-1,),
        *,
        normalize: bool | None = None,
        prompt: str | None = None,
        truncate: Truncate = False,
    ) -> Work[np.ndarray]:
        """The same as work."""
        encoder = self.sentence_encoder
        pooling = encoder.pooling if pooling is None else pooling
        if pooling not in POOLINGS:
            raise UserError(f"unknown pooling '{pooling}'; choose {', '.join(POOLINGS)}")
        texts = self.prompted(texts, encoder.default_prompt if prompt is None else prompt)
        unit = encoder.normalize if normalize is None else normalize

        def finish(vectors: list[np.ndarray]) -> np.ndarray:
            found = np.stack(vectors) if vectors else np.zeros((0, self.learner.backbone.width), np.float32)
            if unit:
                found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
            return found

        return self._vector_work(self.frame(texts, truncate), tuple(layers), pooling, finish)

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """How the folder says that a vector per text is made."""
        return read_sentence_encoder(self.path)

    @property
    def truncated_length(self) -> int:
        """The tokens, [CLS] and [SEP] included, that `truncate` leaves of a text."""
        positions = self.learner.backbone.max_length
        return min(positions, self.sentence_encoder.max_length or positions)

    def prompted(self, texts: Sequence[str], name: str | None) -> Sequence[str]:
        """The texts with one of the model's prompts before each."""
        if name is None or isinstance(texts, str):
            return texts
        prompts = self.sentence_encoder.prompts
        if name not in prompts:
            raise UserError(f"{self.path}: there is no prompt '{name}'.{suggest(name, prompts)}")
        return [prompts[name] + text for text in texts]

    def _vector_work(
        self, rows: list[np.ndarray], layers: tuple[int, ...], pooling: str | None, finish: Callable[[list[Any]], T]
    ) -> Work[T]:
        """The token vectors of each row, or its pooled vector; pooled batch by batch, to save memory."""
        count = self.learner.backbone.config.layers
        if any(not -count - 1 <= layer <= count for layer in layers):
            raise UserError(f"layers {list(layers)}: this model has 0 (embeddings) to {count}")
        key = (id(self), "vectors", layers, pooling)
        return Work(key, rows, list(map(len, rows)), lambda batch: self._vectors(batch, layers, pooling), finish)

    def _vectors(self, rows: list[np.ndarray], layers: tuple[int, ...], pooling: str | None) -> list[np.ndarray]:
        batch, order = self._batch(rows)
        with torch.inference_mode():
            found = self.learner.backbone(batch, all_layers=layers != (-1,))
            mixed = torch.stack([found.layers[n] for n in layers]).mean(0) if found.layers else found.vectors
            if pooling == "cls":
                parts = list(self.learner.backbone.row_vectors(mixed, batch).cpu().numpy())
            else:
                parts = np.split(mixed.cpu().numpy(), np.cumsum(batch.lengths)[:-1])
        vectors: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for row, part in zip(order, parts, strict=True):
            vectors[row] = part.mean(0) if pooling == "mean" else part.max(0) if pooling == "max" else part
        return vectors

    def frame(self, texts: Sequence[str], truncate: Truncate = False) -> list[np.ndarray]:
        """The ids of each text, with [CLS] and [SEP]."""
        if isinstance(texts, str):
            raise UserError("a list of texts is needed; write [text] for one")
        texts = list(texts)
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(f"text {number}: {brief(text)} is not a text")
        room = self.truncated_length - 2 if truncate else None
        kept = slice(-room, None) if room and truncate == "left" else slice(room)
        ids = self.tokenizer.encode(texts)
        return [self._framed(row[kept], text) for row, text in zip(ids, texts, strict=True)]

    def _framed(self, ids: np.ndarray, text: str) -> np.ndarray:
        row = np.concatenate([[self.tokenizer.cls], ids, [self.tokenizer.sep]]).astype(np.int64)
        longest = self.learner.backbone.max_length
        if len(row) > longest:
            raise TooLong(
                f"a text of {len(row)} tokens is longer than this model's {longest} positions: {_short(text)}"
            )
        return row

    def _batch(
        self, rows: list[np.ndarray], targets: Callable[[np.ndarray], dict[str, Any]] = lambda flat: {}
    ) -> tuple[Batch, list[int]]:
        """The rows as a flat batch, longest first, and which row is where."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        flat = np.concatenate([rows[row] for row in order])
        none = np.zeros(len(flat), bool)
        lengths = tuple(len(rows[row]) for row in order)
        packed = Rows(flat, lengths, np.zeros_like(flat), none, none, np.zeros(len(rows), np.uint64))
        return self.learner.batch(packed, self.tokenizer, targets(flat), self.device), order


def in_bounded_memory(groups: Iterable[T]) -> Iterator[T]:
    """The groups, one by one; memory that their computation has freed is returned to the kernel now and then."""
    for number, group in enumerate(groups, 1):
        yield group
        if number % GROUPS_AT_ONCE == 0:
            return_freed_memory()


def size_of(example: Any) -> int:
    """The room that an example takes in a group."""
    return EXAMPLE_SIZE + len(repr(example))


def _flat(given: Any) -> Iterator[Any]:
    """The texts of an input: it is one, or a list of them, which may contain another list."""
    if isinstance(given, list | tuple):
        for part in given:
            yield from _flat(part)
    else:
        yield given


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
