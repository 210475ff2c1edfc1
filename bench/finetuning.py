"""Fine-tuning compared with transformers' Trainer: same model, rows and settings, alternating, same metrics.

    python bench/finetuning.py MODEL classify --train train.tsv --dev dev.tsv [--test test.tsv] [--seeds 3]

Each line of output is one run as JSON; the last one is the summary. Trainer needs the package `accelerate`.
Both sides train on the same windows and predict for the same windows: Keel makes them, Trainer pads them. Each side
uses its own model, loss, training loop and optimizer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import numpy as np
import torch
import transformers

from keel.finetuning.labelled import LabelledData, read_file, read_labelled
from keel.hugging_face.folder import load_model
from keel.interfaces import Task, Tokenizer
from keel.machine import prepare_cpu
from keel.recipe import TaskRecipe, load_task
from keel.stages.evaluate import evaluate
from keel.stages.finetune import finetune
from keel.values import Window

CLASSES = {
    "classify": transformers.AutoModelForSequenceClassification,
    "regress": transformers.AutoModelForSequenceClassification,
    "tag": transformers.AutoModelForTokenClassification,
    "answer": transformers.AutoModelForQuestionAnswering,
}
IGNORED = -100  # the label that transformers leaves out of the loss


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("task", choices=sorted(CLASSES))
    options.add_argument("--train", required=True)
    options.add_argument("--dev", required=True)
    options.add_argument("--test", help="also scored after training")
    options.add_argument("--seeds", type=int, default=3, help="runs per side")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument(
        "--run",
        action="append",
        metavar="keel|trainer:fp32|bf16",
        help="side and precision; repeatable; default: keel:fp32 and trainer:fp32",
    )
    options.add_argument("--set", action="append", default=[], help="further recipe settings, for both sides")
    given = options.parse_args()
    prepare_cpu()
    transformers.logging.set_verbosity_error()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in given.run or ("keel:fp32", "trainer:fp32")}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name in runs:
            side, precision = name.split(":")
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                figures = SIDES[side](given, settings(given, seed, precision), Path(folder))
                runs[name].append({**figures, "total_seconds": time.perf_counter() - began})
            print(json.dumps({"run": name, "seed": seed, **runs[name][-1]}), flush=True)
    print(json.dumps(summary(runs), indent=2))


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Mean and standard deviation of each metric, and the ratio of the median training times to each Trainer run's."""
    result: dict[str, Any] = {}
    for name, finished in runs.items():
        for key in finished[0]:
            values = [run[key] for run in finished]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            result[f"{name} {key}"] = f"{statistics.fmean(values):.4f} +- {deviation:.4f}"
    medians = {name: statistics.median(run["training"] for run in finished) for name, finished in runs.items()}
    for peer in [name for name in medians if name.startswith("trainer")]:
        result |= {f"{name} / {peer}": round(medians[name] / medians[peer], 3) for name in medians if name != peer}
    return result


def settings(given: argparse.Namespace, seed: int, precision: str) -> list[str]:
    """No warm-up, which is Trainer's default."""
    ours = {"epochs": given.epochs, "seed": seed, "precision": precision, "batch_size": 16, "warmup": 0}
    return [*(f"training.{key}={value}" for key, value in ours.items()), "training.learning_rate=5e-5", *given.set]


def scored_files(given: argparse.Namespace) -> dict[str, str]:
    return {"dev": given.dev} | ({"test": given.test} if given.test else {})


def run_keel(given: argparse.Namespace, overrides: list[str], folder: Path) -> dict[str, float]:
    out = str(folder / "out")
    result = finetune(
        given.model, given.task, train=given.train, dev=given.dev, out=out, overrides=overrides, quiet=True
    )
    figures = {"training": result["seconds"]}
    for name, file in scored_files(given).items():
        scored = evaluate(out, file)
        metrics = {k: v for k, v in scored.items() if isinstance(v, float) and not k.startswith("truncated")}
        figures |= {f"{name} {k}": v for k, v in metrics.items()}
    return figures


def run_trainer(given: argparse.Namespace, overrides: list[str], folder: Path) -> dict[str, float]:
    recipe = load_task(given.task, overrides)
    task, data = read_labelled(recipe, given.train, given.dev)
    tokenizer = load_model(given.model).tokenizer
    trainer = make_trainer(given, recipe, task, tokenizer, data, folder)
    began = time.perf_counter()
    trainer.train()
    figures = {"training": time.perf_counter() - began}
    for name, file in scored_files(given).items():
        examples = read_file(task, file).examples
        windows, _ = task.windows(examples, tokenizer)
        answers = task.answer(examples, windows, outputs(given.task, trainer, windows))
        figures |= {f"{name} {k}": v for k, v in task.scorer().evaluate(examples, answers).metrics.items()}
    return figures


def make_trainer(
    given: argparse.Namespace, recipe: TaskRecipe, task: Task, tokenizer: Tokenizer, data: LabelledData, folder: Path
) -> transformers.Trainer:
    rows = [[to_row(given.task, w) for w in task.windows(part, tokenizer)[0]] for part in (data.train, data.dev)]
    transformers.set_seed(recipe.training.seed)
    labels = getattr(task.config, "labels", None)
    head = {"num_labels": len(labels)} if labels else {"num_labels": 1} if given.task == "regress" else {}
    model = CLASSES[given.task].from_pretrained(given.model, **head)
    padding = transformers.AutoTokenizer.from_pretrained(given.model)
    kind = transformers.DataCollatorForTokenClassification if given.task == "tag" else None
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=given.epochs,
        per_device_train_batch_size=recipe.training.batch_size,
        per_device_eval_batch_size=32,
        learning_rate=recipe.training.learning_rate,
        seed=recipe.training.seed,
        bf16=recipe.training.precision == "bf16",
        report_to=[],
        save_strategy="no",
        eval_strategy="epoch",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    return transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows[0],
        eval_dataset=rows[1],
        data_collator=(kind or transformers.DataCollatorWithPadding)(padding),
    )


def to_row(kind: str, window: Window) -> dict[str, Any]:
    row = {
        "input_ids": window.ids.tolist(),
        "token_type_ids": window.segments.tolist(),
        "attention_mask": [1] * len(window.ids),
    }
    if kind == "tag":
        labels = window.token_answers["tag"]
        return row | {"labels": np.where(labels < 0, IGNORED, labels).tolist()}
    if kind == "answer":
        start, end = window.answers["answer"].tolist()
        return row | {"start_positions": start, "end_positions": end}
    return row | {"labels": np.asarray(window.answers[kind]).item()}


def outputs(kind: str, trainer: transformers.Trainer, windows: list[Window]) -> list[np.ndarray]:
    """Trainer's logits in the form that Keel's tasks expect as the outputs of the windows."""
    predictions = trainer.predict([to_row(kind, w) for w in windows]).predictions
    if kind == "answer":
        return [np.stack([a, b], 1)[: len(w.ids)] for a, b, w in zip(*predictions, windows, strict=True)]
    if kind != "tag":
        return list(predictions)
    result = []
    for logits, window in zip(predictions, windows, strict=True):
        words = torch.from_numpy(logits[: len(window.ids)][window.token_answers["tag"] >= 0])
        chance, label = words.softmax(1).max(1)
        result.append(torch.stack([label.float(), chance], 1).numpy())
    return result


SIDES = {"keel": run_keel, "trainer": run_trainer}

if __name__ == "__main__":
    main()
