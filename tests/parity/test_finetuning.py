"""Fine-tuning equals `transformers`: same weights, same batches, no dropout, and every loss is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from keel.finetuning.labelled import read_labelled
from keel.hugging_face.folder import load_model
from keel.learner.build import task_learner
from keel.learner.task_setup import TaskSetup
from keel.recipe import load_task
from keel.stages.finetune import finetune
from keel.training.example_stream import ExampleStream

STEPS = 12
SETTINGS = [
    "data.length=48",
    "encoder.dropout=0",
    "task.dropout=0",
    "training.epochs=null",
    f"training.steps={STEPS}",
    "training.batch_size=8",
    "training.learning_rate=1e-3",
    "training.warmup=0",
    "training.weight_decay=0",
    "training.precision=fp32",
    "training.log_steps=1",
]
WORDS = ("captain", "sailor", "gull", "harbour", "mast", "keel", "dawn", "island")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Pairs of texts of many lengths; the label is whether they share their first word."""
    lines = ["text\tpair\tlabel"]
    for n in range(60):
        first = " ".join(WORDS[(n * k) % 8] for k in range(1, 2 + n % 11))
        second = " ".join(WORDS[(n * n + k) % 8] for k in range(2 + n % 7))
        lines.append(f"{first}\t{second}\t{int(first.split()[0] == second.split()[0])}")
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_loss_is_the_same(finished_run: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = {"train": str(pairs), "dev": str(pairs)}
    finetune(str(finished_run), "classify", **data, out=str(out), overrides=SETTINGS, quiet=True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in lines if line["kind"] == "train"]

    recipe = load_task("classify", SETTINGS)
    task, labelled = read_labelled(recipe, str(pairs), str(pairs))
    loaded = load_model(str(finished_run))
    windows, _ = task.windows(labelled.train, loaded.tokenizer)
    setup, seed = TaskSetup(task, recipe.encoder), recipe.training.seed
    head = task_learner(setup, loaded.learner.backbone, seed).objectives["classify"].out
    options = {"num_labels": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(finished_run, **options).train()
    model.classifier.load_state_dict(head.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, STEPS)
    source, cursors, theirs = ExampleStream(windows, recipe.training, task.needs), {}, []
    for step in range(STEPS):
        (rows,), cursors = source(step / STEPS, cursors)
        parts = [torch.from_numpy(part) for part in (rows.ids, rows.segments, rows.ids * 0 + 1)]
        names = ("input_ids", "token_type_ids", "attention_mask")
        padded = {
            name: torch.nn.utils.rnn.pad_sequence(part.split(list(rows.lengths)), batch_first=True)
            for name, part in zip(names, parts, strict=True)
        }
        loss = model(**padded, labels=torch.from_numpy(rows.answers["classify"])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        theirs.append(loss.item())
    assert len(ours) == STEPS and max(theirs) - min(theirs) > 0.05, "nothing was learned, so nothing was compared"
    assert ours == pytest.approx(theirs, abs=2e-5)
