"""Sentencepiece models: the same ids as the sentencepiece library, on a model that it trained here."""

from __future__ import annotations

import io
import itertools
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.unigram import ALBERT as ROLES
from keel.tokenizers.unigram import XLM_R, Unigram, _parse

SENTENCES = [
    "the old captain watches the keel at dawn",
    "a young sailor (of the harbour) remembers seven lanterns",
    "our carpenter repairs a broken mast before the storm",
    "every gull follows the tall ship, without a word",
    "an oak plank carries the island - in winter",
] * 30


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unigram, Any]:
    """A model with ALBERT's special tokens and with user-defined symbols."""
    folder, model = tmp_path_factory.mktemp("pieces"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=70,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["(", ")", "-"],
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    ours = open_tokenizer(folder)
    assert isinstance(ours, Unigram)
    return ours, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def prepared(text: str) -> str:
    """ALBERT's normalisation of a text before sentencepiece."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    return "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn").lower()


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*" ".join(SENTENCES[:5]).split(), "Émile", "ZZ", "1984", "老"]), max_size=12))
def test_ids_equal_those_of_sentencepiece(trained: tuple[Unigram, Any], words: list[str]) -> None:
    ours, theirs = trained
    text = " ".join(words)
    assert ours.encode([text])[0].tolist() == theirs.encode(prepared(text))


# Latin, Greek, Cyrillic, symbols and Chinese. Marks other than accents are left out: the tokenizers library also strips
# vowel signs (Mc), and knows another version of Unicode.
SCRIPTS = [(0x21, 0x52F), (0x2010, 0x2BFF), (0x4E00, 0x9FFF)]
LETTERS = st.one_of(
    *(st.characters(min_codepoint=a, max_codepoint=b, exclude_categories=["C", "Z", "M"]) for a, b in SCRIPTS),
    st.sampled_from("abcdeors ()-'`\u0301\u0327 "),
)


@settings(deadline=None, max_examples=500)
@given(st.text(LETTERS, max_size=40))
def test_any_text_has_the_ids_of_sentencepiece(trained: tuple[Unigram, Any], text: str) -> None:
    ours, theirs = trained
    assume(not any(token.lower() in prepared(text) for token in ROLES.values()))  # texts may spell special tokens
    assert ours.encode([text])[0].tolist() == theirs.encode(prepared(text))


def test_thousands_of_words_have_the_ids_of_sentencepiece(trained: tuple[Unigram, Any]) -> None:
    """Words that the model was not trained on, of its letters, in all cases and with signs."""
    ours, theirs = trained
    source = random.Random(1)
    letters = "".join(SENTENCES[:5]).replace(" ", "") + "QÉ9"
    words = ["".join(source.choices(letters, k=source.randint(1, 14))) for _ in range(4000)]
    texts = [" ".join(words[n : n + 8]) for n in range(0, len(words), 8)]
    assert [row.tolist() for row in ours.encode(texts)] == [theirs.encode(prepared(text)) for text in texts]


def test_special_tokens_and_decoding(trained: tuple[Unigram, Any], tmp_path: Path) -> None:
    ours, theirs = trained
    assert [ours.token(id) for id in (ours.pad, ours.unk, ours.cls, ours.sep, ours.mask)] == [
        "<pad>",
        "<unk>",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    assert ours.size == theirs.get_piece_size()
    (ids,) = ours.encode(["the old Captain"])
    assert ours.decode(ids.tolist()) == "the old captain"
    assert int(ours.word_starts([ids])[0].sum()) == 3
    ours.save(tmp_path)
    back = open_tokenizer(tmp_path)
    assert isinstance(back, Unigram) and back.fingerprint() == ours.fingerprint()
    assert ours.knows("k") and not ours.knows("老")


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff\xff\x0fabc", b"hello world", b"\x0a\x03abc", b"\n\0"])
def test_other_files_are_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(UserError, match=r"spiece\.model: "):
        open_tokenizer(tmp_path)


SCRIPTS_MIXED = ["老船长看着龙骨。", "年轻的水手记得七盏灯。", "Émile à Ελλάδα ЯЗЫК"] * 30


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unigram, Any, Path]:
    """A model with the first pieces of XLM-R's, cased and in two scripts."""
    folder, model = tmp_path_factory.mktemp("xlm-r"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            [*SENTENCES, *(["老船长看着龙骨。", "年轻的水手记得七盏灯。", "Émile à Ελλάδα ЯЗЫК"] * 30)]
        ),
        model_writer=model,
        vocab_size=95,
        character_coverage=1.0,
        minloglevel=2,
    )
    (folder / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    ours = open_tokenizer(folder)
    assert isinstance(ours, Unigram) and not ours.lowercase and ours.between == 2
    return ours, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), folder


@settings(deadline=None, max_examples=300)
@given(st.text(st.one_of(LETTERS, st.sampled_from("老船长看着龙骨 七盏灯")), max_size=40))
def test_xlm_r_has_the_ids_of_sentencepiece_and_one_more(multilingual: tuple[Unigram, Any, Path], text: str) -> None:
    ours, theirs, _ = multilingual
    assume(not any(token in text for token in XLM_R.values()))
    ids = [3 if id == theirs.unk_id() else id + 1 for id in theirs.encode(" ".join(text.split()))]
    assert ours.encode([text])[0].tolist() == ids


def test_xlm_r_opens_in_transformers_and_from_there(multilingual: tuple[Unigram, Any, Path], tmp_path: Path) -> None:
    import transformers

    ours, _, folder = multilingual
    assert (ours.cls, ours.pad, ours.sep, ours.unk, ours.mask) == (0, 1, 2, 3, ours.size - 1)
    pieces, table = _parse((folder / "sentencepiece.bpe.model").read_bytes())  # theirs would need protobuf to do so
    specials = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = [*specials, *pieces[3:], ("<mask>", 0.0)]
    theirs = transformers.XLMRobertaTokenizer(vocab=vocabulary, _spm_precompiled_charsmap=table)
    theirs.save_pretrained(tmp_path)
    again = open_tokenizer(tmp_path)
    ours.save(tmp_path / "ours")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    texts = ["the old captain", "Émile 老船长, 7 lanterns", "  two   spaces ", "a <mask> mast", "ЯЗЫК (x)"]
    for one, other in itertools.pairwise(texts):
        expected = theirs(one)["input_ids"]
        for mine in (ours, again):
            assert [mine.cls, *mine.encode([one])[0].tolist(), mine.sep] == expected, one
        assert back(one)["input_ids"] == expected
        both = [*expected, ours.sep, *theirs(other)["input_ids"][1:]]
        assert theirs(one, other)["input_ids"] == back(one, other)["input_ids"] == both
