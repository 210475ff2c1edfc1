"""`keel finetune`: a pretrained model and labelled data -> a model that does a task.

In: a model folder, a task (or a recipe file), training and development files. Out: a model folder, the answers on the
development data, and a report page.

Notable choices
- Without development data a tenth of the training examples is kept apart for it, and this is said.
- The pooler comes and goes with the task, as in `transformers`: a head that does not use it is saved without it, and
  one that needs it gets a fresh one where the model has none.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel import __version__
from keel import recipe as recipes
from keel.catalog import find, names
from keel.checkpoint import sha256, write_file
from keel.errors import UserError
from keel.interfaces import Cut, Table, Window
from keel.layers.compact_embedding import CompactEmbedding
from keel.layers.start import start_weights
from keel.randomness import seed_of, uniform
from keel.recipe import TaskRecipe
from keel.reporting.report import write_report
from keel.stages.pretrain import build_learner as fresh_learner
from keel.stages.run import Plan, find_device, parameters, run
from keel.text.labelled import LabelledData
from keel.text.parallel import two_files
from keel.tokenizers.folder import open_tokenizer
from keel.training.encoder import rate_scales, restart_layers
from keel.training.kept_layers import keep_layers
from keel.training.learner import Learner
from keel.training.machine import default_threads, prepare_cpu
from keel.training.model_folder import Loaded, Purpose, load_model
from keel.training.run_folder import RunFolder
from keel.training.windows import Source, outputs

HEAD, APART, FEWER = 51, 52, 53  # the purposes that random numbers are for
HELD_APART = 0.1  # of the training examples, where there is no development data
REJECTED = "rejected.jsonl"
ANSWERS = "answers.jsonl"
RESULT = "result.json"


@dataclass(frozen=True)
class Labelled:
    """What the files gave: examples to learn from and to judge by, and the rows that were left out."""

    train: list[Any]
    dev: list[Any]
    rejected: list[Any]
    apart: bool  # dev is a part of the training file


def finetune(
    model: str,
    task: str | TaskRecipe,
    *,
    train: str,
    out: str,
    dev: str | None = None,
    tokenizer: str | None = None,
    overrides: Sequence[str] = (),
    strict: bool = False,
    resume: bool = False,
    threads: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains, or goes on training, and returns the figures on the development data.

    With a `tokenizer`, `model` is a pretraining recipe: its backbone starts from fresh weights."""
    began = time.monotonic()
    say = report or (lambda _: None)
    if not resume:
        RunFolder(Path(out)).check_new()
    prepare_cpu()
    where = find_device(device)
    recipe = recipes.load_task(task, overrides) if isinstance(task, str) else task
    loaded = _fresh(model, tokenizer, recipe) if tokenizer else _open(model, allow_pickle)
    recipe = _fit_length(recipe, loaded, say)
    kind, examples = read_labelled(recipe, train, dev, strict)
    examples = _fewer(examples, recipe.training.examples)
    recipe = recipe.model_copy(
        update={"task": kind.config, "data": kind.data, "training": recipe.training.for_rows(len(examples.train))}
    )
    _say_what_was_read(examples, kind, say)
    windows, cut = kind.windows(examples.train, loaded.tokenizer)
    if kind.needs_table and recipe.encoder.freeze:
        raise UserError("encoder.freeze keeps the table of tokens as it is, but a translator has to write with it")
    learner = build_learner(Purpose(kind, recipe.encoder), loaded, recipe)
    compact = recipe.encoder.use == "all" and not recipe.encoder.freeze and not kind.needs_table
    if compact and not learner.backbone.reads_spellings:
        learner.backbone.tokens = _compact(learner.backbone, windows)
    learner.to(where)
    dev_windows, dev_cut = kind.windows(examples.dev, loaded.tokenizer)
    if learner.view is not None:
        torch.set_num_threads(threads or default_threads())
        learner.view.kept = keep_layers(learner, [*windows, *dev_windows], loaded.tokenizer)
    say(describe_cut(cut + dev_cut, recipe.data))
    judge = Judge(kind, examples.dev, dev_windows, lambda: outputs(learner, dev_windows, loaded.tokenizer, where))
    plan = Plan(
        "finetune",
        learner,
        loaded.tokenizer,
        recipe.training,
        Source(
            windows,
            recipe.training.batch_rows,
            recipe.training.slices,
            recipe.training.seed,
            whole=kind.whole,
            alike=kind.alike,
        ),
        judge.named_figures,
        data_fingerprint(model, train, dev, tokenizer),
        recipe.to_yaml(),
        lambda path: _same(recipe, path),
        _card(recipe, model, kind.usage[1]),
        f"{recipe.name} from {model}, {parameters(learner):,} parameters; {len(examples.train):,} examples, "
        f"{recipe.training.steps:,} steps of {recipe.training.batch_rows}",
        _resume_command(model, train, dev, out, device, allow_pickle, tokenizer),
        rate_scales(learner.backbone, recipe.encoder),
        lambda: Purpose(judge.task, recipe.encoder),
    )
    state, folder, facts = run(plan, out, where, resume=resume, threads=threads, quiet=quiet, began=began)
    pairs = zip(examples.dev, judge.answers, strict=True)
    write_lines(Path(out) / ANSWERS, [with_gold(judge.task, *pair) for pair in pairs])
    write_lines(Path(out) / REJECTED, [asdict(bad) for bad in examples.rejected])
    result = {
        "out": out,
        "steps": state.step,
        "seconds": round(state.elapsed, 1),
        "examples": len(examples.train),
        "dev_examples": len(examples.dev),
        "rejected": len(examples.rejected),
        "headline": judge.task.headline,
        "learnt_nothing": judge.task.degenerate(examples.dev, judge.answers),
        **judge.figures,
        **({"mixes": learner.view.mixes()} if learner.view and learner.view.mixes() else {}),
    }
    if result["learnt_nothing"]:
        say("this run learnt nothing: its answer is the same whatever the text. Try another seed or a lower rate")
    of_task = judge.task.details(examples.dev, judge.answers)
    details = [*of_task, *_shares(learner), _lengths(windows)]
    facts_shown = {"title": f"Fine-tuning {recipe.name}", "model": model, **result}
    write_report(Path(out), facts=facts_shown, details=details, figures=judge.figures, answers=out, usage=kind.usage)
    of = {"settings": list(overrides), "data": plan.data, "by_label": _by_label(of_task)}
    write_file(Path(out) / RESULT, json.dumps({k: _finite(v) for k, v in (result | of).items()}, indent=2))
    folder.finish(facts)
    return result


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Judge:
    """Asks the model about the development data, settles what is settled there (a threshold), and scores."""

    def __init__(
        self, task: Any, examples: list[Any], windows: list[Window], ask: Callable[[], list[np.ndarray]]
    ) -> None:
        self.task, self.examples, self.windows, self.ask = task, examples, windows, ask
        self.answers: list[dict[str, Any]] = []
        self.figures: dict[str, float] = {}

    def named_figures(self) -> dict[str, float]:
        """Under the names that a log uses."""
        found = self.ask()
        self.answers = self.task.answer(self.examples, self.windows, found)
        tuned = self.task.tune(self.examples, self.answers)
        if tuned is not self.task:
            self.task, self.answers = tuned, tuned.answer(self.examples, self.windows, found)
        self.figures = self.task.score(self.examples, self.answers)
        return {f"{self.task.config.kind}.{name}": value for name, value in self.figures.items()}


