"""Entities equal those of seqeval's default mode for any tags: well-formed, ill-formed, and empty ones."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from keel.metrics.entities import EntityCounts, EntityScores, spans

anything = settings(deadline=None, max_examples=150)
tags = st.one_of(
    st.builds("{}-{}".format, st.sampled_from("BIES"), st.sampled_from(["PER", "LOC", "a-b"])),
    st.sampled_from(["O", "B", "I", "E", "S"]),
)
strange_tags = st.one_of(tags, st.sampled_from([".", ".-PER", "X", "X-PER", "PER", "_", "-", "B-", "O-PER", "b-PER"]))


def entity_scores(gold: list[list[str]], guessed: list[list[str]]) -> EntityScores:
    counts = EntityCounts()
    for one, other in zip(gold, guessed, strict=True):
        counts.add(set(spans(one)), set(spans(other)))
    return counts.scores()


def sentence_pairs(tag: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    sentence = st.lists(st.tuples(tag, tag), min_size=1, max_size=8).map(lambda rows: tuple(zip(*rows, strict=True)))
    return st.lists(sentence, min_size=1, max_size=4)


def assert_is_seqevals(pairs: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    gold, guessed = ([list(side) for side in sides] for sides in zip(*pairs, strict=True))
    ours = entity_scores(gold, guessed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval's warning about unknown tags
        for measure, figure in (
            (precision_score, ours.overall.precision),
            (recall_score, ours.overall.recall),
            (f1_score, ours.overall.f1),
        ):
            assert figure == pytest.approx(measure(gold, guessed, zero_division=0))
        if not ours.types:
            return  # seqeval fails without tags
        report = classification_report(gold, guessed, output_dict=True, zero_division=0)
    overall = report["micro avg"]
    assert ours.overall.support == overall["support"]
    assert list(ours.types) == [name for name in report if not name.endswith(" avg")]
    for name, found in ours.types.items():
        theirs = [report[name][figure] for figure in ("precision", "recall", "f1-score", "support")]
        assert [found.precision, found.recall, found.f1, found.support] == pytest.approx(theirs)


@given(sentence_pairs(tags))
@anything
def test_scores_of_every_scheme(pairs: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    assert_is_seqevals(pairs)


@given(sentence_pairs(strange_tags))
@anything
def test_entities_of_strange_tags(pairs: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    """Of each sentence by itself: seqeval joins all, so that an unknown prefix can begin an entity in another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval's warning about unknown tags
        for tags in (list(side) for pair in pairs for side in pair):
            assert spans(tags) == [(type, start, last + 1) for type, start, last in get_entities(tags)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),  # IOB2
        ("I-PER I-PER B-PER O", [("PER", 0, 2), ("PER", 2, 3)]),  # IOB1: B- only between two adjacent entities
        ("I-PER E-PER O E-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),  # IOE
        ("B-PER I-PER E-PER S-LOC", [("PER", 0, 3), ("LOC", 3, 4)]),  # BIOES
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),  # a change of type is a boundary
        ("B I O B", [("_", 0, 2), ("_", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_known_sentences(line: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(line.split()) == expected


def test_only_a_whole_span_is_correct() -> None:
    scores = entity_scores([["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC"]], [["B-PER", "O", "O", "B-LOC"], ["B-ORG"]])
    assert (scores.overall.precision, scores.overall.recall, scores.overall.f1) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert {name: found.support for name, found in scores.types.items()} == {"LOC": 2, "ORG": 0, "PER": 1}
    assert scores.types["LOC"].recall == 0.5


def test_the_same_position_in_another_sentence_is_another_span() -> None:
    assert entity_scores([["B-PER"], ["O"]], [["O"], ["B-PER"]]).overall.f1 == 0


def test_no_entities_give_zero_and_an_empty_tag_is_outside() -> None:
    for nothing in ([], [[]], [["O", "O"]], [["", "O"]]):
        scores = entity_scores(nothing, nothing)
        assert (scores.overall.f1, scores.overall.support, scores.types) == (0, 0, {})
