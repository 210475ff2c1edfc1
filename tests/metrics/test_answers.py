"""The rules of SQuAD and CMRC 2018 on cases worked out by hand, and properties of every pair of answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.metrics.answers import (
    AnswerScore,
    chinese_exact,
    chinese_f1,
    chinese_units,
    cmrc,
    exact,
    f1,
    no_answer_threshold,
    normalise,
    squad,
)

anything = settings(deadline=None, max_examples=200)
answers = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(["the", "A", "cat", "cat's", "3.5", ",", "-", " ", "中国", "，", "《", "b"]), max_size=6
    ).map(" ".join),
    st.text(alphabet="ab 中国文，。-.,1", max_size=10),
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  Cat", "cat"),
        ("a cat, an apple and the pie.", "cat apple and pie"),
        ("theory", "theory"),  # an article is a whole word, not a prefix
        ("U.S.", "us"),
        ("Saint-Louis", "saintlouis"),  # punctuation is removed without leaving a space
        ("\tone\n two ", "one two"),
        ("(a) b", "b"),
        ("a-b", "ab"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation is removed
        ("The.", ""),
        ("", ""),
    ],
)
def test_squads_normalisation(answer: str, expected: str) -> None:
    assert normalise(answer) == expected


@pytest.mark.parametrize(
    ("gold", "guess", "expected_exact", "expected_f1"),
    [
        ("the Denver Broncos", "Denver Broncos!", 1, 1),
        ("Denver Broncos", "Broncos", 0, 2 / 3),
        ("Denver Broncos", "Broncos Denver", 0, 1),  # a bag of words
        ("a b b", "b b b c", 0, 2 * 2 / (2 + 4)),  # "a" is an article; a word counts as often as it occurs in both
        ("Denver", "Carolina", 0, 0),
        ("", "", 1, 1),
        ("", "Denver", 0, 0),
        ("Denver", "", 0, 0),
        ("the", "", 1, 1),
    ],
)
def test_known_squad_pairs(gold: str, guess: str, expected_exact: float, expected_f1: float) -> None:
    assert exact(gold, guess) == expected_exact
    assert f1(gold, guess) == pytest.approx(expected_f1)


def test_the_best_accepted_answer_counts() -> None:
    assert squad(["Santa Clara", "in Santa Clara, California"], "Santa Clara") == AnswerScore(1, 1)
    assert squad(["10 pounds", "ten pounds"], "five pounds") == AnswerScore(0, 0.5)
    assert squad([], "") == AnswerScore(1, 1)
    assert squad([], "something") == AnswerScore(0, 0)
    # A gold answer that normalises to nothing is ignored if there are others.
    assert squad(["the", "cat"], "") == AnswerScore(0, 0)
    assert squad(["the"], "") == AnswerScore(1, 1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("中国人民", ["中", "国", "人", "民"]),
        ("《哈利·波特》（Harry Potter）", ["哈", "利", "波", "特", "harry", "potter"]),
        ("约3.5万人，1,000米", ["约", "3.5", "万", "人", "1,000", "米"]),
        ("2018-05年", ["201805", "年"]),  # removing punctuation joins its sides
        ("Windows XP系统", ["windows", "xp", "系", "统"]),
        ("a, b和c.", ["a", ",", "b", "和", "c", "."]),  # ASCII's comma and point are not on CMRC's list
        ("60%的U.S. Army", ["60", "%", "的", "u.s.", "army"]),
        ("，。", []),
    ],
)
def test_cmrcs_units(answer: str, expected: list[str]) -> None:
    assert chinese_units(answer) == expected


@pytest.mark.parametrize(
    ("gold", "guess", "expected_exact", "expected_f1"),
    [
        ("《红楼梦》", "红楼梦。", 1, 1),
        ("北京大学", "北京", 0, 2 * 2 / (4 + 2)),
        ("北京大学", "北大京学", 0, 2 * 1 / (4 + 4)),  # a common RUN: "北" or "大", not "北大学"
        ("1998年5月", "1998年", 0, 2 * 2 / (4 + 2)),
        ("1998年", "199年", 0, 2 * 1 / (2 + 2)),  # a number is one unit
        ("北京", "上海", 0, 0),
        ("北京", "", 0, 0),
        ("", "", 1, 1),
        ("IBM公司", "ibm公司", 1, 1),
        ("红 楼梦", "红楼梦", 0, 1),  # white space counts in the exact match, but is not part of a unit
    ],
)
def test_known_chinese_pairs(gold: str, guess: str, expected_exact: float, expected_f1: float) -> None:
    assert chinese_exact(gold, guess) == expected_exact
    assert chinese_f1(gold, guess) == pytest.approx(expected_f1)


def test_the_best_accepted_chinese_answer_counts() -> None:
    assert cmrc(["北京大学", "北大"], "北大。") == AnswerScore(1, 1)
    assert cmrc(["北京大学", "清华"], "北京") == AnswerScore(0, pytest.approx(2 / 3))
    assert cmrc([], "") == AnswerScore(1, 1)
    assert cmrc([], "北京") == AnswerScore(0, 0)


@given(answers, answers)
@anything
def test_properties_of_every_pair(one: str, other: str) -> None:
    for is_exact, overlap in ((exact, f1), (chinese_exact, chinese_f1)):
        assert 0 <= overlap(one, other) <= 1
        assert overlap(one, other) == overlap(other, one)
        assert is_exact(one, other) == is_exact(other, one)
        assert is_exact(one, one) == overlap(one, one) == 1
        if is_exact(one, other):
            assert overlap(one, other) == 1
    assert squad([one, other], one).f1 == squad([other, one], one).f1 == 1 or not normalise(one)


@given(answers)
@anything
def test_normalising_twice_is_normalising_once(answer: str) -> None:
    once = normalise(answer)
    assert normalise(once) == once


quarters = st.integers(0, 4).map(lambda count: count / 4)  # their sums are exact
scores = st.builds(AnswerScore, st.sampled_from([0.0, 1.0]), quarters)
questions = st.lists(st.tuples(st.integers(-3, 3), scores, scores), min_size=1, max_size=12)


@given(questions)
@anything
def test_the_threshold_is_the_best_of_all_thresholds(rows: list[tuple[int, AnswerScore, AnswerScore]]) -> None:
    def means(least: float) -> AnswerScore:
        chosen = [span if margin >= least else null for margin, span, null in rows]
        return AnswerScore(
            sum(score.exact for score in chosen) / len(rows), sum(score.f1 for score in chosen) / len(rows)
        )

    found = no_answer_threshold(*zip(*rows, strict=True))  # type: ignore[misc]
    candidates = [math.inf, *sorted({margin for margin, _, _ in rows}, reverse=True)]
    best = max(means(candidate).f1 for candidate in candidates)
    assert found.f1 == pytest.approx(best)
    assert (found.exact, found.f1) == pytest.approx((means(found.margin).exact, means(found.margin).f1))
    assert found.margin == next(c for c in candidates if means(c).f1 == pytest.approx(best))


RIGHT, WRONG = AnswerScore(1, 1), AnswerScore(0, 0)


def test_known_thresholds() -> None:
    # Two questions with an answer (margins 3 and 1), one without (margin 0): answer the first two.
    found = no_answer_threshold([0, 3, 1], [WRONG, RIGHT, AnswerScore(0, 0.5)], [RIGHT, WRONG, WRONG])
    assert (found.margin, found.exact, found.f1) == pytest.approx((1, 2 / 3, 2.5 / 3))
    # Equally good at 3 and at 1: the one that answers fewer questions.
    assert no_answer_threshold([3, 2, 1], [RIGHT, WRONG, RIGHT], [WRONG, RIGHT, WRONG]).margin == 3
    # No question has an answer: never answer.
    assert no_answer_threshold([3, 2], [WRONG, WRONG], [RIGHT, RIGHT]).margin == math.inf
    # Equal margins are answered together: the official script would report F1 1 at margin 2.
    found = no_answer_threshold([2, 2], [RIGHT, WRONG], [WRONG, RIGHT])
    assert (found.margin, found.f1) == (math.inf, 0.5)


def test_no_questions_have_no_threshold() -> None:
    assert math.isnan(no_answer_threshold([], [], []).margin)
