"""What could go wrong between families: no mask token, padded tables, causal pooling, odd published options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel import catalog
from keel.comparing.recipes import ComparisonPlan, _check, _rank, spread
from keel.comparing.tasks import LabelledTask
from keel.errors import UserError
from keel.hugging_face.folder import load_model, save_model
from keel.inference.model import Model
from keel.learner.build import assemble
from keel.stages.corpus import build
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain
from keel.stages.surgery import extend_vocabulary, shrink_vocabulary
from keel.tokenizers.byte_bpe import ByteBpe
from keel.tokenizers.wordpiece import WordPiece

SMALL = [
    *("model.backbone.layers=1", "model.backbone.width=32", "model.backbone.heads=2", "model.backbone.feed_forward=48"),
    *("model.backbone.positions=64", "data.length=32", "training.batch_tokens=256", "training.precision=fp32"),
    "training.steps=2",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(60)), "##x", "a", "##a"]


def saved(folder: Path, kind: str, objectives: dict[str, Any], vocabulary: int = len(WORDS), **options: Any) -> Path:
    """A fresh model with a WordPiece tokenizer, whose table may be larger."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    family = catalog.find("backbones", kind)
    shape = {"vocabulary": vocabulary, "layers": 1, "width": 16, "heads": 2, "feed_forward": 24, "positions": 40}
    backbone = family(family.Config(**shape, **options))
    backbone.init_weights(torch.Generator().manual_seed(0))
    save_model(folder, assemble(backbone, objectives), WordPiece.load(folder), "")
    return folder


def gpt_tokenizer(folder: Path, text_file: Path) -> Path:
    """In GPT-2's form: one special token, and no mask."""
    model = json.loads(ByteBpe.train([text_file.read_text()], 330)._tokenizer.to_str())["model"]
    merges, kept = model["merges"], {}
    for token in model["vocab"]:
        if token not in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
            kept[token] = len(kept)
    kept["<|endoftext|>"] = len(kept)
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(kept))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    return folder


def test_a_tokenizer_without_a_mask_trains_causal_models_only(text_file: Path, tmp_path: Path) -> None:
    tokenizer = gpt_tokenizer(tmp_path / "t", text_file)
    build([str(text_file)], str(tokenizer), str(tmp_path / "c"))
    for name in ("bert-mini", "electra-mini"):
        with pytest.raises(UserError, match="no mask token"):
            pretrain(name, corpus=str(tmp_path / "c"), out=str(tmp_path / "x"), overrides=SMALL, quiet=True)
    pretrain("gpt-mini", corpus=str(tmp_path / "c"), out=str(tmp_path / "m"), overrides=SMALL, quiet=True)
    model = Model.load(tmp_path / "m")
    assert model.generate("the old", tokens=3)[0]["tokens"] <= 3
    with pytest.raises(UserError, match="cannot fill"):
        model.fill("the [MASK]")
    data = tmp_path / "d.conll"
    data.write_text("the O\nold B-X\nkeel I-X\n\na O\nyoung O\nsailor B-X\n\n" * 6)
    finetune(
        str(tmp_path / "m"),
        "tag",
        train=str(data),
        dev=str(data),
        out=str(tmp_path / "f"),
        overrides=["training.epochs=1", "training.precision=fp32"],
        quiet=True,
    )
    (found,) = Model.load(tmp_path / "f").predict(["the old keel"])
    assert all("the old keel"[e["start"] : e["end"]] == e["text"] for e in found.get("entities", []))


def test_a_causal_model_is_known_by_its_last_token(corpus_path: Path, tmp_path: Path) -> None:
    pretrain("gpt-mini", corpus=str(corpus_path), out=str(tmp_path / "m"), overrides=SMALL, quiet=True)
    one, two = Model.load(tmp_path / "m").embed(["the old keel", "a young sailor"], pooling="cls")
    assert not np.allclose(one, two)
    data = tmp_path / "d.tsv"
    data.write_text("text\tlabel\n" + "the old keel\ta\na young sailor\tb\n" * 8)
    for frozen in ("false", "true"):
        changes = ["training.epochs=1", "training.precision=fp32", f"encoder.frozen={frozen}"]
        out = str(tmp_path / f"frozen-{frozen}")
        finetune(
            str(tmp_path / "m"), "classify", train=str(data), dev=str(data), out=out, overrides=changes, quiet=True
        )
        a, b = (found["probabilities"] for found in Model.load(out).predict(["the old keel", "a young sailor"]))
        assert a != b, "the head sees the text"


