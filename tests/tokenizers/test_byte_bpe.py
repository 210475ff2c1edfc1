"""Byte-level BPE and byte fallback: no token is unknown, no text is lost, and ids equal those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.inference.model import Model
from keel.stages import tokenizer as stage
from keel.tokenizers.byte_bpe import ROBERTA, ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.chinese import word_starts
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.special_tokens import frame, framing

TEXTS = [
    "The old captain watches the keel at dawn, and the young sailor's watching too.",
    "Every gull remembers 1984 lanterns; the harbour doesn't.",
    "老船长看着龙骨。年轻的水手记得港口，1984年。",
    "naïve façade, Ærøskøbing \U0001f6a2 and so on",
] * 20
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def byte_bpe() -> ByteBpe:
    return ByteBpe.train(TEXTS, 500)


@pytest.fixture(scope="module")
def byte_fallback() -> ByteFallback:
    return ByteFallback.train(TEXTS, 500)


@settings(deadline=None, max_examples=300)
@given(anything)
@example("a\tb\r\nc  d\x00\u2028 e")
@example("[MASK][CLS] <0x41> [UNK]")
@example("\ufffd\ufeff\u200d\U0010ffff")
@example("▁ Ġ Ċ")
@example("  two spaces  ")
def test_byte_fallback_restores_every_text(byte_fallback: ByteFallback, text: str) -> None:
    (ids,) = byte_fallback.encode([text])
    assert byte_fallback.decode(ids.tolist()) == text
    if "[UNK]" not in text:
        assert byte_fallback.unk not in ids


@settings(deadline=None, max_examples=200)
@given(anything)
def test_byte_level_bpe_restores_every_text(byte_bpe: ByteBpe, text: str) -> None:
    if any(token in text for token in ROBERTA.values()):
        return
    (ids,) = byte_bpe.encode([text])
    decoded = byte_bpe.decode(ids.tolist())
    assert decoded in (text, f" {text}"), "a space before a text that does not begin with one"
    assert byte_bpe.unk not in ids


@pytest.mark.parametrize("kind", [ByteBpe, ByteFallback])
def test_training_is_repeatable_and_a_saved_folder_is_the_same(kind: type, tmp_path: Path) -> None:
    import transformers

    one, two = kind.train(TEXTS, 420), kind.train(iter(TEXTS), 420)  # type: ignore[attr-defined]
    assert one.vocabulary == two.vocabulary and one.fingerprint() == two.fingerprint()
    assert one.size <= 420 and len(one.vocabulary) == len(set(one.vocabulary))
    one.save(tmp_path)
    back = open_tokenizer(tmp_path)
    assert type(back) is kind and back.fingerprint() == one.fingerprint()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS[:4], "unseen wörds 罕見", "a [MASK] b <mask> c"]
    for text, ids in zip(texts, one.encode(texts), strict=True):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist()
    assert [
        theirs.cls_token_id,
        theirs.sep_token_id,
        theirs.pad_token_id,
        theirs.mask_token_id,
        theirs.unk_token_id,
    ] == [
        one.cls,
        one.sep,
        one.pad,
        one.mask,
        one.unk,
    ]


@settings(deadline=None, max_examples=200)
@given(st.lists(anything | st.sampled_from(TEXTS), min_size=1, max_size=4))
def test_ids_of_published_files_equal_transformers(published: tuple[ByteBpe, object], texts: list[str]) -> None:
    ours, theirs = published
    for text, ids in zip(texts, ours.encode(texts), strict=True):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist()  # type: ignore[operator]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, byte_bpe: ByteBpe) -> tuple[ByteBpe, object]:
    """vocab.json and merges.txt in the published format of RoBERTa, read by both."""
    import transformers

    folder = tmp_path_factory.mktemp("published")
    model = json.loads(byte_bpe._tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    theirs = transformers.RobertaTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    ours = open_tokenizer(folder)
    assert isinstance(ours, ByteBpe)
    return ours, theirs


def test_pairs_are_framed_as_transformers_frames_them(
    published: tuple[ByteBpe, object], byte_fallback: ByteFallback
) -> None:
    ours, theirs = published
    texts = ("the keel", "a young sailor")
    ids, _, special = frame(ours, ours.encode(texts))
    assert ids.tolist() == theirs(*texts)["input_ids"]  # type: ignore[operator]
    assert special.sum() == framing(ours, 2) == 4 and (ids[special] != ours.pad).all()
    assert framing(byte_fallback, 2) == 3 and framing(ours, 1) == 2


@pytest.mark.parametrize("kind", [ByteBpe, ByteFallback])
def test_words_start_where_words_start(kind: type) -> None:
    tokenizer = kind.train(TEXTS, 420)  # type: ignore[attr-defined]
    texts = ["The keel, caching 1984 (twice)!", "watching gulls"]
    rows = tokenizer.encode(texts)
    found = []
    for row, starts in zip(rows, tokenizer.word_starts(rows), strict=True):
        assert len(row) == len(starts) and starts[0]
        words = np.split(row, np.flatnonzero(starts)[1:])
        found.append(["".join(tokenizer.decode(word.tolist())).strip() for word in words])
    assert found == [
        ["The", "keel", ",", "caching", "1984", "(", "twice", ")!"],
        ["watching", "gulls"],
    ] or found == [
        ["The", "keel", ",", "caching", "1984", "(", "twice", ")", "!"],
        ["watching", "gulls"],
    ]


@pytest.mark.parametrize("kind", [ByteBpe, ByteFallback])
def test_chinese_words_start_where_the_segmenter_says(kind: type) -> None:
    import rjieba

    tokenizer = kind.train(TEXTS, 420)  # type: ignore[attr-defined]
    for text in ("老船长看着龙骨。", "罕見的水手修理 keel 了", "港口1984年"):
        rows = tokenizer.encode([text])
        (starts,) = word_starts([text], rows, tokenizer)
        words = [tokenizer.decode(part.tolist()).strip() for part in np.split(rows[0], np.flatnonzero(starts)[1:])]
        wanted = [word for word in rjieba.cut(text) if word.strip()]
        if kind is ByteBpe:  # a token may contain the end of one character and the start of the next
            begins = set(np.cumsum([0, *(len(word) for word in rjieba.cut(text))]).tolist())
            offsets = tokenizer.encode_with_offsets(text)[1]
            for (a, b), start in zip(offsets, starts, strict=True):
                if start:
                    assert a == b or begins & set(range(a, b)), "a word start contains the first character of a word"
            assert len(wanted) / 2 < len(words) <= len(wanted)
            continue
        assert "".join(words).replace(" ", "") == text.replace(" ", "")
        assert [w for w in words if any("\u4e00" <= c <= "\u9fff" for c in w)] == [
            w for w in wanted if any("\u4e00" <= c <= "\u9fff" for c in w)
        ]


@settings(deadline=None, max_examples=100)
@given(anything)
def test_offsets_are_characters_of_the_text(byte_bpe: ByteBpe, byte_fallback: ByteFallback, text: str) -> None:
    for tokenizer in (byte_bpe, byte_fallback):
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert len(ids) == len(offsets) == len(tokenizer.encode([text])[0])
        assert all(0 <= a <= b <= len(text) for a, b in offsets)
        covered = {place for a, b in offsets for place in range(a, b)}
        assert all(place in covered for place, c in enumerate(text) if not c.isspace())


@pytest.mark.parametrize("kind", ["byte-bpe", "byte-fallback"])
def test_the_stage_trains_and_inspects(kind: str, text_file: Path, tmp_path: Path) -> None:
    result = stage.train([str(text_file)], tmp_path / "t", kind=kind, vocab_size=400)
    assert result["kind"] == kind and result["size"] <= 400
    found = stage.inspect(tmp_path / "t", [str(text_file)])
    assert found["unknown"] == 0 and found["kind"] == kind and found["tokens_per_word"] >= 1
    with pytest.raises(UserError, match="no room besides 256 bytes"):
        stage.train([str(text_file)], tmp_path / "u", kind=kind, vocab_size=200)
    with pytest.raises(UserError, match="no kind of tokenizer called 'byte-pbe'"):
        stage.train([str(text_file)], tmp_path / "u", kind="byte-pbe")


def test_damaged_files_are_named(tmp_path: Path, byte_bpe: ByteBpe) -> None:
    model = json.loads(byte_bpe._tokenizer.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ t\nq zz\n")
    with pytest.raises(UserError, match=r"merges.txt, line 3: not a pair"):
        open_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("[]")
    with pytest.raises(UserError, match="not a JSON object of tokens and ids"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("recipe, kind", [("roberta-mini", "byte-bpe"), ("gpt-mini", "byte-fallback")])
def test_the_whole_line_runs_with_byte_tokenizers(recipe: str, kind: str, text_file: Path, tmp_path: Path) -> None:
    """Tokenizer, corpus, pretraining, and a model that gives the same predictions in transformers."""
    import torch
    import transformers

    from keel.stages.corpus import build
    from keel.stages.pretrain import pretrain

    stage.train([str(text_file)], tmp_path / "t", kind=kind, vocab_size=400)
    build([str(text_file)], str(tmp_path / "t"), str(tmp_path / "c"))
    small = ["model.backbone.layers=1", "model.backbone.width=32", "model.backbone.heads=2", "training.steps=6"]
    small += [
        "model.backbone.feed_forward=64",
        "data.length=32",
        "training.batch_tokens=256",
        "training.precision=fp32",
    ]
    pretrain(recipe, corpus=str(tmp_path / "c"), out=str(tmp_path / "m"), overrides=small, quiet=True)
    model = Model.load(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    theirs = getattr(transformers, config["architectures"][0]).from_pretrained(tmp_path / "m").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    text = "the old captain watches 老船长"
    (vectors,) = model.encode([text])
    with torch.no_grad():
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        row = torch.tensor([[model.tokenizer.cls, *ids, model.tokenizer.sep]])
        answer = theirs.base_model(row).last_hidden_state[0]
    assert float((answer - torch.from_numpy(vectors)).abs().max()) <= 1e-5
    if recipe == "roberta-mini":
        assert len(model.fill("the old [MASK] watches")) == len(model.fill("the old <mask> watches")) == 1
