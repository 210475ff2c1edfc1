"""Generation: with the cache as without it, greedy as transformers', and draws as their chances say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel.errors import UserError
from keel.inference.generate import _batch, choose, generate
from keel.inference.model import Model
from keel.layers.attention.generation import caching
from keel.stages.pretrain import pretrain
from keel.values import Batch, Rows

SMALL = [
    *("model.backbone.layers=2", "model.backbone.width=32", "model.backbone.heads=2", "model.backbone.feed_forward=48"),
    *("model.backbone.positions=64", "data.length=32", "training.batch_tokens=512", "training.precision=fp32"),
    *("training.steps=60", "training.learning_rate=5e-3", "training.evaluation_tokens=512"),
]


@pytest.fixture(scope="module", params=["gpt-mini", "bert-mini-causal"])
def model(request: Any, corpus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    out = tmp_path_factory.mktemp("model") / "m"
    pretrain(request.param, corpus=str(corpus_path), out=str(out), overrides=SMALL, quiet=True)
    return Model.load(out)


def test_the_cache_changes_nothing(model: Model) -> None:
    """A row read whole, token by token, and in pieces."""
    ids = np.random.default_rng(0).integers(5, model.tokenizer.size, (3, 40))
    none = np.zeros(120, bool)
    whole = Batch.of(Rows(ids.flatten(), (40,) * 3, np.zeros(120, np.int64), none, none, np.zeros(3, np.uint64)), {})
    backbone = model.learner.backbone
    with torch.inference_mode():
        expected = backbone(whole).vectors.view(3, 40, -1)
        for sizes in ([1] * 40, [7, 1, 1, 20, 11], [40]):
            found, past = [], 0
            with caching(backbone):
                for size in sizes:
                    vectors = backbone(_batch(ids[:, past : past + size], past, model.device)).vectors
                    found.append(vectors.view(3, size, -1))
                    past += size
            assert float((torch.cat(found, 1) - expected).abs().max()) <= 1e-5


def test_the_likeliest_tokens_are_those_of_transformers(model: Model) -> None:
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(model.path).eval()
    for text in ("the old captain", "", "seven"):
        (ours,) = generate(model, text, tokens=12, temperature=0)
        start = [model.tokenizer.cls, *model.tokenizer.encode([text])[0].tolist()]
        answer = theirs.generate(
            torch.tensor([start]),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=model.tokenizer.sep,
            pad_token_id=model.tokenizer.pad,
            bad_words_ids=[[id] for id in (model.tokenizer.cls, model.tokenizer.mask, model.tokenizer.unk)],
        )[0].tolist()
        kept = answer[1 : answer.index(model.tokenizer.sep)] if model.tokenizer.sep in answer else answer[1:]
        assert ours["text"] == model.tokenizer.decode(kept).strip()


def test_samples_are_repeatable_and_end_where_they_end(model: Model) -> None:
    one, two = (generate(model, "a young", samples=4, tokens=30, seed=3) for _ in range(2))
    assert one == two != generate(model, "a young", samples=4, tokens=30, seed=4)
    assert all(found["text"].startswith("a young") and found["tokens"] <= 30 for found in one)
    assert all(found["tokens"] == 30 for found in one if not found["ended"])
    long = generate(model, "keel " * 20, tokens=500)[0]
    assert long["tokens"] <= 64, "the model's positions end a text too"


def test_draws_follow_the_chances() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -3.0]]).expand(20000, -1)
    generator = torch.Generator().manual_seed(0)
    chances = logits[0].softmax(0)

    def shares(**options: Any) -> torch.Tensor:
        given = {"temperature": 1.0, "top_k": None, "top_p": None} | options
        return torch.bincount(choose(logits, **given, generator=generator), minlength=5) / 20000

    torch.testing.assert_close(shares(), chances, atol=0.015, rtol=0)
    torch.testing.assert_close(shares(temperature=2.0), (logits[0] / 2).softmax(0), atol=0.015, rtol=0)
    two = chances * torch.tensor([1, 1, 0, 0, 0])
    torch.testing.assert_close(shares(top_k=2), two / two.sum(), atol=0.015, rtol=0)
    assert float(chances[0]) < 0.7 < float(chances[:2].sum())
    torch.testing.assert_close(shares(top_p=0.7), two / two.sum(), atol=0.015, rtol=0)
    assert shares(top_p=0.01).tolist() == shares(top_k=1).tolist() == shares(temperature=0).tolist() == [1, 0, 0, 0, 0]


def test_mistakes_are_one_line(model: Model, finished_run: Path) -> None:
    for options, message in (
        ({"temperature": -1}, "out of range"),
        ({"temperature": float("nan")}, "out of range"),
        ({"top_k": 0}, "would keep no token"),
        ({"top_p": 1.5}, "not a probability"),
        ({"text": "keel " * 100}, "reads at most 64"),
    ):
        with pytest.raises(UserError, match=message):
            generate(model, **options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no causal language-model head"):
        Model.load(finished_run).generate("a")
