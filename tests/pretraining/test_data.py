"""The corpus as a run reads it: the rows of a step, dealt to micro-batches, and longer rows at the end."""

from __future__ import annotations

from typing import Any

from keel import recipe as recipes
from keel.corpus.stream import Cursor
from keel.pretraining.data import open_data


def test_micro_batches_hold_every_row_once_and_are_of_one_size(corpus_path: Any, tiny: tuple[str, ...]) -> None:
    recipe = recipes.load("bert-tiny", [*tiny, "training.batch_tokens=1024", "training.micro_batches=4"])
    data = open_data(recipe, str(corpus_path), None)
    whole, _ = data.streams["main"].take(Cursor(), 1024)
    parts, _ = data.micro_batches(0.0, {})
    assert len(parts) == 4
    assert sorted(int(key) for part in parts for key in part.keys) == sorted(map(int, whole.keys))
    sizes = [sum(part.lengths) for part in parts]
    assert max(sizes) - min(sizes) <= recipe.data.length
    assert all(list(part.lengths) == sorted(part.lengths, reverse=True) for part in parts)


def test_the_long_phase_comes_at_the_end(corpus_path: Any, tiny: tuple[str, ...]) -> None:
    recipe = recipes.load("bert-tiny", [*tiny, "data.long_phase={length: 64, fraction: 0.25}"])
    data = open_data(recipe, str(corpus_path), None)
    steps = [data.micro_batches(progress, {})[0] for progress in (0, 0.74, 0.75, 0.99)]
    longest = [max(length for part in parts for length in part.lengths) for parts in steps]
    assert longest[0] <= 32 and longest[1] <= 32 and longest[2] > 32 and longest[3] > 32
