"""Fine-tuning against transformers' Trainer: same model, rows and settings, alternating, scored by Keel's metrics.

    python bench/finetuning.py MODEL classify --train train.tsv --dev dev.tsv [--test test.tsv] [--seeds 3]

Each line of output is one run as JSON; the last one is the summary. Trainer needs the package `accelerate`.
Works for classify and regress; the rows are read by Keel for both, so both see the same text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("task", choices=("classify", "regress"))
    options.add_argument("--train", required=True)
    options.add_argument("--dev", required=True)
    options.add_argument("--test", help="scored at the end; --dev if left out")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--length", type=int, default=128)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--rows", type=int, help="only the first rows of the training data")
    options.add_argument("--set", action="append", default=[], help="further settings of Keel's recipe")
    given = options.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {"keel": [], "trainer": []}
    for seed in range(1, given.seeds + 1):
        for name, run in (("keel", run_keel), ("trainer", run_trainer)):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                figures = run(given, seed, Path(folder))
                runs[name].append({"seconds": time.perf_counter() - began, **figures})
                print(json.dumps({"who": name, "seed": seed, **runs[name][-1]}), flush=True)
    print(json.dumps(summary(runs), indent=2))


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Means and deviations by figure; the ratio is that of the median times spent training."""
    result: dict[str, Any] = {}
    for name, found in runs.items():
        for key in found[0]:
            values = [run[key] for run in found]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            result[f"{name} {key}"] = f"{statistics.fmean(values):.4f} +- {deviation:.4f}"
    medians = {name: statistics.median(run["training"] for run in found) for name, found in runs.items()}
    return {**result, "ratio of training times": round(medians["keel"] / medians["trainer"], 3)}


def shared_settings(given: argparse.Namespace, seed: int) -> list[str]:
    lengths = [f"data.length={given.length}", f"training.epochs={given.epochs}", f"training.seed={seed}"]
    return [*lengths, "training.batch_rows=16", "training.learning_rate=5e-5", "training.warmup=0", *given.set]


def open_task(given: argparse.Namespace, seed: int) -> tuple[Any, list[Any]]:
    from keel.catalog import find
    from keel.recipe import load_task

    recipe = load_task(given.task, shared_settings(given, seed))
    task = find("tasks", given.task)(recipe.task, recipe.data).bind(given.train)
    examples, _ = task.read(given.train)
    return task.settle(examples), examples[: given.rows]


def run_keel(given: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    from keel.stages.evaluate import evaluate
    from keel.stages.finetune import finetune

    train = given.train
    if given.rows:
        lines = Path(train).read_text(encoding="utf-8").splitlines(keepends=True)[: given.rows + 1]
        train = str(folder / f"train{Path(given.train).suffix}")
        Path(train).write_text("".join(lines), encoding="utf-8")
    settings = shared_settings(given, seed)
    result = finetune(
        given.model, given.task, train=train, dev=given.dev, out=str(folder / "out"), overrides=settings, quiet=True
    )
    figures = evaluate(str(folder / "out"), given.test or given.dev)
    kept = {k: v for k, v in figures.items() if isinstance(v, float) and not k.startswith("cut")}
    return {"training": result["seconds"], **kept}


def run_trainer(given: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    task, examples = open_task(given, seed)
    labels = getattr(task.config, "labels", None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        given.model, num_labels=len(labels) if labels else 1, problem_type=None if labels else "regression"
    )

    def encode(some: list[Any]) -> list[dict[str, Any]]:
        rows = []
        for example in some:
            row = dict(tokenizer(*example.texts, truncation=True, max_length=given.length))
            row["labels"] = labels.index(example.answer) if labels else float(example.answer)
            rows.append(row)
        return rows

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=given.epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=5e-5,
        seed=seed,
        report_to=[],
        save_strategy="no",
        eval_strategy="epoch",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    dev, _ = task.read(given.dev)
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=encode(examples),
        eval_dataset=encode(dev),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    test, _ = task.read(given.test or given.dev)
    logits = torch.from_numpy(trainer.predict(encode(test)).predictions)
    answers = (
        [task._shown(dict(zip(labels, row, strict=True))) for row in logits.softmax(1).tolist()]
        if labels
        else [{"value": float(row[0])} for row in logits]
    )
    return {"training": seconds, **task.score(test, answers)}


if __name__ == "__main__":
    sys.exit(main())
