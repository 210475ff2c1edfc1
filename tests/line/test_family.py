"""Every pretraining recipe: pretrained, opened in `transformers`, fine-tuned; stopped and resumed to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keel import catalog, recipe
from keel.errors import Stopped
from keel.hugging_face.folder import load_model
from keel.inference.model import Model
from keel.stages.finetune import finetune
from keel.stages.pretrain import pretrain

NAMES = [name for name in catalog.names("recipes", ".yaml") if isinstance(recipe.load_any(name), recipe.Recipe)]
SMALL: dict[str, object] = {
    "layers": 2,
    "width": 32,
    "heads": 2,
    "feed_forward": 48,
    "positions": 64,
    "embedding_width": 16,
}
SMALL |= {"cells": 48, "filters": [[1, 8], [3, 8]], "max_characters": 12, "buckets": 200}


def overrides(name: str) -> list[str]:
    backbone = recipe.load(name).model.backbone
    known = set(type(backbone).model_fields) - ({"layers"} if backbone.layers == 0 else set())  # word vectors have none
    small = [f"model.backbone.{key}={value}" for key, value in SMALL.items() if key in known]
    small += ["model.backbone.vocabulary=null", "data.length=32", "data.long_phase=null", "training.batch_tokens=256"]
    return [
        *small,
        "training.micro_batches=1",
        "training.evaluation_tokens=512",
        "training.steps=4",
        "training.precision=fp32",
    ]


def run(name: str, corpus: Path, out: Path, steps: int = 4, resume: bool = False) -> dict:
    return pretrain(
        str(out / "recipe.yaml") if resume else name,
        corpus=str(corpus),
        out=str(out),
        overrides=[f"training.steps={steps}"] if resume else [*overrides(name), f"training.steps={steps}"],
        resume=resume,
        quiet=True,
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_line(name: str, corpus_path: Path, tmp_path: Path) -> None:
    import transformers

    result = run(name, corpus_path, tmp_path / "m")
    assert result["step"] == 4 and any(key.endswith(".loss") for key in result)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    if not config["model_type"].startswith("keel-"):
        kind = getattr(transformers, config["architectures"][0])
        _, account = kind.from_pretrained(tmp_path / "m", output_loading_info=True)
        assert not any(account.values()), account
    data = tmp_path / "d.tsv"
    data.write_text("text\tlabel\n" + "the old keel\ta\na young sailor\tb\n" * 8)
    few = ["training.epochs=1", "training.precision=fp32", "data.length=32"]
    finetune(
        str(tmp_path / "m"),
        "classify",
        train=str(data),
        dev=str(data),
        out=str(tmp_path / "f"),
        overrides=few,
        quiet=True,
    )
    assert Model.load(tmp_path / "f").predict(["the keel"])[0]["label"] in ("a", "b")


@pytest.mark.parametrize(
    "name", ["roberta-mini", "albert-mini", "electra-mini", "gpt-mini", "modern-mini", "macbert-mini"]
)
def test_a_run_that_was_stopped_ends_the_same(
    name: str, corpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from keel.training import loop

    run(name, corpus_path, tmp_path / "whole")
    update, done = loop._update, []

    def stopping(*given: object) -> None:
        done.append(1)
        update(*given)  # type: ignore[arg-type]
        if len(done) == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop, "_update", stopping)
    with pytest.raises(Stopped):
        run(name, corpus_path, tmp_path / "cut")
    monkeypatch.setattr(loop, "_update", update)
    run(name, corpus_path, tmp_path / "cut", resume=True)
    one, two = (load_model(tmp_path / folder).learner.named_tensors() for folder in ("whole", "cut"))
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
