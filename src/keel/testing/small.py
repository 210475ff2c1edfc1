"""Inputs of the checks: small models of any family, rows, and a task's examples.

In: names of the catalog. Out: configs, learners, rows and examples that take milliseconds.

Notable choice: nothing here is specific to a family, an objective or a task. A config gets from `SMALL` the values of
the fields that it has and accepts, and keeps its defaults for the rest.

Shapes: T tokens, R rows.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from torch import nn

from keel import catalog
from keel.errors import UserError
from keel.interfaces import Backbone, Task
from keel.learner.build import assemble, fresh_learner, make_backbone, task_learner
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.testing.tokenizer import SIZE, VOCABULARY, StubTokenizer
from keel.text.labelled import LabelledData
from keel.tokenizers.wordpiece import WordPiece
from keel.values import Batch, Rows

CPU = torch.device("cpu")
TOKENIZER = StubTokenizer()
LENGTHS = (32, 21, 21, 12, 7, 7, 5)
SMALL: dict[str, Any] = {
    "vocabulary": SIZE,
    "layers": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 24,
    "positions": max(LENGTHS),
    "embedding_width": 8,
    "local_window": 8,
    "cells": 24,
    "filters": [(1, 4), (3, 6)],
    "max_characters": 9,
    "buckets": 50,
    "padding": 0,
    "pooler": True,
}
SMALL_TASK: dict[str, Any] = {"labels": ["a", "b", "c"], "max_length": 12, "beam_size": 2}
ENTITY_LABELS = ["O", "B-x", "I-x"]  # for a task whose config has `entities`
MORE_WORDS = (0, 3, 7, 12, 45)  # added to the texts of an example: the last does not fit into a row


def small_config(name: str, **options: Any) -> Any:
    """The config of a backbone with small values; dropout is off unless the options set it."""
    kind = catalog.find("backbones", name).Config
    no_dropout = dict.fromkeys(dropout_fields(kind), 0.0)
    values = {key: value for key, value in (SMALL | no_dropout | options).items() if key in kind.model_fields}
    while True:
        try:
            return kind(**values)
        except ValidationError as error:
            ours = set(values) - set(options) - {"vocabulary"}
            refused = {str(one["loc"][0]) for one in error.errors() if one["loc"]} or ours
            assert refused & ours, (
                f"{name}: {kind.__name__} cannot be built from {values} and its defaults ({error.errors()[0]['msg']}): "
                "give every field a default, and make the defaults consistent"
            )
            values = {key: value for key, value in values.items() if key not in refused & ours}


def dropout_fields(config: type[BaseModel]) -> list[str]:
    return [name for name in config.model_fields if name.endswith("dropout")]


def with_dropout(name: str, rate: float) -> dict[str, float]:
    """Options that set every dropout rate of a backbone."""
    return dict.fromkeys(dropout_fields(catalog.find("backbones", name).Config), rate)


def fresh_backbone(name: str, seed: int = 0, **options: Any) -> Backbone:
    backbone = make_backbone(small_config(name, **options))
    backbone.init_weights(torch.Generator().manual_seed(seed))
    return backbone


def small_backbone(name: str, **options: Any) -> Backbone:
    """A backbone as in the middle of training."""
    backbone = fresh_backbone(name, **options)
    backbone.attach_tokenizer(TOKENIZER)
    shake(backbone)
    return backbone.eval()


def small_learner(backbone: str, objectives: Mapping[str, Any], **options: Any) -> Learner:
    """The same with objectives, given by name with their options."""
    learner = fresh_learner(small_config(backbone, **options), objectives, seed=0)
    learner.attach_corpus(TOKENIZER, lambda: np.ones(SIZE, np.int64))
    shake(learner)
    return learner


@torch.no_grad()
def shake(module: nn.Module) -> None:
    """Perturbs all weights: biases and norms that start at 0 and 1 would hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def fits(backbone: str, objective: str) -> bool:
    """Whether an objective can train a backbone; one that cannot raises a UserError."""
    with contextlib.suppress(UserError):
        assemble(make_backbone(small_config(backbone)), {objective: {}})
        return True
    return False


