"""Surgery: what means the same stays the same, and what is new is what was promised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from keel.errors import UserError
from keel.hugging_face.folder import load_model
from keel.inference.model import Model
from keel.stages.pretrain import pretrain
from keel.stages.surgery import extend_positions, extend_vocabulary, propose, shrink_vocabulary
from keel.tokenizers.folder import open_tokenizer

TEXT = "the old captain remembers seven lanterns"


@pytest.fixture(scope="module")
def model(finished_run: Path) -> Model:
    return Model.load(finished_run)


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with words that the tokenizer has no entries for."""
    words = ["spinnaker", "barnacle", "keelhauling", "bowsprit", "halyard"]
    lines = [f"the {words[n % 5]} and the {words[n % 3]} of ship number {n}" for n in range(200)]
    path = tmp_path_factory.mktemp("domain") / "ships.txt"
    path.write_text("\n\n".join(lines))
    return path


def test_positions_are_repeated_and_short_texts_read_as_before(model: Model, tmp_path: Path) -> None:
    import transformers

    result = extend_positions(str(model.path), 200, str(tmp_path / "long"))
    assert (result["positions_before"], result["positions"]) == (64, 200)
    longer = Model.load(tmp_path / "long")
    assert np.array_equal(longer.encode([TEXT])[0], model.encode([TEXT])[0])
    for one, two in zip(longer.fill("the old [MASK] sees")[0], model.fill("the old [MASK] sees")[0], strict=True):
        assert one["token"] == two["token"] and one["probability"] == pytest.approx(two["probability"], rel=1e-5)
    table = longer.learner.backbone.embeddings.positions.weight  # type: ignore[union-attr]
    assert torch.equal(table[64:128], table[:64]) and len(table) == 200
    with pytest.raises(UserError, match="longer than this model's 64 positions"):
        model.encode(["keel " * 150])
    assert len(longer.encode(["keel " * 150])[0]) > 64
    theirs = transformers.BertModel.from_pretrained(tmp_path / "long")
    assert theirs.config.max_position_embeddings == 200
    with pytest.raises(UserError, match="already has 64 positions"):
        extend_positions(str(model.path), 64, str(tmp_path / "x"))
    with pytest.raises(UserError, match="already there"):
        extend_positions(str(model.path), 128, str(tmp_path / "long"))


KIND = "model.backbone.kind"


@pytest.mark.parametrize(
    "recipe, changes",
    [
        ("roberta-mini", []),
        ("gpt-mini", []),
        ("modern-mini", []),
        ("roberta-mini", [f"{KIND}=mpnet"]),
        ("roberta-mini", [f"{KIND}=deberta"]),
        ("roberta-mini", [f"{KIND}=deberta", "model.backbone.absolute_positions=true"]),
    ],
)
def test_other_families_get_longer_too(recipe: str, changes: list[str], corpus_path: Path, tmp_path: Path) -> None:
    small = [
        *changes,
        "model.backbone.layers=1",
        "model.backbone.width=32",
        "model.backbone.heads=2",
        "model.backbone.positions=40",
    ]
    small += ["data.length=32", "training.batch_tokens=256", "training.steps=2", "training.precision=fp32"]
    pretrain(recipe, corpus=str(corpus_path), out=str(tmp_path / "m"), overrides=small, quiet=True)
    extend_positions(str(tmp_path / "m"), 100, str(tmp_path / "long"))
    short, long = Model.load(tmp_path / "m"), Model.load(tmp_path / "long")
    assert np.array_equal(short.encode([TEXT])[0], long.encode([TEXT])[0])
    assert len(long.encode(["keel " * 60])[0]) > 60