def test_a_causal_bert_that_classifies_does_not_pose_as_theirs(corpus_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    pretrain("bert-mini-causal", corpus=str(corpus_path), out=str(out), overrides=SMALL, quiet=True)
    data = tmp_path / "d.tsv"
    data.write_text("text\tlabel\n" + "the old keel\ta\na young sailor\tb\n" * 8)
    changes = ["training.epochs=1", "training.precision=fp32"]
    finetune(
        str(out), "classify", train=str(data), dev=str(data), out=str(tmp_path / "f"), overrides=changes, quiet=True
    )
    config = json.loads((tmp_path / "f" / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    before = Model.load(tmp_path / "f").predict(["the old keel"])
    assert before[0]["label"] in ("a", "b")


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert", "electra"])
def test_what_transformers_would_compute_otherwise_has_a_name_it_does_not_know(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"attention": {"scaled": False}} | ({"padding": 0} if kind == "roberta" else {})
    folder = saved(tmp_path, kind, {"masked_lm": {}}, **options)
    assert json.loads((folder / "config.json").read_text())["model_type"] == f"keel-{kind}"
    assert load_model(folder).learner.backbone.config.attention.scaled is False


def test_a_table_with_more_rows_than_tokens(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "bert", {"masked_lm": {}}, vocabulary=90)
    extend_vocabulary(str(folder), ["aa"], str(tmp_path / "w"))
    wide = load_model(tmp_path / "w")
    new = wide.tokenizer.vocabulary.index("aa")
    pieces = [WORDS.index("a"), WORDS.index("##a")]
    table = wide.learner.backbone.token_embeddings()
    torch.testing.assert_close(table[new], table[pieces].mean(0))
    assert len(table) == wide.tokenizer.size
    guesses = Model.load(folder).fill("w1 [MASK]", top=1000)[0]
    assert len(guesses) == len(WORDS)


def test_added_tokens_survive_surgery(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "bert", {"masked_lm": {}}, vocabulary=len(WORDS) + 1)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(
        content["added_tokens"][-1] | {"id": len(WORDS), "content": "<url>", "special": False, "normalized": False}
    )
    (folder / "tokenizer.json").write_text(json.dumps(content))
    before = load_model(folder).tokenizer
    extend_vocabulary(str(folder), ["aa"], str(tmp_path / "w"))
    after = load_model(tmp_path / "w").tokenizer
    for tokenizer in (before, after):
        assert [tokenizer.token(i) for i in tokenizer.encode(["w1 <url> w2"])[0]] == ["w1", "<url>", "w2"]


def test_shrinking_looks_at_every_shard(tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keel.corpus import store

    folder = saved(tmp_path / "m", "bert", {"masked_lm": {}})
    text = tmp_path / "t.txt"
    text.write_text("\n".join(f"w{i} w{i}" for i in range(50)))
    monkeypatch.setattr(store, "SHARD_TOKENS", 8)
    build([str(text)], str(folder), str(tmp_path / "c"), documents="line", workers=1)
    result = shrink_vocabulary(str(folder), str(tmp_path / "n"), corpus=str(tmp_path / "c"))
    kept = load_model(tmp_path / "n").tokenizer.vocabulary
    assert all(f"w{i}" in kept for i in range(50)) and "w55" not in kept and result["size"] == len(kept)


def test_a_folder_stored_in_bf16_answers(tmp_path: Path) -> None:
    import transformers

    folder = saved(tmp_path, "bert", {"masked_lm": {}}, pooler=False)
    theirs = transformers.BertForMaskedLM.from_pretrained(folder)
    theirs.to(torch.bfloat16).save_pretrained(folder)
    (folder / "keel.safetensors").unlink(missing_ok=True)
    assert Model.load(folder).embed(["w1 w2"]).dtype == np.float32


@pytest.mark.parametrize(
    "kind, change",
    [
        ("modern", {"classifier_activation": "relu"}),
        ("modern", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}}),
        ("modern", {"norm_bias": True}),
        ("gpt", {"scale_attn_weights": False}),
        ("gpt", {"scale_attn_by_inverse_layer_idx": True}),
        ("albert", {"num_hidden_groups": 5}),
    ],
)
def test_published_options_that_keel_does_not_know_are_refused(
    kind: str, change: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind, {"causal_lm": {}} if kind == "gpt" else {"masked_lm": {}})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match="not a configuration Keel can use"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["gpt", "roberta"])
def test_their_tokenizer_gives_what_the_model_reads(kind: str, tmp_path: Path) -> None:
    """No segments where the family has none, with any tokenizer."""
    import transformers

    objective = "causal_lm" if kind == "gpt" else "masked_lm"
    folder = saved(tmp_path, kind, {objective: {}}, **({"padding": 0} if kind == "roberta" else {}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer("w1 w2", "w3", return_tensors="pt")
    assert set(given) == {"input_ids", "attention_mask"} and tokenizer.model_max_length == 40
    config = json.loads((folder / "config.json").read_text())
    if kind == "gpt":
        assert config["eos_token_id"] == WORDS.index("[SEP]")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            theirs = model.base_model(**tokenizer("w1 w2", return_tensors="pt")).last_hidden_state[0]
        assert np.allclose(theirs, Model.load(folder).encode(["w1 w2"])[0], atol=1e-5)


def test_a_comparison_tells_its_recipes_apart_and_ranks_what_is_no_number_last(
    tmp_path: Path, corpus_path: Path
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.yaml").write_text("extends: bert-mini\n")
    files = [str(tmp_path / "a" / "r.yaml"), str(tmp_path / "b" / "r.yaml")]
    with pytest.raises(UserError, match="same name"):
        _check(ComparisonPlan(files, str(corpus_path), "1m", None, 1, 1))
    with pytest.raises(UserError, match="rows of 1024 tokens"):
        names, long = ["bert-mini", "roberta-mini"], ["data.eval_recipe=modern-base"]
        _check(ComparisonPlan(names, str(corpus_path), "1m", None, 1, 1, long))
    with pytest.raises(UserError, match="expected NAME"):
        LabelledTask.parse("/data/mine=classify:a:b")
    task = LabelledTask("t", "classify", "a", "b")
    runs = [
        {
            "recipe": name,
            "parameters": 1,
            "tokens": 1,
            "seconds": 1.0,
            "tokens_per_second": 1.0,
            "held_out": {},
            "tasks": {"t": [{"primary_metric": "x", "x": score, "learned_nothing": False}]},
        }
        for name, score in (("a", 0.2), ("b", None), ("c", 0.9))
    ]
    rows = _rank(ComparisonPlan(["a", "b", "c"], "c", None, 1, 1, 1, [], [task]), runs)
    assert [row["recipe"] for row in rows] == ["c", "a", "b"]
    json.dumps(rows, allow_nan=False)
    assert spread([])["mean"] is None
