"""Long texts: every word is asked exactly once, an answer is found wherever it stands, and places are characters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.metrics.entities import spans
from keel.tasks.answer import Answer, AnswerConfig
from keel.tasks.classify import Classify, ClassifyConfig
from keel.tasks.tag import Tag, TagConfig, first_tokens
from keel.text.labelled import LabelledData
from keel.text.long_text import STRATEGIES, LongText
from keel.text.squad import Question

LABELS = ["O", "B-X", "I-X"]


def tagger(length: int = 48, overlap: float = 0.25) -> Tag:
    data = LabelledData(length=length, long=LongText(overlap=overlap))
    return Tag(TagConfig(labels=LABELS, entities=True), data)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
def test_every_word_of_a_long_document_is_tagged_once(tokenizer: Any, overlap: float) -> None:
    words = [("captain", "gull", "harbour", "remembers")[n % 4] for n in range(5000)]
    task = tagger(overlap=overlap)
    example = task.example(words)
    windows, cut = task.windows([example], tokenizer)
    assert sorted(word for window in windows for words in window.place for word in words) == list(range(5000))
    assert all(len(window.ids) <= 48 for window in windows) and cut.truncated_tokens == 0
    # A model that says B-X for every third word it is asked about, wherever it is asked.
    outputs = [np.array([[float(words[0] % 3 == 0), 0.9] for words in window.place]) for window in windows]
    (answer,) = task.answer([example], windows, outputs)
    assert answer["tags"] == ["B-X" if n % 3 == 0 else "O" for n in range(5000)]
    for entity in answer["entities"]:
        assert example.text[entity["start"] : entity["end"]] == entity["text"]


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_each_word_is_asked_at_most_once_and_dropped_only_with_its_characters(tokenizer: Any, text: str) -> None:
    task = tagger(length=16)
    example = task.example(text)
    windows, _ = task.windows([example], tokenizer)
    asked = [word for window in windows for words in window.place for word in words]
    assert asked == sorted(set(asked))
    for window in windows:
        assert (window.token_answers["tag"] >= 0).sum() == len(window.place)
    for word in set(range(len(example.words))) - set(asked):
        start, stop = example.words[word]
        ids, _ = tokenizer.encode_with_offsets(text[start:stop])
        assert not ids, "only a word without any token of its own is not asked"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "X", "Y"]), st.lists(st.integers(1, 3), min_size=1, max_size=3)), min_size=1
    ),
    st.sampled_from(["iob2", "bioes"]),
)
def test_entities_survive_tokens_of_several_words(parts: list[tuple[str, list[int]]], scheme: Any) -> None:
    """Characters are words, and a token has one or more of them: what is learnt for tokens says where entities are."""
    words = sum(sum(sizes) for _, sizes in parts)
    tags, offsets, at = ["O"] * words, [], 0
    for kind, sizes in parts:
        if kind:
            tags[at : at + sum(sizes)] = [f"B-{kind}"] + [f"I-{kind}"] * (sum(sizes) - 1)
        for size in sizes:
            offsets.append((at, at + size))
            at += size
    firsts = first_tokens([(n, n + 1) for n in range(words)], offsets)
    assert firsts == [token for token, (start, stop) in enumerate(offsets) for _ in range(start, stop)]
    task = Tag(TagConfig(labels=["O"], entities=True, scheme=scheme), LabelledData())
    written = task._to_scheme(tags)
    said = [tag for start, stop in offsets for tag in task._spread_label(written[start], stop - start)]
    assert spans(said) == spans(tags)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1), st.lists(st.integers(1, 4), min_size=1))
def test_a_word_gets_a_token_that_it_lies_in(words: list[int], tokens: list[int]) -> None:
    ends = [np.cumsum(sizes).tolist() for sizes in (words, tokens)]
    tiles = [list(zip([0, *stops], stops, strict=False)) for stops in ends]
    found = first_tokens(*tiles)
    for (start, stop), token in zip(tiles[0], found, strict=True):
        reached = [n for n, (low, high) in enumerate(tiles[1]) if low < stop and start < high]
        assert token in reached if reached else token == -1
    used = [token for token in found if token >= 0]
    assert used == sorted(used)


SAID = ["naïve café", "e\u0301te\u0301 1999", "ＡＢＣ 全角", "北京 Olympic 奥运会", "😀 smile 👩‍👩‍👧", "İstanbul ﬁne"]


@pytest.mark.parametrize("gold", SAID)
@pytest.mark.parametrize("before", [0, 40, 20_000])
def test_an_answer_is_found_wherever_it_stands(tokenizer: Any, gold: str, before: int) -> None:
    filler = "the gull remembers the harbour " * (before // 5)
    context = f"{filler}{gold} and the mast"
    question = Question("", "1", "who is it", context, [(gold, len(filler))], False, False)
    task = Answer(AnswerConfig(), LabelledData(length=64, long=LongText(overlap=0.4)))
    windows, _ = task.windows([question], tokenizer)
    ids, outputs, seen = tokenizer.encode([gold])[0], [], 0
    for window in windows:
        starts = np.lib.stride_tricks.sliding_window_view(window.ids, len(ids)) if len(window.ids) >= len(ids) else []
        found = [n for n, part in enumerate(starts) if np.array_equal(part, ids)]
        output = np.full((len(window.ids), 2), -5.0)
        for start in found:  # the tokens of the answer, found without what the window says about it
            output[start, 0] = output[start + len(ids) - 1, 1] = 5.0
            assert window.answers["answer"].tolist() == [start, start + len(ids) - 1]
        seen += len(found)
        outputs.append(output)
    assert seen, "no window has the answer"
    (answer,) = task.answer([question], windows, outputs)
    assert answer["answer"] == gold
    assert context[answer["start"] : answer["end"]] == gold


def test_what_is_cut_is_said(tokenizer: Any) -> None:
    texts = ["captain " * 100, "gull " * 5]
    lost = {}
    for strategy in STRATEGIES:
        data = LabelledData(length=32, long=LongText(strategy=strategy))  # type: ignore[arg-type]
        task = Classify(ClassifyConfig(labels=["a", "b"]), data)
        windows, cut = task.windows([task.example(text) for text in texts], tokenizer)
        lost[strategy] = cut.truncated_tokens
        assert cut.texts == 2 and cut.truncated_texts == (0 if strategy == "windows" else 1)
        long = [w for w in windows if w.example == 0]
        assert len(long) == 1 or strategy == "windows"
        outputs = [np.array([float(n), 0.0]) for n in range(len(windows))]
        answers = task.answer([task.example(text) for text in texts], windows, outputs)
        mean = np.mean([o[0] for o, w in zip(outputs, windows, strict=True) if w.example == 0])
        assert answers[0]["probabilities"]["a"] == pytest.approx(1 / (1 + np.exp(-mean)))
    total = len(tokenizer.encode(texts[:1])[0])
    assert lost == {"head": total - 30, "tail": total - 30, "head-tail": total - 30, "windows": 0}
