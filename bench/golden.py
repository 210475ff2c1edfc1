"""`make golden BASE=REV`: checks that the working tree computes bit by bit the same results as revision REV.

In: a git revision. Out: one line per short run, "same" or what differs; exit code 1 if anything differs.

Each run is 40 steps of the real command, on generated text, in fp32 on one thread, once with the sources of REV (in a
temporary worktree) and once with those of the working tree, on the same machine. Compared are the losses of every tenth
step, the held-out metrics, and all tensors of the final model and of its optimizer, by value: a refactoring may rename
or reorder tensors, but not change one. The runs cover every backbone, objective, packer, optimizer and task.

Notable choice: runs are written with the working tree's recipe keys. For a revision of version 0.1, before keys were
renamed, they are translated back (`RENAMED`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
STEPS = 40

# What version 0.1 called the recipe keys, values and names that the runs below use.
RENAMED = {
    "training.micro_batches": "training.slices",
    "training.parallel_micro_batches": "training.lanes",
    "training.batch_size": "training.batch_rows",
    "data.static_masks": "data.copies",
    "model.backbone.local_window": "model.backbone.neighbourhood",
    "model.objectives.bidirectional_lm.sample": "model.objectives.both_ways.sample",
    "bert-mini-causal": "bert-mini-left-to-right",
    "encoder.frozen": "encoder.use",
    "encoder.mix_penalty": "encoder.penalty",
    "encoder.reinit_layers": "encoder.restart",
    "encoder.freeze_layers": "encoder.freeze",
    "task.max_length": "task.longest",
    "task.label_smoothing": "task.smoothing",
    "task.multi_label": "task.several",
    "true": "frozen",  # the value of encoder.frozen
}

SMALL = {
    "model.backbone.layers": 2,
    "model.backbone.width": 32,
    "model.backbone.heads": 2,
    "model.backbone.feed_forward": 48,
    "model.backbone.positions": 64,
    "data.length": 32,
    "training.steps": STEPS,
    "training.batch_tokens": 512,
    "training.evaluation_tokens": 1024,
    "training.log_steps": 10,
    "training.evaluate_steps": 20,
    "training.precision": "fp32",
}
DROPOUT = {"model.backbone.dropout": 0.1, "model.backbone.attention_dropout": 0.1}
WORDS = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
ELMO = {
    **WORDS,
    "data.length": 24,
    "model.backbone.cells": 24,
    "model.backbone.width": 16,
    "model.backbone.filters": "[[1, 8], [3, 8]]",
    "model.backbone.dropout": 0.1,
    "model.objectives.bidirectional_lm.sample": 64,
}

# name: (recipe, corpus, changes)
PRETRAINING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": (
        "bert-tiny",
        "pieces",
        {**SMALL, **DROPOUT, "training.micro_batches": 2, "training.parallel_micro_batches": 2},
    ),
    "roberta": ("roberta-mini", "bytes", {**SMALL, **DROPOUT, "training.micro_batches": 1}),
    "albert": ("albert-mini", "pieces", {**SMALL, "model.backbone.embedding_width": 16}),
    "electra": ("electra-mini", "pieces", {**SMALL, **DROPOUT, "model.backbone.embedding_width": 16}),
    "gpt": ("gpt-mini", "pieces", {**SMALL, **DROPOUT}),
    "modern": ("modern-mini", "pieces", {**SMALL, "model.backbone.local_window": 8, "training.optimizer": "muon"}),
    "whole-word": ("bert-mini-whole-word", "pieces", {**SMALL, "data.static_masks": 2, "data.long_phase.length": 48}),
    "span": ("bert-mini-span", "pieces", {**SMALL, "data.packing": "doc-sentences"}),
    "macbert": ("macbert-mini", "pieces", SMALL),
    "causal": ("bert-mini-causal", "pieces", SMALL),
    "transformer": ("transformer-tiny", "pieces", {**SMALL, **DROPOUT, "model.backbone.position": "rotary"}),
    "rnn": ("rnn-mini", "pieces", {**WORDS, "model.backbone.width": 32}),
    "word2vec": ("word2vec", "words", {**WORDS, "model.backbone.width": 16}),
    "cbow": ("word2vec-cbow", "words", {**WORDS, "model.backbone.width": 16}),
    "fasttext": ("fasttext", "words", {**WORDS, "model.backbone.width": 16, "model.backbone.buckets": 500}),
    "elmo": ("elmo-mini", "words", ELMO),
}

TUNE = {"training.steps": STEPS, "training.batch_size": 8, "training.log_steps": 10, "training.learning_rate": 1e-3}
FROZEN = {
    "encoder.frozen": "true",
    "encoder.layers": "mix",
    "encoder.mix_penalty": 0.01,
    "encoder.bilstm": "{cells: 8}",
}
TRANSLATE = {**TUNE, "data.length": 24, "training.precision": "fp32", "task.max_length": 24}

# name: (model, task, file stem, changes)
TUNING: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "classify": ("bert", "classify", "topics.tsv", {**TUNE, "task.class_weights": "auto", "task.label_smoothing": 0.1}),
    "classify-several": (
        "roberta",
        "classify",
        "several.tsv",
        {**TUNE, "task.multi_label": True, "task.pooling": "mean"},
    ),
    "classify-pairs": ("albert", "classify", "pairs.tsv", {**TUNE, "data.long.strategy": "windows", "data.length": 16}),
    "classify-layers": (
        "modern",
        "classify",
        "topics.tsv",
        {**TUNE, "encoder.layer_decay": 0.8, "encoder.reinit_layers": 1},
    ),
    "classify-words": ("word2vec", "classify", "topics.tsv", TUNE),
    "classify-gpt": ("gpt", "classify", "topics.tsv", {**TUNE, "encoder.freeze_layers": 1}),
    "regress": ("electra", "regress", "numbers.tsv", {**TUNE, "task.pooling": "attention"}),
    "choose": ("bert", "choose", "choices.jsonl", TUNE),
    "tag": ("bert", "tag", "tags.conll", {**TUNE, "task.crf": True, "data.length": 12}),
    "tag-frozen-elmo": ("elmo", "tag", "tags.conll", {**TUNE, **FROZEN}),
    "tag-frozen-fasttext": ("fasttext", "tag", "tags.conll", {**TUNE, **FROZEN, "task.scheme": "bioes"}),
    "answer": ("bert", "answer", "questions.json", {**TUNE, "data.length": 24}),
    "translate": ("+transformer-tiny", "translate", "parallel.tsv", {**TRANSLATE, "training.micro_batches": 2}),
    "translate-rotary": ("transformer", "translate", "parallel.tsv", {**TRANSLATE, "training.optimizer": "muon"}),
    "translate-rnn": ("+rnn-mini", "translate", "parallel.tsv", {**TRANSLATE, "task.decoder": "rnn"}),
    "translate-look": ("rnn", "translate", "parallel.tsv", {**TRANSLATE, "task.decoder": "rnn-attention"}),
}

WHO = ("the old captain", "a young sailor", "our carpenter", "the tall ship", "every gull", "my neighbour's cat")
DOES = ("watches", "remembers", "follows", "repairs", "carries", "forgets", "unfastens")
WHAT = ("the keel", "a broken mast", "seven lanterns", "the harbour", "an oak plank", "unbelievable waves")
WHEN = ("at dawn", "before the storm", "in winter", "without a word", "near the island", "long afterwards")
CHINESE = (("老船长", "年轻的水手", "木匠"), ("看着", "记得", "修理"), ("龙骨", "桅杆", "七盏灯", "港口"))


def sentence(source: random.Random) -> str:
    if source.random() < 0.15:
        return "".join(source.choice(part) for part in CHINESE) + "。"
    return " ".join(source.choice(part) for part in (WHO, DOES, WHAT, WHEN)).capitalize() + "."


def write_texts(folder: Path) -> None:
    """A corpus and a labelled file for each task; every call writes the same files."""
    source = random.Random(7)
    documents = [" ".join(sentence(source) for _ in range(source.randint(1, 14))) for _ in range(200)]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in documents]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for stem in ("train", "dev"):
        rows = [sentence(source) for _ in range(64 if stem == "train" else 24)]
        others = [sentence(source) for _ in rows]

        def table(name: str, header: str, values: list[str], stem: str = stem) -> None:
            (folder / f"{stem}-{name}").write_text("\n".join([header, *values]) + "\n", encoding="utf-8")

        table("topics.tsv", "text\tlabel", [f"{r}\t{'sea' if 'sail' in r or 'ship' in r else 'land'}" for r in rows])
        several = [",".join(w for w in ("captain", "keel", "dawn") if w in r) or "none" for r in rows]
        table("several.tsv", "text\tlabel", [f"{r}\t{label}" for r, label in zip(rows, several, strict=True)])
        pairs = zip(rows, others, strict=True)
        table("pairs.tsv", "text\tpair\tlabel", [f"{a}\t{b}\t{int(a[:5] == b[:5])}" for a, b in pairs])
        table("numbers.tsv", "text\tlabel", [f"{r}\t{len(r) / 10}" for r in rows])
        pairs = zip(rows, others, strict=True)
        table("parallel.tsv", "text\tlabel", [f"{a}\t{' '.join(reversed(a.lower().split()))}" for a, _ in pairs])
        choices = [
            {"text": a, "choices": [b, a[:20]], "label": n % 2}
            for n, (a, b) in enumerate(zip(rows, others, strict=True))
        ]
        (folder / f"{stem}-choices.jsonl").write_text("".join(json.dumps(c) + "\n" for c in choices), encoding="utf-8")
        (folder / f"{stem}-tags.conll").write_text("\n\n".join(tagged(row) for row in rows) + "\n", encoding="utf-8")
        (folder / f"{stem}-questions.json").write_text(json.dumps(questions(rows)), encoding="utf-8")


def tagged(row: str) -> str:
    people, things = ("captain", "sailor", "carpenter", "gull"), ("keel", "mast", "lanterns", "harbour")
    kinds = {**dict.fromkeys(people, "B-WHO"), **dict.fromkeys(things, "B-WHAT")}
    return "\n".join(f"{word} {kinds.get(word.strip('.'), 'O')}" for word in row.split())


def questions(rows: list[str]) -> dict[str, Any]:
    paragraphs = []
    for number, row in enumerate(rows):
        answer = next((what for what in WHAT if what in row), None)
        answers = [{"text": answer, "answer_start": row.index(answer)}] if answer else []
        asked = {"id": str(number), "question": "what is it?", "answers": answers, "is_impossible": not answers}
        paragraphs.append({"context": row, "qas": [asked]})
    return {"version": "2.0", "data": [{"title": "sea", "paragraphs": paragraphs}]}


class Tree:
    """Runs everything with the sources of one revision, in a process of its own."""

    def __init__(self, texts: Path, out: Path) -> None:
        from keel.cli.main import run

        self.run, self.texts, self.out = run, texts, out
        self.version_0_1 = find_spec("keel.renamed_keys") is None

    def keel(self, *arguments: object) -> None:
        if self.run([str(argument) for argument in arguments]):
            raise SystemExit(f"keel {' '.join(map(str, arguments))} failed")

    def make_everything(self) -> None:
        corpora = {"pieces": ("wordpiece", 220), "bytes": ("byte-bpe", 330), "words": ("words", 90)}
        for name, (kind, size) in corpora.items():
            where = self.out / "tokenizers" / name, self.out / "corpora" / name
            given = self.texts / "texts.jsonl"
            self.keel("tokenizer", "train", given, "--kind", kind, "--vocab-size", size, "--out", where[0], "-q")
            build = ("--tokenizer", where[0], "--held-out", 0.1, "--workers", 1, "--out", where[1], "-q")
            self.keel("corpus", "build", given, *build)
        for name, (recipe, corpus, changes) in PRETRAINING.items():
            given = ("--corpus", self.out / "corpora" / corpus, "--out", self.out / name, "--threads", 1, "-q")
            self.keel("pretrain", self.named(recipe), *given, *self.settings(changes))
        for name, (model, task, files, changes) in TUNING.items():
            fresh = ("--tokenizer", self.out / "tokenizers" / "pieces") if model.startswith("+") else ()
            start = model[1:] if fresh else self.out / model
            data = ("--train", self.texts / f"train-{files}", "--dev", self.texts / f"dev-{files}")
            given = ("--out", self.out / name, "--threads", 1, "-q", *fresh, *data)
            self.keel("finetune", start, task, *given, *self.settings(changes))

    def settings(self, changes: dict[str, Any]) -> list[str]:
        return [part for key, value in changes.items() for part in ("--set", f"{self.named(key)}={self.named(value)}")]

    def named(self, name: Any) -> Any:
        """A name as this revision calls it."""
        return RENAMED.get(name, name) if self.version_0_1 else name


def results(run: Path) -> tuple[list[tuple[int, list[float]]], Counter[str]]:
    """A run's metrics by step, and its tensors by value."""
    figures = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        values = [v for k, v in entry.items() if "." in k or k in ("loss", "gradient_norm")]
        figures.append((entry["step"], sorted(values)))
    from safetensors.torch import load_file

    tensors: Counter[str] = Counter()
    last = max((run / "checkpoints").glob("step-*"))
    for path in sorted(last.glob("*.safetensors")):
        for tensor in load_file(path).values():
            value = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]
            tensors[f"{path.stem} {tuple(tensor.shape)} {value}"] += 1
    return figures, tensors


