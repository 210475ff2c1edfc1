"""`keel finetune`: a pretrained model and labelled data -> a model for a task.

In: a model folder, a task (or a recipe file), training and development files. Out: a model folder, the answers on the
development data, and a report page.

Notable choice: whether there is a pooler depends on the task, as in `transformers`: a model whose head does not use it
is saved without it, and a head that needs one gets a fresh one if the model has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel import __version__, catalog
from keel import recipe as recipes
from keel.console import path_argument, shell_command
from keel.errors import UserError
from keel.finetuning.defaults import choose
from keel.finetuning.evaluator import Evaluator
from keel.finetuning.labelled import (
    LabelledData,
    Say,
    check_strategy,
    data_fingerprint,
    read_labelled,
    say_what_was_read,
    take_subset,
)
from keel.finetuning.results import answer_files, length_table, mix_tables, write_result
from keel.finetuning.survey import describe, longer_rows, warnings
from keel.hugging_face.cache import find_folder, how_to_fetch
from keel.hugging_face.folder import LoadedModel, load_model
from keel.in_memory import MemoryTable, Source, as_source
from keel.inference.tasks import describe_truncation
from keel.interfaces import Task
from keel.layers.compact_embedding import compact_token_embeddings
from keel.learner.build import fresh_learner, task_learner
from keel.learner.frozen_cache import build_frozen_cache
from keel.learner.frozen_encoder import rate_scales
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import outputs
from keel.machine import default_threads, find_device, prepare_cpu
from keel.recipe import TaskRecipe
from keel.reporting.report import write_report
from keel.tokenizers.folder import open_tokenizer
from keel.training.callbacks import Callback, Callbacks
from keel.training.example_stream import ExampleStream
from keel.training.run import RunOptions, RunPlan, parameters, run
from keel.training.run_folder import RunFolder
from keel.training.state import Best, State
from keel.values import Evaluation, Window


def finetune(
    model: str,
    task: str | TaskRecipe,
    *,
    train: Any,
    out: str,
    dev: Any = None,
    tokenizer: str | None = None,
    overrides: Sequence[str] = (),
    strict: bool = False,
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
    quiet: bool = False,
    track: str | None = None,
    on_step: Callback | None = None,
    on_evaluate: Callback | None = None,
) -> dict[str, Any]:
    """Trains, or resumes training, and returns the metrics on the development data.

    `train` and `dev` are files, or rows in memory in any of the forms of `in_memory.py`. With a `tokenizer`, `model` is
    a pretraining recipe: its backbone starts from fresh weights. `on_step` and `on_evaluate` get the entries of
    `metrics.jsonl`, `on_step` one for every step, `on_evaluate` also the `score` (the primary metric); one that returns
    False ends the run as if it were complete, and the result then has `ended_by_callback`. `track`: a tracker, such as
    tensorboard."""
    began, say = time.monotonic(), report or (lambda _: None)
    train, dev = as_source(train, "train"), None if dev is None else as_source(dev, "dev")
    if not resume:
        RunFolder(Path(out)).check_new()
    prepare_cpu()
    callbacks = Callbacks(on_step, on_evaluate)
    where = find_device(device)
    options = RunOptions(
        out=out,
        device=where,
        resume=resume,
        threads=threads,
        quiet=quiet,
        track=track,
        callbacks=callbacks,
        began=began,
    )
    loaded, recipe, kind, data = _read(model, task, tokenizer, train, dev, overrides, strict, allow_pickle, say)
    work = _prepare(recipe, kind, data, loaded, options, say)
    again = _resume_command(model, train, dev, out, device, allow_pickle, tokenizer, track)
    plan = _plan(recipe, work, model, data_fingerprint(model, train, dev, tokenizer), again)
    callbacks.more = lambda: {"score": work.evaluator.score}
    state, folder, facts = run(plan, options)
    if state.best and state.best.step != state.step:
        _restore_best(work, folder, state.best, say)
    facts_written = {"settings": list(overrides), "data": plan.data, **callbacks.result()}
    result = _write_results(work, recipe, model, out, state, facts_written, say)
    folder.finish(facts, state.best.step if state.best else None)
    return result | callbacks.result()


def _read(
    model: str,
    task: str | TaskRecipe,
    tokenizer: str | None,
    train: Source,
    dev: Source | None,
    overrides: Sequence[str],
    strict: bool,
    allow_pickle: bool,
    say: Say,
) -> tuple[LoadedModel, TaskRecipe, Task, LabelledData]:
    """The model and the labelled data; the recipe and the task with what the data determine."""
    recipe = recipes.load_task(task, overrides) if isinstance(task, str) else task
    loaded = _fresh(model, tokenizer, recipe) if tokenizer else _open(model, allow_pickle)
    recipe = _fit_length(recipe, loaded, say)
    kind, data = read_labelled(recipe, train, dev, strict)
    if any(override.startswith("data.long.strategy=") for override in overrides):  # a recipe file may list the default
        check_strategy(kind, recipe.data.long.strategy)
    data = take_subset(data, recipe.training.examples)
    say_what_was_read(data, kind, say)
    count, encoder = len(data.train), loaded.learner.backbone.config
    training, chosen = choose(recipe.training, encoder, recipe.encoder.frozen, loaded.pretrained_here, count)
    recipe = recipe.model_copy(update={"task": kind.config, "data": kind.data, "training": training.for_rows(count)})
    if chosen:
        say(chosen)
    return loaded, recipe, kind, data


def automatic_rate(
    model: str, task: str, tokenizer: str | None = None, overrides: Sequence[str] = (), allow_pickle: bool = False
) -> float:
    """The learning rate that `auto` stands for."""
    recipe = recipes.load_task(task, [*overrides, "training.learning_rate=auto"])
    loaded = _fresh(model, tokenizer, recipe) if tokenizer else _open(model, allow_pickle)
    encoder = loaded.learner.backbone.config
    settings, _ = choose(recipe.training, encoder, recipe.encoder.frozen, loaded.pretrained_here, 1)
    return float(settings.learning_rate)


def _restore_best(work: _Work, folder: RunFolder, best: Best, say: Say) -> None:
    """Loads the weights with the best score, and evaluates them again: answers and report are those of the result."""
    last = work.evaluator.last
    work.learner.load_state_dict(load_model(folder.checkpoint(best.step)).learner.state_dict())
    work.evaluator.figures()
    say(
        f"the model of step {best.step:,} is kept: {last.primary} {best.score:.4f} on the development data, the last "
        f"one {last.metrics[last.primary]:.4f} (training.keep_best=false keeps the last)"
    )


class _Work:
    """The parts of a run, after the data are read and the model is built."""

    def __init__(self, learner: Learner, loaded: LoadedModel, data: LabelledData, windows: list[Window]) -> None:
        self.learner, self.loaded, self.data, self.windows = learner, loaded, data, windows
        self.evaluator: Evaluator


def _prepare(
    recipe: TaskRecipe, task: Task, data: LabelledData, loaded: LoadedModel, options: RunOptions, say: Say
) -> _Work:
    settings = recipe.encoder
    if task.needs.full_embeddings and settings.freeze_layers:
        raise UserError(
            "encoder.freeze_layers also freezes the token embeddings, which a translator must train; set it to 0"
        )
    windows, truncation = task.windows(data.train, loaded.tokenizer)
    learner = task_learner(TaskSetup(task, settings), loaded.learner.backbone, recipe.training.seed)
    trains_table = not settings.frozen and not settings.freeze_layers
    if trains_table and not task.needs.full_embeddings and not learner.backbone.config.characters_read:
        used = np.unique(np.concatenate([window.ids for window in windows]))
        compact_token_embeddings(learner.backbone, torch.from_numpy(used))
    learner.to(options.device)
    dev_windows, dev_truncation = task.windows(data.dev, loaded.tokenizer)
    if learner.frozen is not None:
        torch.set_num_threads(options.threads or default_threads())
        learner.frozen.cache = build_frozen_cache(learner, [*windows, *dev_windows], loaded.tokenizer)
    for line in describe(task, data.train, windows, loaded.tokenizer):
        say(line)
    for line in warnings(task, data.train, windows, data.dev, dev_windows):
        say(f"warning: {line}")
    lost = truncation + dev_truncation
    say(describe_truncation(lost, recipe.data))
    if advice := longer_rows(lost, recipe.data, task, learner.backbone.max_length):
        say(advice)
    work = _Work(learner, loaded, data, windows)
    work.evaluator = Evaluator(
        task, data.dev, dev_windows, lambda: outputs(learner, dev_windows, loaded.tokenizer, options.device)
    )
    return work


def _plan(recipe: TaskRecipe, work: _Work, model: str, data: str, resume_command: str) -> RunPlan:
    settings, evaluator = recipe.training, work.evaluator
    opening = f"{recipe.name} from {model}, {parameters(work.learner):,} parameters; {len(work.data.train):,} examples"
    return RunPlan(
        verb="finetune",
        learner=work.learner,
        tokenizer=work.loaded.tokenizer,
        settings=settings,
        source=ExampleStream(work.windows, settings, evaluator.task.needs),
        evaluate=lambda parts: evaluator.figures(),
        score=(lambda figures: evaluator.score) if settings.keep_best else None,
        patience=settings.patience,
        data=data,
        recipe_yaml=recipe.to_yaml(),
        same_recipe=lambda path: _same(recipe, path),
        card=_card(recipe, model, evaluator.task.usage.python),
        opening=f"{opening}, {settings.steps:,} steps of {settings.batch_size}",
        published_start=not work.loaded.pretrained_here,
        resume_command=resume_command,
        scales=rate_scales(work.learner.backbone, recipe.encoder),
        setup=lambda: TaskSetup(evaluator.task, recipe.encoder),
    )


def _why(evaluation: Evaluation) -> str:
    if evaluation.constant:
        return "it gives the same answer for every text"
    score, primary = evaluation.metrics[evaluation.primary], evaluation.primary
    return f"its {primary} of {score:.4f} is not above the {evaluation.baseline:.4f} of one and the same answer for all"


def _advice(recipe: TaskRecipe) -> str:
    higher = 3 * recipe.training.learning_rate
    more = f", more epochs (--epochs {2 * recipe.training.epochs:g})" if recipe.training.epochs else ", more steps"
    return f"Try a higher rate (--set training.learning_rate={higher:g}){more}, or more examples"


def _write_results(
    work: _Work, recipe: TaskRecipe, model: str, out: str, state: State, facts: dict[str, Any], say: Say
) -> dict[str, Any]:
    """Writes the answers, the report page and `result.json`; returns what the command prints."""
    evaluator, data, evaluation = work.evaluator, work.data, work.evaluator.last
    with answer_files(Path(out), evaluator.task.scorer()) as files:
        files.write(data.dev, evaluator.answers)
        for row in data.rejected:
            files.reject(row)
    mixes = work.learner.frozen.mixes() if work.learner.frozen else {}
    result = {
        "out": out,
        "steps": state.step,
        **({"best_step": state.best.step} if state.best else {}),
        "seconds": round(state.elapsed, 1),
        "examples": len(data.train),
        "dev_examples": len(data.dev),
        "rejected": len(data.rejected),
        "primary_metric": evaluation.primary,
        "learned_nothing": evaluation.learned_nothing,
        **evaluation.metrics,
        **({"majority": evaluation.baseline} if evaluation.baseline else {}),
        **({"mixes": mixes} if mixes else {}),
    }
    if evaluation.learned_nothing:
        say(f"this run learned nothing: {_why(evaluation)}. {_advice(recipe)}")
    of_task = evaluation.details()
    write_report(
        Path(out),
        facts={"title": f"Fine-tuning {recipe.name}", "model": model, **result},
        details=[*of_task, *mix_tables(work.learner), length_table(work.windows)],
        figures=evaluation.metrics,
        answers=out,
        usage=evaluator.task.usage,
    )
    write_result(Path(out), result | facts | {"by_label": evaluation.f1_by_label})
    return result


def _open(model: str, allow_pickle: bool) -> LoadedModel:
    known = catalog.known("recipes", model) and isinstance(recipes.load_any(model), recipes.Recipe)
    if known and not find_folder(model).exists():
        raise UserError(
            f"{model} is a recipe, not a model folder: give a model trained with `keel pretrain {model}`, or add "
            f"--tokenizer DIR to start from fresh weights.{how_to_fetch(model)}"
        )
    return load_model(model, pickle=allow_pickle)


def _fresh(recipe_name: str, tokenizer_path: str, task: TaskRecipe) -> LoadedModel:
    """A recipe's backbone with fresh weights, drawn with the task's seed."""
    tokenizer = open_tokenizer(find_folder(tokenizer_path))
    recipe = recipes.load(recipe_name).for_tokenizer(tokenizer.size, tokenizer.pad)
    model = recipe.model
    backbone = fresh_learner(model.backbone, model.objectives, task.training.seed).backbone
    backbone.attach_tokenizer(tokenizer)
    tokenizer.open = bool(model.backbone.characters_read)
    return LoadedModel(Learner(backbone, {}), tokenizer, Path(recipe_name))


def _fit_length(recipe: TaskRecipe, loaded: LoadedModel, say: Say) -> TaskRecipe:
    longest = loaded.learner.backbone.max_length
    if recipe.data.length <= longest:
        return recipe
    say(f"the model has {longest} positions: rows are {longest} tokens long, not {recipe.data.length}")
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"length": longest})})


def _same(recipe: TaskRecipe, path: Path) -> bool:
    before = recipes.load_task(str(path))
    tuned = {"null_threshold"}  # recomputed by every evaluation
    ours, theirs = (r.task.model_dump(exclude=tuned) for r in (recipe, before))
    same = (ours, before.encoder, before.data) == (theirs, recipe.encoder, recipe.data)
    return same and before.training.examples == recipe.training.examples


def _card(recipe: TaskRecipe, model: str, example: str) -> str:
    return (
        f"# {recipe.name}\n\n{recipe.description}\n\nFine-tuned with Keel {__version__} from `{Path(model).name}`. The "
        "complete recipe is in `recipe.yaml`.\n\n"
        '```python\nimport keel\n\nmodel = keel.load("this-folder")\nmodel.predict(['
        f"{example}])\n```\n"
    )


def _resume_command(
    model: str,
    train: Source,
    dev: Source | None,
    out: str,
    device: str,
    pickle: bool,
    tokenizer: str | None,
    track: str | None,
) -> str:
    if isinstance(train, MemoryTable) or isinstance(dev, MemoryTable):
        return "the same call of keel.finetune, with the same data and resume=True"
    out = path_argument(out)
    words = ["keel", "finetune", path_argument(model), f"{out}/recipe.yaml", "--train", path_argument(train)]
    words += ["--dev", path_argument(dev)] if dev else []
    words += ["--tokenizer", path_argument(tokenizer)] if tokenizer else []
    words += ["--out", out, "--resume"]
    words += ["--device", device] if device != "auto" else []
    words += ["--track", track] if track else []
    return shell_command(words + (["--allow-pickle"] if pickle else []))
