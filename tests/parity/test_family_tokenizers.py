"""The tokenizers of MPNet and DeBERTa: ids equal those of transformers; of an spm.model, those of sentencepiece."""

from __future__ import annotations

import io
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.hugging_face.folder import save_model
from keel.inference.model import Model
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer
from keel.tokenizers.special_tokens import frame
from keel.tokenizers.unigram import DEBERTA, Unigram
from keel.tokenizers.wordpiece import MPNET, WordPiece

Pair = tuple[LibraryTokenizer, Any]

ENGLISH = "the old captain watches keel at dawn young sailor of harbour remembers seven lanterns our carpenter repairs"
ENGLISH += " broken mast before storm it's co-operate 3.14 isn't Émile naïvely U.S. (brackets) e-mail"
CHINESE = "老船长看着龙骨年轻的水手记得七盏灯木匠在风暴之前修理桅杆海鸥跟着大船去了小岛。"
ODD = [*DEBERTA.values(), *MPNET.values(), "<unk>", "[mask]", "[ MASK ]", "</s", "##ing", "▁", "▁the", "a" * 101]
ODD += ["\u00a0", "\t", "\r\n", "  ", "\u3000", "\u200b", "\u2028", "\x85", "\x00", "\ufffd", "\ufeff", "ﬁ", "½"]
ODD += ["，", "１", "e\u0301", "İ", "ß", "한국어", "עִבְרִית", "हिन्दी", "👍🏽", "👨\u200d👩\u200d👧", "…", "™", "Ⅳ"]
KNOWN = st.sampled_from(ODD) | st.sampled_from(ENGLISH.split()) | st.text(CHINESE)
TEXTS = st.lists(KNOWN | st.text(st.characters(codec="utf-8")), max_size=12).map("".join)
# Latin, Greek, Cyrillic, symbols and Chinese: where a mark follows a character that normalisation changes, the
# tokenizers library normalises both as one.
SCRIPTS = [(0x21, 0x52F), (0x2010, 0x2BFF), (0x3001, 0x9FFF), (0xFF01, 0xFF60)]
LETTERS = [st.characters(min_codepoint=a, max_codepoint=b, exclude_categories=["C", "Z", "M"]) for a, b in SCRIPTS]
COMMON = st.lists(KNOWN | st.text(st.one_of(LETTERS)), max_size=12).map(" ".join)
slow = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def lines(seed: int, count: int) -> list[str]:
    """English and Chinese, in all cases; every third line has both."""
    draw, made = random.Random(seed), list[str]()
    for number in range(count):
        words = " ".join(draw.choice((str, str.title, str.upper))(w) for w in draw.choices(ENGLISH.split(), k=8))
        chinese = "".join(draw.choices(CHINESE, k=draw.randrange(1, 30)))
        made.append([words, chinese, f"{chinese} {words}, {chinese}"][number % 3])
    return made


def assert_equal(pair: Pair, texts: list[str]) -> None:
    ours, theirs = pair
    expected = theirs(texts, add_special_tokens=False)["input_ids"] if texts else []
    assert [row.tolist() for row in ours.encode(texts)] == expected


def assert_framed(pair: Pair) -> None:
    ours, theirs = pair
    one, other = "the old captain", "老船长 watches"
    rows = [frame(ours, ours.encode(texts))[0].tolist() for texts in ([one], [one, other])]
    assert rows == [theirs(one)["input_ids"], theirs(one, other)["input_ids"]]
    theirs_by_role = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id)
    assert (ours.pad, ours.unk, ours.cls, ours.sep) == theirs_by_role and theirs.mask_token_id == ours.mask
    assert len(theirs) == ours.size


def saved_and_opened(ours: LibraryTokenizer, folder: Path) -> Any:
    from transformers import AutoTokenizer

    ours.save(folder)
    back = open_tokenizer(folder)
    assert type(back) is type(ours) and back.fingerprint() == ours.fingerprint() and back.roles == ours.roles
    return AutoTokenizer.from_pretrained(folder)


# MPNet


