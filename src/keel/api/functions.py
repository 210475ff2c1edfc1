"""The functions of `import keel`: each step of the line as one call, on files or on data in memory.

In: texts, labelled rows, names and folders. Out: a `Result`: the folder that was written, and its figures.

Texts are a path (a str, or pathlib.Path objects in a list), a list of texts, a frame or a data set with a text column,
or an iterator of texts. Labelled data are a path, a list of rows, a dictionary of columns, a pandas or polars frame, or
a `datasets.Dataset` (`in_memory.py`). These functions call the stages that the commands call; `settings` are the values
that `--set` takes.

Notable choices
- Nothing is imported before a function is called, so `import keel` is fast, and threads can be told how to wait.
- Texts in memory are written to a temporary file beside `out`: building a corpus reads them more than once, and
  continues after a crash.
- Without `out`, a folder is made under `runs/` and said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keel.api.inputs import (
    PathLike,
    Settings,
    column_name,
    data_file,
    model_folder,
    output,
    overrides,
    recipe_name,
    report,
    text_files,
)
from keel.openmp import share_cores

if TYPE_CHECKING:
    from keel.api.result import Result
    from keel.inference.model import Model

Callback = Callable[[dict[str, Any]], object]  # gets an entry of metrics.jsonl; one that returns False ends the run


def load(path: PathLike, *, allow_pickle: bool = False, device: str = "auto") -> Model:
    """Opens a Keel or Hugging Face model folder: `keel.load("my-model").fill("Paris is [MASK].")`."""
    share_cores()
    from keel.inference.model import Model

    return Model.load(os.fspath(path), allow_pickle, device)


def fetch(
    name: str,
    out: PathLike | None = None,
    *,
    revision: str | None = None,
    allow_pickle: bool = False,
    quiet: bool = False,
) -> Result:
    """Gets a published model by its public name (extra `hub`). The only function that connects to anything."""
    share_cores()
    from keel.api.result import Result
    from keel.stages.fetch import fetch as run

    folder = None if out is None else os.fspath(out)
    found = run(name, folder, revision, allow_pickle=allow_pickle, report=report(quiet))
    return Result("fetch", found["out"], found)


def train_tokenizer(
    texts: Any,
    out: PathLike | None = None,
    *,
    kind: str = "wordpiece",
    vocab_size: int = 16000,
    lowercase: bool = True,
    column: str = "text",
    documents: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Result:
    """Trains a vocabulary: kind wordpiece, byte-bpe, byte-fallback or words."""
    share_cores()
    from keel.api.result import Result
    from keel.stages.tokenizer import train

    target = output(out, "tokenizer", quiet)
    options |= {"kind": kind, "vocab_size": vocab_size, "lowercase": lowercase, "documents": documents}
    with text_files(texts, column, target) as paths:
        found = train(paths, target, column=column, report=report(quiet), **options)
    return Result("train_tokenizer", target, found)


def build_corpus(
    texts: Any,
    tokenizer: PathLike,
    out: PathLike | None = None,
    *,
    column: str = "text",
    documents: str = "auto",
    workers: int | None = 1,
    held_out: float = 0.01,
    quiet: bool = False,
    **options: Any,
) -> Result:
    """Tokenises texts once, for all later runs. More `workers` than one need the guard `if __name__ == "__main__":`."""
    share_cores()
    from keel.api.result import Result
    from keel.stages.corpus import build

    target = output(out, "corpus", quiet)
    options |= {"column": column, "documents": documents, "workers": workers, "held_out": held_out}
    with text_files(texts, column, target) as paths:
        found = build(paths, os.fspath(tokenizer), str(target), report=report(quiet), **options)
    return Result("build_corpus", target, found)


def pretrain(
    recipe: str,
    corpus: PathLike,
    out: PathLike | None = None,
    *,
    budget: str | None = None,
    steps: int | None = None,
    settings: Settings = (),
    init: PathLike | None = None,
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    quiet: bool = False,
    track: str | None = None,
    on_step: Callback | None = None,
    on_evaluate: Callback | None = None,
    **options: Any,
) -> Result:
    """Trains a recipe on a corpus, for a time such as "45m" or a number of steps."""
    share_cores()
    from keel.api.result import Result
    from keel.stages.pretrain import pretrain as run

    target = output(out, recipe_name(recipe), quiet, resume)
    changes = [*overrides(settings), *([f"training.steps={steps}"] if steps is not None else [])]
    options |= {"resume": resume, "threads": threads, "device": device, "quiet": quiet}
    options |= {"track": track, "on_step": on_step, "on_evaluate": on_evaluate}
    found = run(
        recipe,
        corpus=os.fspath(corpus),
        out=str(target),
        overrides=changes,
        budget=budget,
        init=None if init is None else model_folder(init),
        **options,
    )
    return Result("pretrain", target, found)


def finetune(
    model: PathLike | Model,
    task: str,
    train: Any,
    dev: Any = None,
    out: PathLike | None = None,
    *,
    text: str | int | None = None,
    pair: str | int | None = None,
    label: str | int | None = None,
    choices: Sequence[str] | None = None,
    long: str | None = None,
    length: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    patience: int | None = None,
    seed: int | None = None,
    settings: Settings = (),
    strict: bool = False,
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    quiet: bool = False,
    track: str | None = None,
    on_step: Callback | None = None,
    on_evaluate: Callback | None = None,
    **options: Any,
) -> Result:
    """Fine-tunes a model: task classify, regress, tag, answer, choose or translate, or a recipe file.

    `text`, `pair`, `label` and `choices` name columns. What is None follows from the data, the model and the recipe.
    """
    share_cores()
    from keel.api.result import Result
    from keel.stages.finetune import finetune as run

    target = output(out, recipe_name(task), quiet, resume)
    given: dict[str, Any] = {"data.text": text, "data.pair": pair, "data.label": label, "data.choices": choices}
    given |= {"data.long.strategy": long, "data.length": length, "training.epochs": epochs, "training.seed": seed}
    given |= {"training.learning_rate": learning_rate, "training.batch_size": batch_size}
    given["training.patience"] = patience
    options |= {"strict": strict, "resume": resume, "threads": threads, "device": device, "quiet": quiet}
    options |= {"track": track, "on_step": on_step, "on_evaluate": on_evaluate}
    found = run(
        model_folder(model),
        task,
        train=train,
        dev=dev,
        out=str(target),
        overrides=[*overrides({k: v for k, v in given.items() if v is not None}), *overrides(settings)],
        report=report(quiet),
        **options,
    )
    return Result("finetune", target, found)


def evaluate(
    model: PathLike | Model,
    data: Any,
    out: PathLike | None = None,
    *,
    text: str | int | None = None,
    pair: str | int | None = None,
    label: str | int | None = None,
    choices: Sequence[str] | None = None,
    long: str | None = None,
    strict: bool = False,
    device: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Result:
    """The metrics of a fine-tuned model on labelled data; with `out`, also the answers and a report page."""
    share_cores()
    from keel.api.result import Result
    from keel.stages.evaluate import evaluate as run

    columns = {"text": column_name(text), "pair": column_name(pair), "label": column_name(label), "choices": choices}
    options |= {"long": long, "strict": strict, "device": device, "report": report(quiet)}
    folder = None if out is None else os.fspath(out)
    found = run(model_folder(model), data, columns=columns, out=folder, **options)
    return Result("evaluate", folder, found)


def compare(
    members: Mapping[str, PathLike] | Sequence[str],
    tasks: Mapping[str, tuple[str, Any, Any]],
    out: PathLike | None = None,
    *,
    corpus: PathLike | None = None,
    budget: str | None = None,
    seeds: int = 3,
    ways: Sequence[str] = ("tuned",),
    settings: Settings = (),
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    quiet: bool = False,
    **options: Any,
) -> Result:
    """Several models on the same tasks, with several seeds: `keel.compare({"mine": "my-model", "bert": "bert-base"},
    {"mood": ("classify", train, dev)})`. Members without a folder are recipes, trained on `corpus` for `budget`.

    Data in memory are written to a folder beside `out`, because runs may be processes of their own."""
    share_cores()
    from keel.api.result import Result
    from keel.comparing.lineage import compare_lineage
    from keel.comparing.tasks import LabelledTask

    target = output(out, "comparison", quiet, resume)
    shared = tuple(overrides(settings))
    found = compare_lineage(
        [f"{name}={os.fspath(path)}" for name, path in members.items()] if isinstance(members, Mapping) else members,
        out=str(target),
        tasks=[
            LabelledTask(
                name, kind, data_file(train, target, f"{name}-train"), data_file(dev, target, f"{name}-dev"), shared
            )
            for name, (kind, train, dev) in tasks.items()
        ],
        corpus=None if corpus is None else os.fspath(corpus),
        budget=budget,
        ways=ways,
        task_seeds=seeds,
        resume=resume,
        threads=threads,
        device=device,
        report=report(quiet),
        quiet=quiet,
        **options,
    )
    return Result("compare", target, found)


def add_plugin(file: PathLike) -> list[tuple[str, str]]:
    """Registers the members that a Python file defines (backbones, tasks, ...) in this process."""
    from keel import catalog

    return catalog.add_plugin(os.fspath(file))
