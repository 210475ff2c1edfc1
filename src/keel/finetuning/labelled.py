"""Labelled files as a fine-tuning run reads them: examples to train on, examples to evaluate on, and their fingerprint.

In: a recipe and files. Out: the task with its labels and columns, and the examples. Rows that cannot be used are
reported, never dropped silently.

Notable choice: without development data a tenth of the training examples is held out, and reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from keel import recipe as recipes
from keel.catalog import find
from keel.errors import Rejected, UserError
from keel.files.folders import sha256
from keel.hugging_face.cache import find_folder, find_model
from keel.in_memory import MemoryTable, Source
from keel.inference.tasks import SHOWN_ROWS
from keel.interfaces import Task
from keel.randomness import Draw, uniform
from keel.recipe import TaskRecipe
from keel.text.parallel import two_files
from keel.tokenizers.folder import open_tokenizer
from keel.values import Examples

HELD_OUT = 0.1  # of the training examples, if there is no development data
REJECTED = "rejected.jsonl"

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabelledData:
    """The examples of a run, and what was noticed while reading them."""

    train: list[Any]
    dev: list[Any]
    rejected: list[Rejected]
    notes: tuple[str, ...]
    held_out: bool  # dev is a part of the training file


def read_labelled(
    recipe: TaskRecipe, train: Source, dev: Source | None, strict: bool = False
) -> tuple[Task, LabelledData]:
    """The task, with its labels and columns as the training file has them; and the examples."""
    task: Task = find("tasks", recipe.task.kind)(recipe.task, recipe.data)
    found = read_file(task, train, strict)
    task = type(task)(task.config, found.data)
    try:
        task = task.fit_labels(found.examples)
    except UserError as error:  # the task can name neither the file nor the rejected rows
        unused = (
            f" ({len(found.rejected)} rows cannot be used; the first: {found.rejected[0]})" if found.rejected else ""
        )
        raise UserError(f"{train}: {error}{unused}") from None
    if dev:
        more = read_file(task, dev, strict)
        notes = (*found.notes, *more.notes)
        return task, LabelledData(found.examples, more.examples, found.rejected + more.rejected, notes, False)
    learned, held_out = _hold_out(found.examples, train)
    return task, LabelledData(learned, held_out, found.rejected, found.notes, True)


def read_file(task: Task, path: Source, strict: bool = False) -> Examples:
    """The examples of a file; an error if there are none, or if strict and a row cannot be used."""
    found = Examples.of(task.open(path))
    if strict and found.rejected:
        raise UserError(f"{found.rejected[0]} (--strict; {len(found.rejected)} such rows in all)")
    if not found.examples:
        raise UserError(f"{path}: no row can be used" + (f"; the first: {found.rejected[0]}" if found.rejected else ""))
    return found


def _hold_out(examples: list[Any], train: Source) -> tuple[list[Any], list[Any]]:
    """Holds out a tenth of the examples, the same for every seed, so that seeds can be compared."""
    numbers = uniform(Draw.HELD_OUT_EXAMPLES, np.arange(len(examples)))
    border = np.sort(numbers)[min(len(numbers) - 1, max(1, round(HELD_OUT * len(numbers))))]
    held_out = [e for e, number in zip(examples, numbers, strict=True) if number < border]
    if not held_out:
        raise UserError(f"{train}: one example is too few to train on and to evaluate on; give more, or --dev")
    return [e for e, number in zip(examples, numbers, strict=True) if number >= border], held_out


def take_subset(data: LabelledData, wanted: int | None) -> LabelledData:
    """A subset of the training examples; a smaller one is always contained in a larger one."""
    if wanted is None or wanted >= len(data.train):
        return data
    order = np.argsort(uniform(Draw.EXAMPLE_SUBSET, np.arange(len(data.train))), kind="stable")
    return replace(data, train=[data.train[n] for n in np.sort(order[:wanted])])


def say_what_was_read(data: LabelledData, task: Task, say: Say) -> None:
    say(f"{len(data.train):,} examples to train on, {len(data.dev):,} to evaluate on")
    if data.held_out:
        say(f"no --dev given: {len(data.dev):,} of the training examples are held out for evaluation")
    named = {"text": task.data.text, "pair": task.data.pair, "label": task.data.label}
    columns = [f"{role} = {name}" for role, name in named.items() if name]
    if columns:
        say("columns: " + ", ".join(columns))
    say_oddities(data.notes, data.rejected, len(data.rejected), say)


def say_oddities(notes: Sequence[str], rejected: Sequence[Rejected], count: int, say: Say) -> None:
    """Reports what was noticed about the examples, and which rows were rejected: the first, and how many."""
    for note in notes:
        say(note)
    for bad in rejected[:SHOWN_ROWS]:
        say(f"skipped: {bad}")
    if count > SHOWN_ROWS:
        say(f"skipped: {count:,} rows in all")


def check_strategy(task: Task, strategy: str) -> None:
    """Raises if the task has no such strategy for long texts."""
    known, kind = task.needs.long, task.config.kind
    if strategy not in known:
        raise UserError(
            f"--long {strategy}: the task {kind} has {', '.join(known)} only; omit --long, or choose {known[0]}"
        )


def files_of(path: Source | None) -> list[Source]:
    """One file, or the two of parallel texts."""
    return list(two_files(path) or [path]) if path else []


def data_fingerprint(model: str, train: Source, dev: Source | None, tokenizer: str | None = None) -> str:
    """Identifies the weights that a run starts from (or a fresh model's architecture and tokenizer) and the data."""
    found = fingerprint(None if tokenizer else model, *files_of(train), *files_of(dev))
    if tokenizer:
        shape = recipes.load(model).model.backbone.model_dump_json()
        opened = open_tokenizer(find_folder(tokenizer)).fingerprint()
        found = hashlib.sha256(f"{found} {opened} {shape}".encode()).hexdigest()
    return found


def fingerprint(model: str | None, *files: Source | None) -> str:
    """Identifies a model's weights and some files, or rows in memory."""
    folders = [find_model(model)] if model else []
    weights = sorted(str(p) for kind in ("safetensors", "bin") for folder in folders for p in folder.glob(f"*.{kind}"))
    return hashlib.sha256("".join(map(_fingerprint, [*weights, *files])).encode()).hexdigest()


def _fingerprint(data: Source | None) -> str:
    if isinstance(data, MemoryTable):
        return data.fingerprint
    return sha256(Path(data)) if data and Path(data).is_file() else ""