def fitting(backbone: str) -> list[str]:
    return [name for name in catalog.names("objectives") if fits(backbone, name)]


def small_rows(longest: int = max(LENGTHS), seed: int = 0) -> Rows:
    """[CLS] A [SEP] B [SEP] of random ordinary tokens, longest first, with labels for objectives that need a packer."""
    source = np.random.default_rng(seed)
    lengths = tuple(min(length, longest) for length in LENGTHS)
    total = sum(lengths)
    ids, special, segments = source.integers(5, SIZE, total), np.zeros(total, bool), np.zeros(total, np.int64)
    for length, stop in zip(lengths, np.cumsum(lengths), strict=True):
        start, middle = stop - length, stop - length + length // 2
        ids[start], ids[[middle, stop - 1]] = TOKENIZER.cls, TOKENIZER.sep
        special[[start, middle, stop - 1]] = True
        segments[middle + 1 : stop] = 1
    answers = {name: source.integers(0, 2, len(lengths)) for name in _answered_by_packers()}
    keys = source.integers(0, 2**63, len(lengths)).astype(np.uint64)
    return Rows(ids, lengths, segments, special, np.ones(total, bool), keys, answers)


def _answered_by_packers() -> list[str]:
    names = catalog.names("objectives")
    return [name for name in names if catalog.find("objectives", name).needs.packing is not None]


def rows_for(backbone: Backbone) -> Rows:
    return small_rows(min(max(LENGTHS), backbone.max_length))


def batch_of(backbone: Backbone, rows: Rows) -> Batch:
    """Unmasked rows as a batch for the backbone."""
    return Learner(backbone, {}).batch(rows, TOKENIZER)


def prepared(learner: Learner, rows: Rows | None = None) -> Batch:
    return learner.prepare(rows_for(learner.backbone) if rows is None else rows, TOKENIZER)


def small_task(name: str, config: Mapping[str, Any], longest: int) -> Task:
    kind = catalog.find("tasks", name)
    fields = kind.Config.model_fields
    small = SMALL_TASK | ({"labels": ENTITY_LABELS} if "entities" in fields else {})
    values = {key: value for key, value in small.items() if key in fields} | dict(config)
    task: Task = kind(kind.Config(**values), LabelledData(length=min(max(LENGTHS), longest)))
    return task


def task_model(backbone: str, name: str, config: Mapping[str, Any]) -> tuple[TaskSetup, Learner]:
    """A task, and a learner as in the middle of training it."""
    trained = small_backbone(backbone)
    setup = TaskSetup(small_task(name, config, trained.max_length), EncoderSettings())
    learner = task_learner(setup, trained, seed=0)
    shake(learner)
    return setup, learner.eval()


def small_examples(task: Task) -> list[Any]:
    """Examples without answers, of different lengths, made from the input of `predict` that `usage.python` shows."""
    try:
        given = ast.literal_eval(task.usage.python)
    except (ValueError, SyntaxError):
        raise AssertionError(
            f"usage.python is {task.usage.python!r}, which is not a Python literal: write an input of "
            "`predict([...])`, such as '\"A text.\"'"
        ) from None
    return [task.example(_longer(given, number)) for number in MORE_WORDS]


def _longer(given: Any, words: int) -> Any:
    """The same with `words` more words after each text, no word twice."""
    if isinstance(given, str):
        return " ".join([given, *VOCABULARY[10 : 10 + words]])
    if isinstance(given, Mapping):
        return {key: _longer(value, words) for key, value in given.items()}
    if isinstance(given, Sequence):
        return type(given)(_longer(value, words) for value in given)  # type: ignore[call-arg]  # a list or a tuple
    return given


@contextlib.contextmanager
def tokenizer_and_folder() -> Iterator[tuple[WordPiece, Path]]:
    """A tokenizer with the stub's ids that can be saved, and a folder for a model."""
    with TemporaryDirectory() as place:
        vocabulary = Path(place) / "vocab.txt"
        vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
        folder = Path(place) / "model"
        folder.mkdir()
        yield WordPiece.load(vocabulary), folder
