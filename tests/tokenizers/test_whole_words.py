"""Whole words: every word is one token, frequent words have entries, and Chinese is split by the segmenter."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import UserError
from keel.stages.corpus import build
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.whole_words import WholeWords, learn_words

ENGLISH = ["The old captain watches the keel at dawn.", "A captain forgets the Keel, and the keel forgets him."]
CHINESE = ["老船长看着龙骨。", "中华人民共和国的老船长记得港口和桅杆。", "年轻的水手在港口修理桅杆，他穿着T恤。"]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def english() -> WholeWords:
    return learn_words(ENGLISH, 40, min_frequency=1)


@pytest.fixture(scope="module")
def chinese() -> WholeWords:
    return learn_words(CHINESE, 60, min_frequency=1)


def test_entries_are_the_most_frequent_words() -> None:
    counts = Counter(re.findall(r"\w+|[.,]", " ".join(ENGLISH).lower()))
    for least, size in ((1, 40), (2, 40), (1, 9)):
        words = learn_words(ENGLISH, size, min_frequency=least)
        kept = words.vocabulary[5:]
        expected = [word for word, count in counts.most_common() if count >= least]
        assert len(kept) == min(len(expected), size - 5)
        assert [counts[w] for w in kept] == sorted((counts[w] for w in expected), reverse=True)[: len(kept)]


def test_a_word_without_an_entry_is_unknown_even_if_parts_have_one(english: WholeWords) -> None:
    known, unknown = english.encode(["the keel", "thekeel keels"])
    assert [english.token(id) for id in known] == ["the", "keel"]
    assert unknown.tolist() == [english.unk] * 2


@given(st.text(alphabet="The keel,.'é1中\t", max_size=40))
def test_every_word_is_one_token(text: str) -> None:
    words = learn_words(ENGLISH, 40, min_frequency=1)
    stripped = text.lower().replace("é", "e")
    expected = re.findall(r"[a-z1]+|[,.']|中", stripped)
    ids, offsets = words.encode_with_offsets(text)
    assert [words.token(id) for id in ids] == [w if w in words.vocabulary else "[UNK]" for w in expected]
    assert [stripped[a:b] for a, b in offsets] == expected
    assert words.encode([text])[0].tolist() == ids


def test_chinese_is_split_by_the_segmenter(chinese: WholeWords) -> None:
    import rjieba

    assert chinese.segments
    for text in CHINESE:
        expected = [word.lower() for word in rjieba.cut(text)]
        ids, offsets = chinese.encode_with_offsets(text)
        assert [chinese.token(id) for id in ids] == expected
        assert [text[a:b].lower() for a, b in offsets] == expected
        assert chinese.encode([text, "", "龙骨"])[0].tolist() == ids


@given(st.text(alphabet="老船长看着龙骨T恤 a,。😀\u0301", max_size=30))
def test_offsets_refer_to_the_original_text(text: str) -> None:
    words = learn_words(CHINESE, 60, min_frequency=1)
    ids, offsets = words.encode_with_offsets(text)
    assert words.encode([text])[0].tolist() == ids
    assert all(0 <= a <= b <= len(text) for a, b in offsets)
    assert [a for a, _ in offsets] == sorted(a for a, _ in offsets)
    for id, (a, b) in zip(ids, offsets, strict=True):
        if id != words.unk:
            assert text[a:b].lower().replace("\u0301", "") == words.token(id)


def test_english_needs_no_segmenter(english: WholeWords, monkeypatch: pytest.MonkeyPatch) -> None:
    from keel.tokenizers import chinese as segmenter

    monkeypatch.setattr(segmenter, "_segmenter", lambda: pytest.fail("asked for"))
    assert not english.segments
    assert len(english.encode(["the keel of 龙骨"])[0]) == 5


def test_a_folder_gives_the_same_ids_here_and_in_transformers(
    english: WholeWords, chinese: WholeWords, tmp_path: Path
) -> None:
    import transformers

    for name, words, texts in (("en", english, ENGLISH), ("zh", chinese, CHINESE)):
        words.save(tmp_path / name)
        again = open_tokenizer(tmp_path / name)
        assert isinstance(again, WholeWords) and again.kind == "words" and again.fingerprint() == words.fingerprint()
        assert all(np.array_equal(a, b) for a, b in zip(again.encode(texts), words.encode(texts), strict=True))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "en")
    for text in [*ENGLISH, "keels of the 龙骨 captain"]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == english.encode([text])[0].tolist()


def test_a_corpus_of_words_has_a_word_start_at_every_token(keel: Command, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(CHINESE * 5), encoding="utf-8")
    done = keel(
        "tokenizer", "train", tmp_path / "t.txt", "--kind", "words", "--vocab-size", 60, "--out", tmp_path / "w"
    )
    assert done.returncode == 0, done.stderr
    build([str(tmp_path / "t.txt")], str(tmp_path / "w"), str(tmp_path / "c"), documents="line", language="zh")
    from keel.corpus.store import Corpus

    corpus = Corpus.open(tmp_path / "c")
    stop = corpus.tokens
    assert corpus.word_starts(0, stop).all() and stop == 5 * sum(
        map(len, open_tokenizer(tmp_path / "w").encode(CHINESE))
    )


def test_too_few_words_are_a_one_line_error(keel: Command, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("every word here is different")
    done = keel(
        "tokenizer", "train", tmp_path / "t.txt", "--kind", "words", "--min-frequency", 2, "--out", tmp_path / "w"
    )
    assert done.returncode == 2 and "no word occurs 2 times" in done.stderr and not (tmp_path / "w").exists()
    with pytest.raises(UserError, match="no room"):
        learn_words(ENGLISH, 5)
