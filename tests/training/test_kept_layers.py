"""A frozen encoder is asked once about a row: what is kept is what it would say, bounded, and the same when resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keel.stages.finetune import finetune
from keel.tasks.classify import Classify, ClassifyConfig
from keel.text.labelled import LabelledData
from keel.training.encoder import EncoderUse
from keel.training.kept_layers import keep_layers
from keel.training.model_folder import Purpose, load_model
from keel.training.windows import to_rows

TEXTS = ["The gull remembers the mast.", "A keel", "The old captain watches the harbour at dawn.", "A keel", "gull"]


@pytest.fixture(params=["mix", "last"])
def frozen(request: pytest.FixtureRequest, finished_run: Path) -> tuple[Any, Any, Any]:
    loaded = load_model(finished_run)
    task = Classify(ClassifyConfig(labels=["a", "b"]), LabelledData(length=32))
    learner = Purpose(task, EncoderUse(use="frozen", layers=request.param)).learner(loaded.learner.backbone)
    windows, _ = task.windows([task.example(text) for text in TEXTS], loaded.tokenizer)
    return learner, windows, loaded.tokenizer


def test_what_is_kept_is_what_the_encoder_says_in_any_company(frozen: tuple[Any, Any, Any]) -> None:
    learner, windows, tokenizer = frozen
    kept = keep_layers(learner, windows, tokenizer, limit=1 << 30)
    assert kept is not None and len(kept.places) == 4, "a text that comes twice is kept once"
    for chosen in ([0, 1, 2, 3, 4], [3], [4, 2], [1, 3, 0]):
        batch = learner.batch(to_rows([windows[n] for n in chosen]), tokenizer)
        found, said = kept.find(batch), learner.view.ask(batch)
        pairs = zip((found.vectors, *found.layers), (said.vectors, *(said.layers or (said.vectors,))), strict=True)
        assert all(float((a - b).abs().max()) <= 1e-5 for a, b in pairs)
    other = replace(windows[0], ids=windows[0].ids[::-1])
    strange = learner.batch(to_rows([windows[0], other]), tokenizer)
    assert kept.find(strange) is None


def test_a_limit_is_kept(frozen: tuple[Any, Any, Any]) -> None:
    learner, windows, tokenizer = frozen
    whole = keep_layers(learner, windows, tokenizer, limit=1 << 30).table  # type: ignore[union-attr]
    half = keep_layers(learner, windows, tokenizer, limit=whole.nbytes - 1)
    assert whole.dtype is torch.float32 and half is not None and half.table.nbytes == whole.nbytes // 2
    torch.testing.assert_close(half.table.float(), whole, rtol=1e-3, atol=1e-5)
    assert keep_layers(learner, windows, tokenizer, limit=whole.nbytes // 2 - 1) is None


def test_a_resumed_run_finds_the_same(finished_run: Path, tmp_path: Path) -> None:
    """Stopped within an epoch, where what was kept had been seen in other company."""
    data = tmp_path / "d.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{text} {n}\t{'ab'[n % 2]}\n" for n in range(8) for text in TEXTS))
    changes = ["encoder.use=frozen", "encoder.layers=mix", "encoder.bilstm={cells: 8}", "data.length=32"]
    changes += ["training.decay=constant", "training.warmup=0", "training.evaluate_steps=4", "training.precision=fp32"]
    given: dict[str, Any] = {"train": str(data), "dev": str(data), "quiet": True, "threads": 1}

    def run(name: str, steps: int, **more: Any) -> dict[str, torch.Tensor]:
        out, steps_ = str(tmp_path / name), [f"training.steps={steps}", "training.epochs=null"]
        finetune(str(finished_run), "classify", out=out, overrides=[*changes, *steps_], **given, **more)
        return load_model(out).learner.state_dict()

    whole = run("whole", 7)
    run("cut", 4)
    resumed = run("cut", 7, resume=True)
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