def compare(before: Path, after: Path) -> bool:
    same = True
    for name in (*PRETRAINING, *TUNING):
        (old, old_tensors), (new, new_tensors) = results(before / name), results(after / name)
        steps = [a[0] for a, b in zip(old, new, strict=False) if str(a) != str(b)]
        lost = old_tensors - new_tensors
        if steps or lost or len(old) != len(new) or old_tensors.total() != new_tensors.total():
            same = False
            at = f"metrics from step {steps[0]} on" if steps else f"{len(old)} and {len(new)} log lines"
            print(f"{name:22} DIFFERENT: {at}; {lost.total()} of {old_tensors.total()} tensors", flush=True)
        else:
            print(f"{name:22} same: {len(new)} log lines, {new_tensors.total()} tensors", flush=True)
    return same


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("base", help="git revision to compare with")
    options.add_argument("--keep", help="folder for all files, which is kept; default: a temporary one")
    given = options.parse_args()
    folder = Path(given.keep or tempfile.mkdtemp(prefix="golden-"))
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    write_texts(folder / "texts")
    tree = folder / "base"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--force", tree, given.base], check=True)
    try:
        trees = {"before": tree, "after": ROOT}
        running = {side: start(side, trees[side], folder) for side in trees}
        failed = [side for side, process in running.items() if process.wait()]
        if failed:
            raise SystemExit(f"runs failed ({' and '.join(failed)} the change); see {folder}/{failed[0]}.log")
        same = compare(folder / "before", folder / "after")
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=False)
        if not given.keep and sys.exc_info()[0] is None:
            shutil.rmtree(folder)
    raise SystemExit(not same)


def start(side: str, tree: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Starts all runs of one tree in a process of its own; each of the two trees uses one core."""
    shutil.rmtree(folder / side, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "GOLDEN_SIDE": side}
    command = [sys.executable, __file__, str(folder / "texts"), str(folder / side)]
    with (folder / f"{side}.log").open("w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    if "GOLDEN_SIDE" in os.environ:
        Tree(Path(sys.argv[1]), Path(sys.argv[2])).make_everything()
    else:
        main()