def build_learner(purpose: Purpose, loaded: Loaded, recipe: TaskRecipe) -> Any:
    """The model's encoder with a fresh head; the seed decides the head's first weights."""
    given: Any = loaded.learner.backbone
    known = type(given.config).model_fields
    pooled = getattr(purpose.task.config, "pooling", None) == "cls" and purpose.encoder.use == "all"
    pooled = pooled and "pooler" in known
    generator = torch.Generator().manual_seed(seed_of(recipe.training.seed, HEAD))
    share, looked = recipe.encoder.dropout, recipe.encoder.attention_dropout
    wished = {"pooler": pooled, "dropout": share, "attention_dropout": share if looked is None else looked}
    update = {name: value for name, value in wished.items() if name in known and value is not None}
    backbone = type(given)(given.config.model_copy(update=update))
    if pooled:
        start_weights(backbone.pooler, backbone.config.start_deviation, generator)  # kept where the model has none
    shared = {k: v for k, v in given.state_dict().items() if k in backbone.state_dict()}
    backbone.load_state_dict({**backbone.state_dict(), **shared})
    if recipe.encoder.restart:
        restart_layers(backbone, recipe.encoder, generator)
    learner = purpose.learner(backbone)
    if learner.view is not None:
        learner.view.start(generator)
    for objective in learner.objectives.values():
        start_weights(objective, backbone.config.start_deviation, generator)
        objective.begin(generator)  # type: ignore[operator]
    return learner


def _open(model: str, allow_pickle: bool) -> Loaded:
    known = model in names("recipes", ".yaml") and isinstance(recipes.load_any(model), recipes.Recipe)
    if known and not Path(model).exists():
        raise UserError(
            f"{model} is a recipe, not a model folder: give a model that `keel pretrain {model}` made, or add "
            "--tokenizer DIR to start from fresh weights"
        )
    return load_model(model, pickle=allow_pickle)


