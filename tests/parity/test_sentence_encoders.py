"""Vectors of sentence-transformers folders equal those of the library: pooling, normalisation, prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import keel
from keel.errors import UserError
from keel.stages.embed import embed

TEXTS = ["the old captain", "a young sailor remembers seven lanterns near the island", "gull", "老 船长"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT of transformers, with random weights."""
    import transformers

    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for text in TEXTS for word in text.split()} | {"老", "船", "长", "query", "passage", ":"})
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    shape: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=5 + len(words), max_position_embeddings=32, initializer_range=0.3, **shape
    )
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def saved(encoder: Path, out: Path, pooling: str, normalize: bool, **options: Any) -> Any:
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(str(encoder))
    steps = [transformer, modules.Pooling(32, pooling_mode=pooling)]
    steps += [modules.Normalize()] if normalize else []
    model = library.SentenceTransformer(modules=steps, device="cpu", **options)
    model.save(str(out))
    return model


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_equal_those_of_the_library(encoder: Path, tmp_path: Path, pooling: str, normalize: bool) -> None:
    theirs = saved(encoder, tmp_path / "model", pooling, normalize)
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(keel.load(tmp_path / "model").embed(TEXTS), expected, atol=1e-5)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    embed(str(tmp_path / "model"), str(tmp_path / "texts.txt"), str(tmp_path / "v.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    lengths = np.linalg.norm(expected, axis=1)
    assert np.allclose(lengths, 1) is normalize
    raw = keel.load(tmp_path / "model").embed(TEXTS, normalize=False)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)


def test_prompts(encoder: Path, tmp_path: Path) -> None:
    prompts = {"query": "query : ", "passage": "passage : "}
    theirs = saved(encoder, tmp_path / "model", "mean", True, prompts=prompts, default_prompt_name="passage")
    ours = keel.load(tmp_path / "model")
    for name in ("query", "passage", None):
        np.testing.assert_allclose(ours.embed(TEXTS, prompt=name), theirs.encode(TEXTS, prompt_name=name), atol=1e-5)
    with pytest.raises(UserError, match=r"there is no prompt 'qury'\. Did you mean 'query'"):
        ours.embed(TEXTS, prompt="qury")


def test_old_folders_and_unknown_steps(encoder: Path, tmp_path: Path) -> None:
    saved(encoder, tmp_path / "model", "cls", False)
    expected = keel.load(tmp_path / "model").embed(TEXTS)
    config = next((tmp_path / "model").glob("*_Pooling/config.json"))
    config.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    assert (keel.load(tmp_path / "model").embed(TEXTS) == expected).all()
    config.write_text(json.dumps({"pooling_mode_weightedmean_tokens": True}))
    with pytest.raises(UserError, match=r"pooling by .*weightedmean.* is not supported"):
        keel.load(tmp_path / "model").embed(TEXTS)
    modules = tmp_path / "model" / "modules.json"
    listed = json.loads(modules.read_text())
    modules.write_text(json.dumps([*listed[:1], {**listed[1], "path": "../elsewhere"}]))
    with pytest.raises(UserError, match="is missing, which says how vectors are pooled"):
        keel.load(tmp_path / "model").embed(TEXTS)
    modules.write_text(json.dumps([*listed[:1], {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]))
    with pytest.raises(UserError, match="the step 'Dense' is not supported"):
        keel.load(tmp_path / "model").embed(TEXTS)


def test_an_mpnet_as_all_mpnet_base_is_published(tmp_path: Path) -> None:
    """Its tensors have no prefix, its tokenizer has MPNet's special tokens; two of the texts are padded there."""
    import transformers

    words = sorted({word for text in TEXTS for word in text.split()} | {"老", "船", "长"})
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    vocabulary = {token: id for id, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *bert, "<mask>"])}
    shape = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    torch.manual_seed(0)
    config = transformers.MPNetConfig(**shape, vocab_size=len(vocabulary), initializer_range=0.3)
    transformers.MPNetModel(config).save_pretrained(tmp_path / "mpnet")
    transformers.MPNetTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "mpnet")
    theirs = saved(tmp_path / "mpnet", tmp_path / "model", "mean", True)
    texts = [*TEXTS, "the captain <mask> lanterns", "captain unheard-of the"]
    np.testing.assert_allclose(keel.load(tmp_path / "model").embed(texts), theirs.encode(texts), atol=1e-5)