def test_proposed_words_save_what_was_printed(model: Model, domain: Path, tmp_path: Path) -> None:
    found = propose(str(model.path), [str(domain)], count=4, min_frequency=5)
    words = [row["word"] for row in found["words"]]
    assert len(words) == len(set(words)) == found["proposed"] == 4
    saved = [row["tokens_saved"] for row in found["words"]]
    assert saved == sorted(saved, reverse=True) and all(
        row["tokens_saved"] == row["count"] * (len(row["pieces"]) - 1) for row in found["words"]
    )
    held = found["held_out"]
    assert (
        held["shortened_by"] == pytest.approx(1 - held["tokens_after"] / held["tokens_before"])
        and held["shortened_by"] > 0.2
    )

    result = extend_vocabulary(str(model.path), [*words, "the", "two words", "Keel\u9f99"], str(tmp_path / "wide"))
    assert result["added"] == len(words) and result["size"] == model.tokenizer.size + len(words)
    assert set(result["not_possible"]) == {"two words", "Keel\u9f99"}
    wide = Model.load(tmp_path / "wide")
    assert wide.tokenizer.vocabulary[: model.tokenizer.size] == model.tokenizer.vocabulary
    for row in found["words"]:
        ids = [model.tokenizer.vocabulary.index(piece) for piece in row["pieces"]]
        new = wide.tokenizer.vocabulary.index(row["word"])
        assert wide.tokenizer.encode([row["word"]])[0].tolist() == [new]
        table = wide.learner.backbone.token_embeddings()
        torch.testing.assert_close(table[new], table[ids].mean(0))
    untouched = next(t for t in ("the [MASK]", "a [MASK]") if not any(w in t.split() for w in words))
    old, new_ = (m.encode([untouched])[0] for m in (model, wide))
    assert np.array_equal(old, new_), "a text without the new words reads as before"


def test_a_shrunk_model_reads_its_texts_as_before(
    model: Model, corpus_path: Path, text_file: Path, tmp_path: Path
) -> None:
    import transformers

    wide = extend_vocabulary(str(model.path), ["zebra", "quagga", "okapi"], str(tmp_path / "wide"))
    assert wide["added"] == 3
    narrow = shrink_vocabulary(str(tmp_path / "wide"), str(tmp_path / "n"), texts=[str(text_file)])
    assert narrow["size"] < narrow["size_before"] and narrow["parameters"] < narrow["parameters_before"]
    small = Model.load(tmp_path / "n")
    assert not {"zebra", "quagga", "okapi"} & set(small.tokenizer.vocabulary)
    texts = [json.loads(line)["text"] for line in text_file.read_text().splitlines()[:40]]
    before = Model.load(tmp_path / "wide")
    texts = [text for text in texts if len(before.tokenizer.encode([text])[0]) < 60]
    for a, b in zip(before.encode(texts), small.encode(texts), strict=True):
        assert np.allclose(a, b, atol=1e-6)
    for text, ids in zip(texts, small.tokenizer.encode(texts), strict=True):
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "n")
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist()
        break
    with pytest.raises(UserError, match="give --corpus DIR, or texts"):
        shrink_vocabulary(str(model.path), str(tmp_path / "x"))
    with pytest.raises(UserError, match="built with another tokenizer"):
        shrink_vocabulary(str(tmp_path / "n"), str(tmp_path / "x"), corpus=str(corpus_path))


def test_an_extended_model_keeps_learning(model: Model, domain: Path, tmp_path: Path) -> None:
    """propose, extend, build, pretrain --init: the whole way."""
    from keel.stages.corpus import build

    words = [row["word"] for row in propose(str(model.path), [str(domain)], count=5)["words"]]
    extend_vocabulary(str(model.path), words, str(tmp_path / "wide"))
    build([str(domain)], str(tmp_path / "wide"), str(tmp_path / "c"), documents="line")
    same = ["data.length=32", "training.batch_tokens=256", "training.steps=3", "training.precision=fp32"]
    result = pretrain(
        "bert-tiny",
        corpus=str(tmp_path / "c"),
        out=str(tmp_path / "m"),
        init=str(tmp_path / "wide"),
        overrides=same,
        quiet=True,
    )
    assert result["step"] == 3
    assert open_tokenizer(tmp_path / "m").size == model.tokenizer.size + len(words)
    assert load_model(tmp_path / "m").learner.backbone.config.vocabulary == model.tokenizer.size + len(words)
