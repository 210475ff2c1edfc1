"""The stream is a pure function of the cursor: starting at any position gives the same rows as reading up to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.corpus import stream as module
from keel.corpus.stream import Cursor, Stream
from keel.packers.pairs import PairPacker, PairsConfig
from keel.values import Rows

LENGTH = 32


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts the test corpus of some ten thousand tokens into blocks, like a corpus of many millions."""
    monkeypatch.setattr(module, "BLOCK_TOKENS", 3000)


def fresh(corpus: Any, tokenizer: Any, seed: int = 1, static_masks: int | None = None) -> Stream:
    documents = np.flatnonzero(~corpus.held_out)
    packer = PairPacker(PairsConfig(), corpus, documents, LENGTH)
    return Stream(corpus, documents, packer, tokenizer, seed, static_masks)


def same(one: Rows, other: Rows) -> bool:
    return (
        one.lengths == other.lengths
        and all(
            np.array_equal(getattr(one, name), getattr(other, name))
            for name in ("ids", "segments", "special", "word_starts", "keys")
        )
        and np.array_equal(one.answers["next_sentence"], other.answers["next_sentence"])
    )


def epoch_rows(stream: Stream, epoch: int) -> list[tuple[int, bytes, int]]:
    """Key, ids and label of each row of an epoch, in order, read one at a time."""
    cursor, rows = Cursor(epoch), []
    while cursor.epoch == epoch:
        row, cursor = stream.take(cursor, 1)
        assert len(row.lengths) == 1
        rows.append((int(row.keys[0]), row.ids.tobytes(), int(row.answers["next_sentence"][0])))
    return rows


@given(st.lists(st.integers(1, 2000), min_size=2, max_size=25), st.integers(0, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_fresh_stream_resumes_at_a_saved_cursor(corpus: Any, tokenizer: Any, budgets: list[int], epoch: int) -> None:
    walking, cursor = fresh(corpus, tokenizer), Cursor(epoch)
    for budget in budgets:
        saved = Cursor(**cursor.as_dict())
        expected, cursor = walking.take(cursor, budget)
        found, after = fresh(corpus, tokenizer).take(saved, budget)
        assert same(found, expected) and after == cursor
        assert sum(found.lengths) <= budget or len(found.lengths) == 1
        assert list(found.lengths) == sorted(found.lengths, reverse=True)


@given(st.lists(st.integers(LENGTH, 900), min_size=1, max_size=8))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rows_do_not_depend_on_the_size_of_the_steps(corpus: Any, tokenizer: Any, budgets: list[int]) -> None:
    """Steps of any size read the same rows in the same order."""
    stream, cursor = fresh(corpus, tokenizer), Cursor()
    order = [key for epoch in (0, 1) for key, _, _ in epoch_rows(stream, epoch)]
    taken = step = 0
    while cursor.epoch == 0:
        rows, cursor = stream.take(cursor, budgets[step % len(budgets)])
        assert sorted(map(int, rows.keys)) == sorted(order[taken : taken + len(rows.lengths)])
        taken += len(rows.lengths)
        step += 1


def test_each_planned_row_is_read_once_per_epoch(corpus: Any, tokenizer: Any) -> None:
    """The rows read are those that the packer planned for the blocks of the epoch, each exactly once."""
    stream = fresh(corpus, tokenizer)
    rows = epoch_rows(stream, 0)
    blocks = stream._epoch_blocks(0)
    assert len(blocks) > 2, "the test reads across blocks"
    assert sorted(np.concatenate(blocks).tolist()) == np.flatnonzero(~corpus.held_out).tolist()
    assert len(rows) == sum(len(stream._block(0, block)[0]) for block in range(len(blocks)))
    assert len({key for key, _, _ in rows}) == len(rows)


def test_epochs_differ_in_rows_keys_and_order(corpus: Any, tokenizer: Any) -> None:
    stream = fresh(corpus, tokenizer)
    first, second = epoch_rows(stream, 0), epoch_rows(stream, 1)
    assert not {key for key, _, _ in first} & {key for key, _, _ in second}
    assert {ids for _, ids, _ in first} != {ids for _, ids, _ in second}


def test_seeds_differ(corpus: Any, tokenizer: Any) -> None:
    one, other = fresh(corpus, tokenizer, seed=1), fresh(corpus, tokenizer, seed=2)
    assert not same(one.take(Cursor(), 500)[0], other.take(Cursor(), 500)[0])


def test_statically_masked_rows_return_in_another_order(corpus: Any, tokenizer: Any) -> None:
    stream = fresh(corpus, tokenizer, static_masks=2)
    epochs = [epoch_rows(stream, epoch) for epoch in range(4)]
    assert sorted(epochs[0]) == sorted(epochs[2]) and epochs[0] != epochs[2]
    assert sorted(epochs[1]) == sorted(epochs[3])
    assert not {key for key, _, _ in epochs[0]} & {key for key, _, _ in epochs[1]}


def test_a_budget_smaller_than_a_row_gives_one_row(corpus: Any, tokenizer: Any) -> None:
    rows, cursor = fresh(corpus, tokenizer).take(Cursor(), 1)
    assert len(rows.lengths) == 1 and cursor == Cursor(0, 0, 1)


def test_rows_are_framed_as_the_model_reads_them(corpus: Any, tokenizer: Any) -> None:
    """[CLS] A [SEP] B [SEP]: special tokens only there, and segment 0 up to and including the first [SEP]."""
    rows, _ = fresh(corpus, tokenizer).take(Cursor(), 3000)
    start = 0
    for length in rows.lengths:
        ids, special = rows.ids[start : start + length], rows.special[start : start + length]
        segments = rows.segments[start : start + length]
        places = np.flatnonzero(special)
        assert len(places) == 3 and places[0] == 0 and places[2] == length - 1
        assert ids[places].tolist() == [tokenizer.cls, tokenizer.sep, tokenizer.sep]
        assert not segments[: places[1] + 1].any() and segments[places[1] + 1 :].all()
        assert 1 < places[1] < length - 2, "neither segment is empty"
        start += length
    assert start == len(rows.ids)