def _fresh(recipe_name: str, tokenizer_path: str, task: TaskRecipe) -> Loaded:
    """A recipe's backbone at fresh weights, which the task's seed decides."""
    tokenizer = open_tokenizer(Path(tokenizer_path))
    recipe = recipes.load(recipe_name, [f"training.seed={task.training.seed}"])
    backbone = fresh_learner(recipe.for_tokenizer(tokenizer.size, tokenizer.pad)).backbone
    backbone.meet(tokenizer)
    tokenizer.open = backbone.reads_spellings
    return Loaded(Learner(backbone, {}), tokenizer, Path(recipe_name))


def _compact(backbone: Any, windows: Sequence[Window]) -> CompactEmbedding:
    """The token table, of which only the training data's tokens learn."""
    used = np.unique(np.concatenate([window.ids for window in windows]))
    return CompactEmbedding(backbone.tokens.weight, torch.from_numpy(used))


def _fit_length(recipe: TaskRecipe, loaded: Loaded, say: Callable[[str], None]) -> TaskRecipe:
    longest = loaded.learner.backbone.longest
    if recipe.data.length <= longest:
        return recipe
    say(f"the model has {longest} positions: rows are {longest} tokens long, not {recipe.data.length}")
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"length": longest})})


def read_labelled(recipe: TaskRecipe, train: str, dev: str | None, strict: bool = False) -> tuple[Any, Labelled]:
    """The task, with what it learnt of its labels from the examples; and the examples."""
    task = find("tasks", recipe.task.kind)(recipe.task, recipe.data).bind(train)  # type: ignore[attr-defined]
    examples, rejected = _read_file(task, train, strict)
    try:
        settled = task.settle(examples)
    except UserError as error:  # the task knows the examples, but not their file, nor what was left out of it
        left_out = f" ({len(rejected)} rows cannot be used; the first: {rejected[0]})" if rejected else ""
        raise UserError(f"{train}: {error}{left_out}") from None
    if dev:
        judged, more = _read_file(settled, dev, strict)
        rejected = rejected + more
    else:
        numbers = uniform(APART, np.arange(len(examples)))  # whatever the seed, so that seeds can be compared
        border = np.sort(numbers)[min(len(numbers) - 1, max(1, round(HELD_APART * len(numbers))))]
        judged = [e for e, number in zip(examples, numbers, strict=True) if number < border]
        examples = [e for e, number in zip(examples, numbers, strict=True) if number >= border]
        if not judged:
            raise UserError(f"{train}: one example is too few to learn from and to judge by; give more, or --dev")
    return settled, Labelled(examples, judged, rejected, not dev)


def _read_file(task: Any, path: str, strict: bool) -> tuple[list[Any], list[Any]]:
    """The examples, and the rows that cannot be used; none of the latter if strict."""
    examples, rejected = task.read(path)
    if strict and rejected:
        raise UserError(f"{rejected[0]} (--strict; {len(rejected)} such rows in all)")
    if not examples:
        raise UserError(f"{path}: no row can be used" + (f"; the first: {rejected[0]}" if rejected else ""))
    return examples, rejected


def _fewer(data: Labelled, wanted: int | None) -> Labelled:
    """So many of the training examples; fewer are always among more."""
    if wanted is None or wanted >= len(data.train):
        return data
    chosen = np.sort(np.argsort(uniform(FEWER, np.arange(len(data.train))), kind="stable")[:wanted])
    return replace(data, train=[data.train[n] for n in chosen])


def _say_what_was_read(data: Labelled, task: Any, say: Callable[[str], None]) -> None:
    say(f"{len(data.train):,} examples to learn from, {len(data.dev):,} to judge by")
    if data.apart:
        say(f"no --dev given: {len(data.dev):,} of the training examples are kept apart to judge by")
    columns = {r: getattr(task.data, r) for r in ("text", "pair", "label") if getattr(task.data, r)}
    if columns:
        say("columns: " + ", ".join(f"{role} = {name}" for role, name in columns.items()))
    say_oddities(task, [*data.train, *data.dev], data.rejected, say)


def say_oddities(task: Any, examples: Sequence[Any], rejected: Sequence[Any], say: Callable[[str], None]) -> None:
    """What was odd about the examples, and what could not become one."""
    for remark in task.remarks(examples):
        say(remark)
    for bad in rejected[:5]:
        say(f"left out: {bad}")
    if len(rejected) > 5:
        say(f"left out: {len(rejected):,} rows in all; they are listed in {REJECTED}")


