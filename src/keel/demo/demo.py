"""`keel demo`: all steps from text to predictions, on English text that every machine with Python has.

In: nothing. Out: a folder with text, tokenizer, corpus and model; masks filled by the model before and after training;
and scores on four tasks made from the same text, after fine-tuning the pretrained model and an untrained one.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keel.demo.folders import MARKER
from keel.demo.tasks import compare, make_tasks
from keel.demo.text import collect
from keel.errors import UserError
from keel.stages import corpus, tokenizer
from keel.stages.pretrain import pretrain, save_untrained

VOCABULARY = 8000
ENOUGH_STEPS = 1000  # that a model of this size usually needs to learn from context
BLANKS = (
    "Return True if the [MASK] is empty.",
    "This function [MASK] a list of strings.",
    "If the file does not [MASK], an exception is raised.",
    "Raises a ValueError if the input is not [MASK].",
    "Returns the number of [MASK] in the array.",
    "The default [MASK] is None.",
    "A class that represents a [MASK] of objects.",
    "See the documentation [MASK] more information.",
)


def demo(out: str = "demo", minutes: float = 4.0, report: Callable[[str], None] | None = print) -> dict[str, Any]:
    """Runs all stages, through the functions that the commands use."""
    began = time.monotonic()
    say = report or (lambda _: None)
    folder = _fresh_folder(Path(out))
    text, vocabulary, built, model = (str(folder / n) for n in ("text.jsonl", "tokenizer", "corpus", "model"))
    found = collect(Path(text))
    say(f"text: {found['documents']:,} documents, {found['characters']:,} characters of documentation on this machine")
    tokenizer.train([text], vocabulary, vocab_size=VOCABULARY)
    account = corpus.build([text], vocabulary, built)
    say(f"corpus: {account['kept']:,} of {account['read']:,} documents kept; pretraining for {minutes:g} minutes")
    # The final evaluation takes a large part of a short run, so it is kept small.
    settings = ["training.evaluation_tokens=32768"]
    result = pretrain(
        "demo",
        corpus=built,
        out=model,
        overrides=settings,
        budget=f"{round(60 * minutes)}s",
        blanks=BLANKS,
        quiet=not report,
    )
    if result.get("plateau"):
        result["advice"] = more_time(result["step"], minutes)
    say("four tasks, each fine-tuned from the pretrained model and from an untrained one")
    untrained = str(folder / "untrained")
    save_untrained("demo", built, untrained)
    tasks = make_tasks(Path(text), folder / "tasks")
    rows = compare(folder / "tasks", tasks, {"untrained": untrained, "pretrained": model}, say)
    ended = {"report": f"{model}/report.html", "total_seconds": round(time.monotonic() - began)}
    return {**result, "tasks": rows, **ended}


def more_time(steps: int, minutes: float) -> str:
    """The advice if so many steps did not do; that of pretraining names options that the demo does not have."""
    enough = math.ceil(minutes * max(2.0, ENOUGH_STEPS / max(1, steps)))
    return f"{steps:,} steps were too few to learn from context: keel demo --minutes {enough}"


def _fresh_folder(folder: Path) -> Path:
    """An empty folder; one that an earlier demo made is cleared, any other is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise UserError(f"{folder} is not empty and was not made by `keel demo`; choose another --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text(json.dumps({"made_by": "keel demo"}))
    return folder
