from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from keel.errors import UserError
from keel.tokenizers import chinese
from keel.tokenizers.characters import code_points
from keel.tokenizers.wordpiece import SPECIAL, WordPiece

TEXT = "数学是利用符号语言研究数量结构变化以及空间等概念的一门学科，龙骨模型。我们来到北京清华大学 T恤 卡拉OK 2008年"
PARTS = (
    *(
        "北京",
        "清华大学",
        "数学家",
        "龘",
        "𠀀",
        "\uf900",
        "\U0002b830",
        "龘龘",
        "😀",
        "ǝ",
        "T恤",
        "卡拉OK",
        "二〇〇八年",
    ),
    *(
        "[MASK]",
        "[UNK]",
        "\x00",
        "\u200b",
        "\ufffd",
        "\r\n",
        "\n",
        "\u3000",
        "\u0301",
        "，",
        "a",
        " ",
        "a" * 101,
        "〇",
        "々",
    ),
)
TEXTS = st.lists(
    st.sampled_from(PARTS) | st.text(TEXT, max_size=8) | st.text(st.characters(codec="utf-8"), max_size=4), max_size=8
).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    return WordPiece.train([TEXT] * 3, size=300)


def exact(text: str, tokenizer: WordPiece) -> np.ndarray:
    """The reference: from offsets and the words of the segmenter, one sentence at a time."""
    import rjieba

    inside = set()
    place = 0
    for word in rjieba.cut(text):
        inside |= set(range(place + 1, place + len(word)))
        place += len(word)
    ids, offsets = tokenizer.encode_with_offsets(text)
    starts = np.ones(len(ids), dtype=bool)
    for n, (id, (start, end)) in enumerate(zip(ids, offsets, strict=True)):
        is_chinese = end - start == 1 and bool(chinese.chinese_characters(code_points(text[start:end]))[0])
        starts[n] = n == 0 or not (tokenizer.token(id).startswith("##") or (is_chinese and start in inside))
    return starts


@given(st.lists(TEXTS, max_size=6))
@example([])
@example(["", "北京"])
@example(["龘北京龘京", "😀龘北京", "[UNK]北京龘"])
@settings(max_examples=400, deadline=None)
def test_equals_the_reference_for_any_text(tokenizer: WordPiece, texts: list[str]) -> None:
    found = chinese.word_starts(texts, tokenizer.encode(texts), tokenizer)
    assert [row.tolist() for row in found] == [exact(text, tokenizer).tolist() for text in texts]


@pytest.fixture(scope="module")
def joining(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    """A tokenizer that does not separate Chinese characters."""
    folder = tmp_path_factory.mktemp("joining")
    vocabulary = [*SPECIAL, "北", "##京", "京", "数", "##学", "北京", "，"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenize_chinese_chars": false}')
    return WordPiece.load(folder)


@given(st.lists(TEXTS, max_size=6))
@settings(max_examples=100, deadline=None)
def test_equals_the_reference_where_characters_are_not_separated(joining: WordPiece, texts: list[str]) -> None:
    found = chinese.word_starts(texts, joining.encode(texts), joining)
    assert [row.tolist() for row in found] == [exact(text, joining).tolist() for text in texts]


def test_common_words(tokenizer: WordPiece) -> None:
    text = "我们来到北京清华大学"
    (found,) = chinese.word_starts([text], tokenizer.encode([text]), tokenizer)
    assert found.tolist() == [True, False, True, False, True, False, True, False, False, False]


def test_the_blocks_are_those_the_library_separates() -> None:
    normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    points = np.array([p for p in range(0x2000, 0x30000) if not 0xD800 <= p < 0xE000], dtype=np.uint32)
    isolated = [normalizer.normalize_str(chr(p)) == f" {chr(p)} " for p in points]
    assert np.array_equal(chinese.chinese_characters(points), isolated)


def test_a_missing_segmenter_is_named_with_the_command_to_install_it(
    tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(UserError, match=r"pip install 'keel-nlp\[zh\]'"):
        chinese.word_starts(["北京"], tokenizer.encode(["北京"]), tokenizer)
