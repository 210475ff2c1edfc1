"""Whole words: every word is one token, frequent words have entries, and Chinese is split by the segmenter."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.stages.corpus import build
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.whole_words import WholeWords, learn_words

ENGLISH = ["The old captain watches the keel at dawn.", "A captain forgets the Keel, and the keel forgets him."]
CHINESE = ["老船长看着龙骨。", "中华人民共和国的老船长记得港口和桅杆。", "年轻的水手在港口修理桅杆，他穿着T恤。"]
FRAGMENTS = ("a", "A", "b", "[MASK]", "[UNK]", "É", "e\u0301", "龙骨", "#", "x" * 120, "\u200b", "\x00", "\n")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def english() -> WholeWords:
    return learn_words(ENGLISH, 40, min_frequency=1)


@pytest.fixture(scope="module")
def chinese() -> WholeWords:
    return learn_words(CHINESE, 60, min_frequency=1)


def generated(seed: int, count: int) -> list[str]:
    """Sentences of so many words in all, from 2,000 spellings: the n-th drawn in proportion to 1/n, as in language."""
    source = random.Random(seed)
    spellings = list(dict.fromkeys("".join(source.choices("abcdefgh", k=source.randint(1, 9))) for _ in range(4000)))
    words = source.choices(spellings[:2000], [1 / n for n in range(1, 2001)], k=count)
    words = [source.choice((str.upper, str.title, str, str))(word) for word in words]
    return [" ".join(words[n : n + 12]) + source.choice(".,!?") for n in range(0, count, 12)]


@pytest.mark.parametrize("least, size", [(1, 10_000), (1, 500), (2, 10_000), (5, 300), (40, 10_000), (1, 9)])
@pytest.mark.parametrize("seed", [1, 2])
def test_entries_are_the_most_frequent_words(seed: int, least: int, size: int) -> None:
    """Counted independently, in 6,000 words of some 1,500 spellings and four signs."""
    texts = generated(seed, 6000)
    counts = Counter(re.findall(r"\w+|[.,!?]", " ".join(texts).lower()))
    kept = learn_words(texts, size, min_frequency=least).vocabulary[5:]
    expected = sorted((count for count in counts.values() if count >= least), reverse=True)[: size - 5]
    assert len(counts) > 1000 and [counts[word] for word in kept] == expected, "frequent words first"
    assert len(set(kept)) == len(kept)
    dropped = [counts[word] for word in counts.keys() - set(kept)]
    assert not dropped or max(dropped) <= expected[-1], "no dropped word is more frequent than one that was kept"


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


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[WholeWords, WholeWords, Any]:
    """400 entries for 6,000 generated words: as learnt, from its folder, and in transformers."""
    import transformers

    folder, words = tmp_path_factory.mktemp("words"), learn_words(generated(3, 6000), 400, min_frequency=2)
    words.save(folder)
    again = open_tokenizer(folder)
    assert isinstance(again, WholeWords) and again.kind == "words" and again.fingerprint() == words.fingerprint()
    return words, again, transformers.AutoTokenizer.from_pretrained(folder)


def test_a_folder_gives_the_same_ids_here_and_in_transformers(saved: tuple[WholeWords, WholeWords, Any]) -> None:
    """3,000 words that were not learnt from; an id is that of the word's entry, or that of [UNK]."""
    words, again, theirs = saved
    texts = generated(4, 3000)
    rows = words.encode(texts)
    entries = {word: id for id, word in enumerate(words.vocabulary)}
    expected = [[entries.get(w, words.unk) for w in re.findall(r"\w+|[.,!?]", text.lower())] for text in texts]
    assert [row.tolist() for row in rows] == [row.tolist() for row in again.encode(texts)] == expected
    assert theirs(texts, add_special_tokens=False)["input_ids"] == expected
    unknown = np.mean(np.concatenate(rows) == words.unk)
    assert 0.05 < unknown < 0.95, "both kinds of words occur"


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(FRAGMENTS),
        max_size=10,
    )
)
def test_any_text_has_the_same_ids_in_transformers(saved: tuple[WholeWords, WholeWords, Any], parts: list[str]) -> None:
    words, again, theirs = saved
    for text in ("".join(parts), " ".join(parts)):
        ids = words.encode([text])[0].tolist()
        assert ids == again.encode([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"]


def test_a_folder_of_chinese_words_gives_the_same_ids(chinese: WholeWords, tmp_path: Path) -> None:
    chinese.save(tmp_path)
    again = open_tokenizer(tmp_path)
    assert isinstance(again, WholeWords) and again.segments and again.fingerprint() == chinese.fingerprint()
    source = random.Random(5)
    texts = [*CHINESE, *("".join(source.choices("".join(CHINESE) + "罕見 aT", k=20)) for _ in range(300))]
    assert [row.tolist() for row in again.encode(texts)] == [row.tolist() for row in chinese.encode(texts)]


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
