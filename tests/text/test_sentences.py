"""Sentences: only white space is lost, and abbreviations do not end a sentence."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keel.text import sentences as module
from keel.text.sentences import LONGEST, split

ALPHABET = st.text(
    st.one_of(
        st.sampled_from(".!?…。！？；｡ \n\t\r\u3000\u2028\"'”’»)]}』」）“‘「『（([ABZabz019中文字Mr"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=300,
)


def solid(text: str) -> str:
    return "".join(text.split())


@given(ALPHABET)
@example("\x1c.\x1d!\x85?\u2029。\u2028x")
def test_no_character_but_white_space_is_lost_or_moved(text: str) -> None:
    assert solid("".join(split(text))) == solid(text)


@given(ALPHABET)
def test_sentences_are_trimmed_never_empty_and_on_one_line(text: str) -> None:
    for sentence in split(text):
        assert sentence and sentence == sentence.strip()
        assert len(sentence.splitlines()) == 1


@given(st.integers(1, 3 * LONGEST), st.sampled_from(["x", "x ", "字", "abc\u3000", "1\t", "a. b"]))
def test_no_sentence_is_longer_than_the_limit(count: int, unit: str) -> None:
    sentences = split(unit * count)
    assert max(map(len, sentences)) <= LONGEST
    assert solid("".join(sentences)) == solid(unit * count)


def test_long_sentences_are_cut_between_words() -> None:
    words = ["word"] * 3000
    assert " ".join(split(" ".join(words))).split() == words


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. Jones at St. Mary's.", "They talked."],
        ["He lived in the U.S. Army barracks.", "It rained."],
        ["He lived in the U.S.", "The army left."],
        ["J. K. Rowling and George W. Bush came.", "Nobody else did."],
        ["It costs 3.14 dollars, e.g. Tuesdays.", "Is it so?", "Yes!"],
        ["Wait... what?", "I see...", "Then go."],
        ['"Stop!" he cried.', '"Why?"', "(Nobody knew.)", "He left."],
        ["See No. 5 and Fig. 2.", "No.", "It is Vol. 3, pp. 2 to 4."],
        ["1. Introduction", "2. Results."],
        ["It was 1990.", "25 people came."],
        ["Acme Inc. Reported a loss.", "Acme Inc.", "The loss grew."],
        ["What?!", "Really."],
        ["Visit example.com or read main.py now.", "Done."],
    ],
)
def test_english(sentences: list[str]) -> None:
    joined = [" ".join(sentences), "  ".join(sentences)]
    if sentences[0].startswith("1."):
        joined = ["\n".join(sentences)]
    for text in joined:
        assert split(text) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["他说：“你好！”", "然后走了。"],
        ["真的吗？！", "「是的。」", "（完。）", "好；", "再见……", "走了"],
        ["圆周率是3.14。", "他用Python 3.11写了main.py！", "OK?", "好"],
        ["第一章\u3000开始。", "Then English came.", "又是中文。"],
        ["《红楼梦》是小说。", "『好。』”", "他想…", "不行"],
    ],
)
def test_chinese(sentences: list[str]) -> None:
    assert split("".join(s + " " if s.isascii() or s.endswith(".") else s for s in sentences)) == sentences


def test_newlines_always_end_a_sentence() -> None:
    assert split("a title\nMr.\r\nSmith\n\n\nof the U.S.\u2028end") == ["a title", "Mr.", "Smith", "of the U.S.", "end"]


@pytest.mark.parametrize("end", ["", "a", "。a"])
@pytest.mark.parametrize(
    "unit", [".", "!", "…", "。", '."', ". ", "a.b.", "Mr. ", "J. ", "1. ", '"', "x", ".\t", "? )"]
)
def test_time_grows_with_length_only(unit: str, end: str) -> None:
    """With backtracking, twenty times the text would take far more than twenty times as long."""
    text = unit * (200_000 // len(unit)) + end
    start = time.process_time()
    split(text)
    assert time.process_time() - start < 2


@settings(max_examples=500)
@given(st.one_of(ALPHABET, st.text('.!?…。！")” aA中\n1', max_size=40)))
@example("..。a")
@example('a.")...b. C')
def test_skipping_runs_of_stops_changes_no_sentence(text: str) -> None:
    """The expression without its last alternative defines the sentences; it takes quadratic time."""
    patch = pytest.MonkeyPatch()
    found = split(text)
    with patch.context() as context:
        without = module._STOP.pattern.rpartition("|(?<=[.!?…])")[0] + ")"
        context.setattr(module, "_STOP", re.compile(without))
        assert split(text) == found
