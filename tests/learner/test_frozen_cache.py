"""Cache of a frozen encoder's outputs: equal to the encoder's own, bounded in size, and the same when resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keel.hugging_face.folder import load_model
from keel.learner.frozen_cache import build_frozen_cache
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import to_rows
from keel.stages.finetune import finetune
from keel.tasks.classify import Classify, ClassifyConfig
from keel.text.labelled import LabelledData

TEXTS = ["The gull remembers the mast.", "A keel", "The old captain watches the harbour at dawn.", "A keel", "gull"]


@pytest.fixture(params=["mix", "last"])
def frozen(request: pytest.FixtureRequest, finished_run: Path) -> tuple[Any, Any, Any]:
    loaded = load_model(finished_run)
    task = Classify(ClassifyConfig(labels=["a", "b"]), LabelledData(length=32))
    learner = TaskSetup(task, EncoderSettings(frozen=True, layers=request.param)).make_learner(loaded.learner.backbone)
    windows, _ = task.windows([task.example(text) for text in TEXTS], loaded.tokenizer)
    return learner, windows, loaded.tokenizer


def test_cached_outputs_equal_the_encoder_whatever_the_other_rows(frozen: tuple[Any, Any, Any]) -> None:
    learner, windows, tokenizer = frozen
    cache = build_frozen_cache(learner, windows, tokenizer, limit=1 << 30)
    assert cache is not None and len(cache.places) == 4, "a text that comes twice is stored once"
    for chosen in ([0, 1, 2, 3, 4], [3], [4, 2], [1, 3, 0]):
        batch = learner.batch(to_rows([windows[n] for n in chosen]), tokenizer)
        found, encoded = cache.find(batch), learner.frozen.encode(batch)
        pairs = zip(
            (found.vectors, *found.layers), (encoded.vectors, *(encoded.layers or (encoded.vectors,))), strict=True
        )
        assert all(float((a - b).abs().max()) <= 1e-5 for a, b in pairs)
    other = replace(windows[0], ids=windows[0].ids[::-1])
    strange = learner.batch(to_rows([windows[0], other]), tokenizer)
    assert cache.find(strange) is None


def test_the_size_limit_is_respected(frozen: tuple[Any, Any, Any]) -> None:
    learner, windows, tokenizer = frozen
    whole = build_frozen_cache(learner, windows, tokenizer, limit=1 << 30).table  # type: ignore[union-attr]
    half = build_frozen_cache(learner, windows, tokenizer, limit=whole.nbytes - 1)
    assert whole.dtype is torch.float32 and half is not None and half.table.nbytes == whole.nbytes // 2
    torch.testing.assert_close(half.table.float(), whole, rtol=1e-3, atol=1e-5)
    assert build_frozen_cache(learner, windows, tokenizer, limit=whole.nbytes // 2 - 1) is None


def test_a_resumed_run_gives_the_same_bits(finished_run: Path, tmp_path: Path) -> None:
    """Stopped within an epoch, where rows had been encoded together with other rows."""
    data = tmp_path / "d.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{text} {n}\t{'ab'[n % 2]}\n" for n in range(8) for text in TEXTS))
    changes = ["encoder.frozen=true", "encoder.layers=mix", "encoder.bilstm={cells: 8}", "data.length=32"]
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
