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

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keel.console import say
from keel.errors import UserError
from keel.openmp import share_cores

if TYPE_CHECKING:
    from keel.inference.model import Model
    from keel.result import Result

PathLike = str | os.PathLike[str]
Settings = Mapping[str, Any] | Sequence[str]
Callback = Callable[[dict[str, Any]], object]  # gets an entry of metrics.jsonl; one that returns False ends the run

RUNS = "runs"  # the folder of results that were given no other


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
    from keel.result import Result
    from keel.stages.fetch import fetch as run

    folder = None if out is None else os.fspath(out)
    found = run(name, folder, revision, allow_pickle=allow_pickle, report=_report(quiet))
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
    from keel.result import Result
    from keel.stages.tokenizer import train

    target = _target(out, "tokenizer", quiet)
    options |= {"kind": kind, "vocab_size": vocab_size, "lowercase": lowercase, "documents": documents}
    with _text_files(texts, column, target) as paths:
        found = train(paths, target, column=column, report=_report(quiet), **options)
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
    from keel.result import Result
    from keel.stages.corpus import build

    target = _target(out, "corpus", quiet)
    options |= {"column": column, "documents": documents, "workers": workers, "held_out": held_out}
    with _text_files(texts, column, target) as paths:
        found = build(paths, os.fspath(tokenizer), str(target), report=_report(quiet), **options)
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
    from keel.result import Result
    from keel.stages.pretrain import pretrain as run

    target = _target(out, recipe_name(recipe), quiet, resume)
    changes = [*_overrides(settings), *([f"training.steps={steps}"] if steps is not None else [])]
    options |= {"resume": resume, "threads": threads, "device": device, "quiet": quiet}
    options |= {"track": track, "on_step": on_step, "on_evaluate": on_evaluate}
    found = run(
        recipe,
        corpus=os.fspath(corpus),
        out=str(target),
        overrides=changes,
        budget=budget,
        init=None if init is None else _model_folder(init),
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
    from keel.result import Result
    from keel.stages.finetune import finetune as run

    target = _target(out, recipe_name(task), quiet, resume)
    given: dict[str, Any] = {"data.text": text, "data.pair": pair, "data.label": label, "data.choices": choices}
    given |= {"data.long.strategy": long, "data.length": length, "training.epochs": epochs, "training.seed": seed}
    given |= {"training.learning_rate": learning_rate, "training.batch_size": batch_size}
    given["training.patience"] = patience
    options |= {"strict": strict, "resume": resume, "threads": threads, "device": device, "quiet": quiet}
    options |= {"track": track, "on_step": on_step, "on_evaluate": on_evaluate}
    found = run(
        _model_folder(model),
        task,
        train=train,
        dev=dev,
        out=str(target),
        overrides=[*_overrides({k: v for k, v in given.items() if v is not None}), *_overrides(settings)],
        report=_report(quiet),
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
    from keel.result import Result
    from keel.stages.evaluate import evaluate as run

    columns = {"text": _name(text), "pair": _name(pair), "label": _name(label), "choices": choices}
    options |= {"long": long, "strict": strict, "device": device, "report": _report(quiet)}
    folder = None if out is None else os.fspath(out)
    found = run(_model_folder(model), data, columns=columns, out=folder, **options)
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
    from keel.comparing.lineage import compare_lineage
    from keel.comparing.tasks import LabelledTask
    from keel.result import Result

    target = _target(out, "comparison", quiet, resume)
    shared = tuple(_overrides(settings))
    found = compare_lineage(
        [f"{name}={os.fspath(path)}" for name, path in members.items()] if isinstance(members, Mapping) else members,
        out=str(target),
        tasks=[
            LabelledTask(name, kind, _file(train, target, f"{name}-train"), _file(dev, target, f"{name}-dev"), shared)
            for name, (kind, train, dev) in tasks.items()
        ],
        corpus=None if corpus is None else os.fspath(corpus),
        budget=budget,
        ways=ways,
        task_seeds=seeds,
        resume=resume,
        threads=threads,
        device=device,
        report=_report(quiet),
        quiet=quiet,
        **options,
    )
    return Result("compare", target, found)


def add_plugin(file: PathLike) -> list[tuple[str, str]]:
    """Registers the members that a Python file defines (backbones, tasks, ...) in this process."""
    from keel import catalog

    return catalog.add_plugin(os.fspath(file))


# ---------------------------------------------------------------------------------------------------------------------
# From what a caller gives to what the stages take


def _report(quiet: bool) -> Callable[[Any], None] | None:
    return None if quiet else lambda update: say(update) if isinstance(update, str) else None


def recipe_name(recipe: str) -> str:
    return Path(recipe).stem


def _target(out: PathLike | None, name: str, quiet: bool, resume: bool = False) -> Path:
    """The folder to write: `runs/NAME-1`, or the next number, if none is given."""
    if out is not None:
        return Path(out)
    if resume:
        raise UserError("resume=True needs out=..., the folder of the run to continue")
    number = 1
    while (target := Path(RUNS) / f"{name}-{number}").exists():
        number += 1
    if not quiet:
        say(f"out: {target}")
    return target


def _overrides(settings: Settings) -> list[str]:
    """`{"training.epochs": 4}` as `training.epochs=4`."""
    if isinstance(settings, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    if isinstance(settings, str):
        raise UserError(f"settings: give a dictionary, such as {{'training.epochs': 4}}, not {settings!r}")
    return list(settings)


def _name(column: str | int | None) -> str | None:
    return None if column is None else str(column)


def _model_folder(model: Any) -> str:
    """The folder of a model, which must not have been changed since it was opened."""
    from keel.inference.model import Model

    if not isinstance(model, Model):
        return os.fspath(model)
    if model.changed:
        raise UserError(f"{model.path}: the model was changed since it was opened; save it with model.save(DIR) first")
    return str(model.path)


def _file(data: Any, target: Path, name: str) -> str:
    """A path as it is; rows in memory as a file in a folder beside `target`."""
    from keel.files.folders import write_file
    from keel.in_memory import MemoryTable, as_source

    source = as_source(data, name)
    if not isinstance(source, MemoryTable):
        return source
    path = target.with_name(f"{target.name}-data") / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, fields, reason in source.records():
        if reason:
            raise UserError(f"{source}, row {number}: {reason}")
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    write_file(path, "".join(lines))
    return str(path)


@contextlib.contextmanager
def _text_files(texts: Any, column: str, out: Path) -> Iterator[list[str]]:
    """The paths as given; texts in memory in a file beside `out`, which is removed at the end."""
    if isinstance(texts, str | os.PathLike):
        yield [os.fspath(texts)]
        return
    if isinstance(texts, list | tuple) and texts and all(isinstance(one, os.PathLike) for one in texts):
        yield [os.fspath(one) for one in texts]
        return
    if isinstance(texts, list | tuple) and texts and all(isinstance(t, str) and _is_path(t) for t in texts):
        raise UserError("texts: these are names of files; give pathlib.Path objects, or one path or glob as a str")
    spool = out.with_name(f"{out.name}.texts.jsonl")
    spool.parent.mkdir(parents=True, exist_ok=True)
    try:
        with spool.open("w", encoding="utf-8", errors="surrogatepass") as file:
            for text in _texts(texts, column):
                file.write(json.dumps({column: text}) + "\n")
        yield [str(spool)]
    finally:
        spool.unlink(missing_ok=True)


def _is_path(text: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return len(text) < 1000 and Path(text).exists()
    return False


def _texts(texts: Any, column: str) -> Iterable[Any]:
    """The texts one by one; those of an iterator are never all in memory."""
    from keel.in_memory import as_source, is_table

    if isinstance(texts, Iterable) and not is_table(texts) and not hasattr(texts, "iloc"):
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(f"texts, number {number}: a text is needed, not a {type(text).__name__}")
            yield text
        return
    for number, fields, reason in as_source(texts, "texts").records():  # type: ignore[union-attr]  # never a path
        if reason or column not in fields:
            raise UserError(f"texts, row {number}: {reason or f'there is no column {column!r}'}; choose with column=")
        yield fields[column]