def describe_cut(cut: Cut, data: LabelledData) -> str:
    """One line about what did not fit; nothing is cut silently."""
    if not cut.cut_texts:
        return f"all {cut.texts:,} texts fit into rows of {data.length} tokens, or into their windows"
    texts, tokens = cut.cut_texts / cut.texts, cut.cut_tokens / cut.tokens
    return (
        f"{100 * texts:.1f} % of the texts did not fit into rows of {data.length} tokens and were cut "
        f"({data.long.strategy}); {100 * tokens:.1f} % of all tokens are lost"
    )


def _by_label(details: Sequence[Any]) -> dict[str, float]:
    """F1 of each label, or kind of entity, from the table that shows it."""
    named = (table for table in details if isinstance(table, Table) and table.columns[0] in ("label", "kind"))
    tables = (table for table in named if "F1" in table.columns)
    return {str(row[0]): float(row[list(table.columns).index("F1")]) for table in tables for row in table.rows}


def _shares(learner: Any) -> list[Table]:
    """What each layer of a frozen encoder counts for in a learned mix."""
    mixes = learner.view.mixes() if learner.view is not None else {}
    if not mixes:
        return []
    count = len(next(iter(mixes.values()))) - 1
    columns = ("mix", *(f"layer {number}" for number in range(count)), "times")
    rows = [(name, *(f"{share:.3f}" for share in shares)) for name, shares in mixes.items()]
    return [Table("Shares of the encoder's layers", columns, rows, "layer 0 is the lowest, before any context")]


def _lengths(windows: Sequence[Window]) -> Table:
    """How long the training rows are, in bins that double."""
    lengths = np.array([len(window.ids) for window in windows])
    rows, low = [], 2
    while low <= lengths.max():
        inside = int(((lengths >= low) & (lengths < 2 * low)).sum())
        rows += [(f"{low} to {2 * low - 1}", inside)] if inside else []
        low *= 2
    return Table("Lengths of training rows", ("tokens", "rows"), rows)


def files_of(path: str | None) -> list[str]:
    """One file, or the two of parallel texts."""
    return list(two_files(path) or [path]) if path else []


def data_fingerprint(model: str, train: str, dev: str | None, tokenizer: str | None = None) -> str:
    """Names the weights that were started from, or of a fresh model its shape and tokenizer; and the data."""
    found = fingerprint(model, *files_of(train), *files_of(dev))
    if tokenizer:
        shape = recipes.load(model).model.backbone.model_dump_json()
        opened = open_tokenizer(Path(tokenizer)).fingerprint()
        found = hashlib.sha256(f"{found} {opened} {shape}".encode()).hexdigest()
    return found


def fingerprint(model: str, *files: str | None) -> str:
    """Names the weights that were started from and the data."""
    weights = sorted(p for suffix in ("safetensors", "bin") for p in Path(model).glob(f"*.{suffix}"))
    paths = [p for p in weights + [Path(f) for f in files if f] if p.is_file()]
    return hashlib.sha256("".join(sha256(path) for path in paths).encode()).hexdigest()


def _same(recipe: TaskRecipe, path: Path) -> bool:
    before = recipes.load_task(str(path))
    settled = {"threshold"}  # found again by every evaluation
    ours, theirs = (r.task.model_dump(exclude=settled) for r in (recipe, before))
    same = (ours, before.encoder, before.data) == (theirs, recipe.encoder, recipe.data)
    return same and before.training.examples == recipe.training.examples


def _card(recipe: TaskRecipe, model: str, ask: str) -> str:
    return (
        f"# {recipe.name}\n\n{recipe.description}\n\nFine-tuned with Keel {__version__} from `{Path(model).name}`. The "
        "complete recipe is in `recipe.yaml`.\n\n"
        '```python\nimport keel\n\nmodel = keel.load("this-folder")\nmodel.predict(['
        f"{ask}])\n```\n"
    )


def _resume_command(
    model: str, train: str, dev: str | None, out: str, device: str, pickle: bool, tokenizer: str | None
) -> str:
    words = ["keel", "finetune", model, f"{out}/recipe.yaml", "--train", train]
    words += ["--dev", dev] if dev else []
    words += ["--tokenizer", tokenizer] if tokenizer else []
    words += ["--out", out, "--resume"]
    words += ["--device", device] if device != "auto" else []
    return shlex.join(words + (["--allow-pickle"] if pickle else []))


def with_gold(task: Any, example: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer beside what is right, and where the example stood."""
    return {"where": getattr(example, "where", ""), "gold": task.gold(example), **answer}


def write_lines(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    write_file(path, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
