from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from keel.errors import UserError
from keel.tokenizers import word_cache
from keel.tokenizers.wordpiece import SPECIAL, WordPiece, learn

SENTENCES = [
    "The cat sat on the mat.",
    "数学是一门学科，数学家们。",
    "Cats sit; résumés don't!",
    "2008年 NBA [MASK] T恤",
] * 5
FRAGMENTS = (
    "the",
    "CAT",
    "mat",
    "é",
    "e\u0301",
    "数",
    "学",
    "[MASK]",
    "[SEP]",
    "\x00",
    "\u200b",
    " ",
    "\n",
    "#",
    "ﬀ",
    "😀",
    "x" * 120,
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(codec="utf-8"), max_size=5), max_size=10).map(
    "".join
)


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    return WordPiece.train(SENTENCES, size=200)


@given(st.lists(TEXTS, max_size=6))
@settings(max_examples=300, deadline=None)
def test_cached_words_have_the_ids_of_the_library(tokenizer: WordPiece, texts: list[str]) -> None:
    expected = tokenizer._tokenizer.encode_batch(texts, add_special_tokens=False)
    rows = tokenizer.encode(texts)
    assert [row.tolist() for row in rows] == [encoding.ids for encoding in expected]
    assert all(row.dtype == np.int32 for row in rows)


@given(st.lists(TEXTS, max_size=6))
@settings(max_examples=50, deadline=None)
def test_added_tokens_are_found_in_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    base = Tokenizer.from_str(WordPiece.train(SENTENCES, size=120)._tokenizer.to_str())
    for added in ([AddedToken("数学", normalized=False)], [AddedToken("Cat", normalized=True)]):
        base.add_tokens(added)
        folder = tmp_path_factory.mktemp("added")
        base.save(str(folder / "tokenizer.json"))
        tokenizer = WordPiece.load(folder)
        assert tokenizer.size == base.get_vocab_size()
        expected = base.encode_batch([*texts, "数学the cat"], add_special_tokens=False)
        assert [row.tolist() for row in tokenizer.encode([*texts, "数学the cat"])] == [e.ids for e in expected]


def test_a_full_cache_changes_nothing(tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(f"cat{n}mat" for n in range(i, i + 9)) for i in range(60)]
    before = [row.tolist() for row in tokenizer.encode(texts)]
    monkeypatch.setattr(word_cache, "WORDS_CACHED", 10)
    assert [row.tolist() for text in texts for row in tokenizer.encode([text])] == before


def test_training_is_deterministic_across_processes(tokenizer: WordPiece) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijéü", k=draw.randrange(1, 9))) for _ in range(3000)]
    code = (
        "import sys, json; from keel.tokenizers.wordpiece import WordPiece;"
        "print(WordPiece.train(json.load(sys.stdin), size=300).fingerprint())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], input=json.dumps(words), capture_output=True, text=True, check=True
        )
        for _ in range(3)
    ]
    assert len({run.stdout for run in runs}) == 1


@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(6, 60), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_requested_size_is_never_exceeded(texts: list[str], size: int, lowercase: bool) -> None:
    try:
        tokenizer, alphabet = learn(texts * 2, size, lowercase)
    except UserError as error:
        assert "occurs" in str(error)
        return
    assert tokenizer.size <= size
    assert tokenizer.vocabulary[:5] == list(SPECIAL)
    singles = {token for token in tokenizer.vocabulary[5:] if len(token.removeprefix("##")) == 1}
    assert {*alphabet.characters, *(f"##{c}" for c in alphabet.inside)} >= singles - {"#"}
    if not alphabet.crowded and "[" not in "".join(texts):
        known = tokenizer.encode([text for text in texts if "x" * 101 not in text])
        assert not any((row == tokenizer.unk).any() for row in known)


def test_saving_and_loading_keep_everything(tokenizer: WordPiece, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = WordPiece.load(tmp_path)
    bare = WordPiece.load(tmp_path / "vocab.txt")
    assert again.fingerprint() == bare.fingerprint() == tokenizer.fingerprint()
    assert again.vocabulary == tokenizer.vocabulary
    assert [again.token(i) for i in (again.pad, again.unk, again.cls, again.sep, again.mask)] == list(SPECIAL)
    assert np.array_equal(again.continues, [token.startswith("##") for token in again.vocabulary])
    cased = WordPiece.train(SENTENCES, size=200, lowercase=False)
    assert cased.fingerprint() != tokenizer.fingerprint()
    assert WordPiece.train(SENTENCES, size=200, strip_accents=True).fingerprint() == tokenizer.fingerprint()


def test_the_config_beside_a_tokenizer_json_wins(tokenizer: WordPiece, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"do_lower_case": False}))
    assert tokenizer.lowercase and not WordPiece.load(tmp_path).lowercase


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"\x89PNG\r\n\x1a\n", "not UTF-8"),
        (b"abc\0def\n", "binary"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", r"lacks \[MASK\]"),
        (b"the\nfox\n", r"lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfox\nthe\nfox\n", "line 8: 'fox' is also on line 6"),
    ],
)
def test_bad_vocabularies_are_refused_by_name(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"vocab.txt.*{says}"):
        WordPiece.load(tmp_path)


def test_windows_line_ends_and_trailing_blank_lines_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\ufeff".encode() + "\r\n".join([*SPECIAL, "the", "The", "", ""]).encode())
    assert WordPiece.load(tmp_path).vocabulary == [*SPECIAL, "the", "The"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "its model is BPE, not WordPiece"),
        ({"normalizer": None}, "its normalizer is None, not BertNormalizer"),
        ({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}}, "added_tokens": []}, "rejects it|lacks"),
        ({"added_tokens": 3}, "rejects it"),
    ],
)
def test_other_tokenizers_are_refused(
    tokenizer: WordPiece, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | change))
    with pytest.raises(UserError, match=f"tokenizer.json.*({says})"):
        WordPiece.load(tmp_path)


def test_paths_without_a_tokenizer_are_refused(tokenizer: WordPiece, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds neither"):
        WordPiece.load(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        WordPiece.load(tmp_path / "nowhere")
    (tmp_path / "tokenizer.json").write_text("[1, 2")
    with pytest.raises(UserError, match="not valid JSON"):
        WordPiece.load(tmp_path)
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"tokenizer_config.json.*not a JSON object"):
        WordPiece.load(tmp_path)


def test_text_that_is_not_unicode_is_named(tokenizer: WordPiece) -> None:
    with pytest.raises(UserError, match="text 2: character 1 is half a surrogate pair"):
        tokenizer.encode(["fine", "a\udcff"])
    with pytest.raises(UserError, match="text 1: expected a string, found int"):
        tokenizer.encode([3])  # type: ignore[list-item]
    with pytest.raises(UserError, match="surrogate"):
        tokenizer.encode_with_offsets("\ud800")


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(UserError, match="give more text"):
        WordPiece.train([" \n\t", ""])
    with pytest.raises(UserError, match="no room"):
        WordPiece.train(SENTENCES, size=5)
