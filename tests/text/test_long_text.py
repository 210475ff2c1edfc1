"""Long texts: no token twice, windows lose nothing, and head-tail has the published sizes."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from keel.text.long_text import STRATEGIES, LongText, share_room, window_starts
from keel.text.word_spans import BLANK, word_spans


@pytest.mark.parametrize("length, head, tail", [(511, 128, 382), (800, 128, 382), (801, 256, 254), (5000, 256, 254)])
def test_head_tail_as_published(length: int, head: int, tail: int) -> None:
    (kept,) = LongText(strategy="head-tail").places(length, 510)
    assert kept.tolist() == [*range(head), *range(length - tail, length)]


@given(st.integers(0, 3000), st.integers(1, 600), st.sampled_from(STRATEGIES), st.floats(0, 0.9))
def test_rows_fit_and_windows_lose_nothing(length: int, room: int, strategy: str, overlap: float) -> None:
    rows = LongText(strategy=strategy, overlap=overlap).places(length, room)  # type: ignore[arg-type]
    assert all(len(row) <= room and (np.diff(row) > 0).all() for row in rows)
    if strategy == "windows" or length <= room:
        assert set(np.concatenate(rows).tolist()) == set(range(length))
    else:
        assert len(rows) == 1 and len(rows[0]) == room
    if strategy == "windows" and length > room:
        assert all(len(row) == room for row in rows), "every window has full context"
        assert len({int(row[0]) for row in rows}) == len(rows) == len(window_starts(length, room, overlap))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(2, 50))
def test_the_longer_of_two_texts_is_truncated_first_as_in_the_tokenizers_library(
    first: int, second: int, room: int
) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(room, strategy="longest_first")
    sides = tokenizer.encode(" ".join("a" * first), " ".join("a" * second)).sequence_ids
    assert share_room(first, second, room) == (sides.count(0), sides.count(1))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_words_cover_every_visible_character_once(text: str) -> None:
    spans = word_spans(text)
    assert all(a < b for a, b in spans) and all(b <= c for (_, b), (c, _) in itertools.pairwise(spans))
    assert "".join(text[a:b] for a, b in spans) == re.sub(f"[{BLANK}]", "", text)


def test_words_of_mixed_text() -> None:
    text = "Dr. Wang在北京买了iPhone15，很好！😀 e\u0301te\u0301"
    words = [text[a:b] for a, b in word_spans(text)]
    assert words[:6] == ["Dr", ".", "Wang", "在", "北", "京"]
    assert "iPhone15" in words and "，" in words and words[-1] == "e\u0301te\u0301"