@pytest.fixture(scope="module", params=["uncased", "cased"])
def mpnet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Path]:
    """As published: four tokens of fairseq, then a vocabulary of BERT with its own special tokens, then the mask."""
    from transformers import MPNetTokenizer

    folder, lowercase = tmp_path_factory.mktemp("mpnet"), request.param == "uncased"
    bert = WordPiece.train(lines(0, 600), size=300, lowercase=lowercase).vocabulary
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *bert, "<mask>"]
    theirs = MPNetTokenizer(vocab={token: id for id, token in enumerate(vocabulary)}, do_lower_case=lowercase)
    theirs.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    ours = open_tokenizer(folder)
    assert isinstance(ours, WordPiece) and ours.roles == MPNET and ours.between == 2
    return (ours, theirs), folder


@slow
@given(st.lists(TEXTS, max_size=4))
def test_any_string_for_mpnet(mpnet: tuple[Pair, Path], texts: list[str]) -> None:
    assert_equal(mpnet[0], texts)


def test_thousands_of_lines_for_mpnet(mpnet: tuple[Pair, Path], tmp_path: Path) -> None:
    """Also from a vocab.txt alone, and as Keel saves it."""
    (ours, theirs), folder = mpnet
    assert_equal((ours, theirs), lines(1, 3000))
    assert_framed((ours, theirs))
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    (alone / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": ours.lowercase}))
    bare = open_tokenizer(alone)
    assert bare.fingerprint() == ours.fingerprint()
    assert_equal((bare, theirs), lines(2, 300))
    back = saved_and_opened(ours, tmp_path / "saved")
    assert type(back) is type(theirs)
    assert_equal((ours, back), [*lines(3, 300), *ODD])
    assert_framed((ours, back))


def test_a_mask_takes_the_space_before_it(mpnet: tuple[Pair, Path]) -> None:
    ours, theirs = mpnet[0]
    text = ours.with_masks("the old [MASK] watches")
    assert_equal((ours, theirs), [text])
    assert [ours.token(id) for id in ours.encode([text])[0]].count("<mask>") == 1


# DeBERTa


def sentencepiece_model(**changes: Any) -> bytes:
    model, options = io.BytesIO(), dict(zip(("pad", "bos", "eos", "unk"), range(4), strict=True))
    specials = {f"{name}_id": id for name, id in options.items()}
    specials |= {f"{name}_piece": token for name, token in zip(options, list(DEBERTA.values())[:4], strict=True)}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(0, 900)),
        model_writer=model,
        vocab_size=260,
        character_coverage=1.0,
        minloglevel=2,
        **specials,
        **changes,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def deberta(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unigram, Any, Any, Path]:
    """From an spm.model, by Keel, by sentencepiece and by transformers."""
    from transformers import AutoTokenizer

    folder, model = tmp_path_factory.mktemp("deberta"), sentencepiece_model()
    (folder / "spm.model").write_bytes(model)
    config = {"do_lower_case": False, "vocab_type": "spm", "tokenizer_class": "DebertaV2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ours = open_tokenizer(folder)
    assert isinstance(ours, Unigram) and ours.between == 1 and not ours.lowercase
    theirs = AutoTokenizer.from_pretrained(folder)
    return ours, sentencepiece.SentencePieceProcessor(model_proto=model), theirs, folder


@slow
@given(COMMON)
def test_any_string_has_the_ids_of_sentencepiece(deberta: tuple[Unigram, Any, Any, Path], text: str) -> None:
    ours, theirs, _, _ = deberta
    assume(not any(token in text for token in DEBERTA.values()))
    assert ours.encode([text])[0].tolist() == theirs.encode(text)


def test_thousands_of_lines_for_deberta(deberta: tuple[Unigram, Any, Any, Path], tmp_path: Path) -> None:
    """Those that normalisation does not change have the ids of transformers too, which leaves it out."""
    ours, library, theirs, _ = deberta
    texts = lines(1, 3000)
    assert all(unicodedata.normalize("NFKC", text) == text for text in texts)
    assert [row.tolist() for row in ours.encode(texts)] == library.encode(texts)
    assert_equal((ours, theirs), texts)
    assert_framed((ours, theirs))
    assert ours.mask == library.get_piece_size() == ours.size - 1
    back = saved_and_opened(ours, tmp_path / "saved")
    assert_equal((ours, back), [*texts[:300], *ODD])
    assert_framed((ours, back))


@pytest.fixture(scope="module")
def from_there(deberta: tuple[Unigram, Any, Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A tokenizer.json that transformers wrote."""
    theirs, folder = deberta[2], tmp_path_factory.mktemp("there")
    theirs.save_pretrained(folder)
    assert (folder / "tokenizer.json").is_file()
    return open_tokenizer(folder), theirs


@slow
@given(st.lists(TEXTS, max_size=4))
def test_any_string_for_a_tokenizer_of_transformers(from_there: Pair, texts: list[str]) -> None:
    assert_equal(from_there, texts)


def test_lines_for_a_tokenizer_of_transformers(from_there: Pair, tmp_path: Path) -> None:
    assert_equal(from_there, [*lines(2, 3000), *ODD])
    assert_framed(from_there)
    back = saved_and_opened(from_there[0], tmp_path)
    assert_equal((from_there[0], back), [*lines(3, 300), *ODD])


def test_switches_of_a_deberta(deberta: tuple[Unigram, Any, Any, Path], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    (tmp_path / "spm.model").write_bytes((deberta[3] / "spm.model").read_bytes())
    path, config = tmp_path / "tokenizer_config.json", {"tokenizer_class": "DebertaV2Tokenizer"}
    path.write_text(json.dumps(config | {"do_lower_case": True}))
    ours = open_tokenizer(tmp_path)
    assert ours.lowercase
    assert_equal((ours, AutoTokenizer.from_pretrained(tmp_path)), lines(4, 500))
    path.write_text(json.dumps(config | {"split_by_punct": True}))
    with pytest.raises(UserError, match=r"split_by_punct is true.*save it"):
        open_tokenizer(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "saved")
    assert_equal((open_tokenizer(tmp_path / "saved"), theirs), lines(4, 500))
    path.write_text(json.dumps(config | {"do_lower_case": "no"}))
    with pytest.raises(UserError, match="do_lower_case is neither"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("family", ["mpnet", "deberta", "deberta, from its spm.model"])
def test_a_whole_folder_fills_masks_alike_both_ways(
    family: str, mpnet: tuple[Pair, Path], deberta: tuple[Unigram, Any, Any, Path], tmp_path: Path
) -> None:
    import transformers

    shape = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    shape |= {"max_position_embeddings": 40, "initializer_range": 0.5}
    config: Any
    if family == "mpnet":
        config, theirs = transformers.MPNetConfig(**shape, vocab_size=len(mpnet[0][1])), mpnet[0][1]
    else:
        theirs = deberta[2]
        config = transformers.DebertaV2Config(
            **shape, vocab_size=len(theirs) + 9, relative_attention=True, position_buckets=8, pos_att_type="c2p|p2c"
        )
    torch.manual_seed(0)
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    there, here = tmp_path / "there", tmp_path / "here"
    model.save_pretrained(there)
    theirs.save_pretrained(there)
    if "spm" in family:
        (there / "tokenizer.json").unlink()
        (there / "spm.model").write_bytes((deberta[3] / "spm.model").read_bytes())
    ours = Model.load(there)
    here.mkdir()
    save_model(here, ours.learner, ours.tokenizer, "")
    again = transformers.AutoModelForMaskedLM.from_pretrained(here).eval()
    text = ours.tokenizer.with_masks("the old [MASK] watches 老船长 and the keel")
    for tokenizer, other in ((theirs, model), (transformers.AutoTokenizer.from_pretrained(here), again)):
        with torch.no_grad():
            inputs = tokenizer(text, return_tensors="pt")
            place = int((inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero())
            chances = other(**inputs).logits[0, place, : ours.tokenizer.size].softmax(0)
        for filled in (ours, Model.load(here)):
            (guesses,) = filled.fill(text)
            best = chances.topk(5)
            assert [guess["id"] for guess in guesses] == best.indices.tolist()
            assert [guess["probability"] for guess in guesses] == pytest.approx(best.values.tolist(), rel=2e-3)
