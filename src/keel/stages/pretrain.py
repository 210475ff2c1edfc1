"""`keel pretrain`: a recipe and a corpus -> a model folder.

In: recipe, corpus, out. Out: the folder described in training/run_folder.py, a report page, and the last figures.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from keel import __version__
from keel import recipe as recipes
from keel.catalog import find
from keel.checkpoint import read_tensors
from keel.errors import Stopped, UserError
from keel.layers.start import start_weights
from keel.randomness import seed_of
from keel.recipe import Recipe
from keel.reporting.report import write_report
from keel.stages.data import Data, open_data
from keel.stages.model import Model
from keel.tokenizers.wordpiece import WordPiece
from keel.training import loop
from keel.training.learner import Learner
from keel.training.machine import default_threads, prepare_cpu
from keel.training.model_folder import assemble, load_model
from keel.training.optimizer import make_optimizer, restore_optimizer
from keel.training.precision import settle_precision
from keel.training.progress import TrainingProgress
from keel.training.run_folder import RunFolder

WEIGHTS = 31  # the purpose the seed is used for


def pretrain(
    recipe: str | Recipe,
    *,
    corpus: str,
    out: str,
    overrides: list[str] | tuple[str, ...] = (),
    budget: str | None = None,
    resume: bool = False,
    init: str | None = None,
    tokenizer: str | None = None,
    threads: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    blanks: Sequence[str] = (),
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains, or goes on training, and returns the last held-out figures.

    `blanks` are texts with [MASK], filled before and after training for the report page.
    """
    began = time.monotonic()
    prepare_cpu()
    folder = RunFolder(Path(out))
    where = _device(device)
    given = list(overrides) + ([f"training.budget={budget}"] if budget else [])
    if isinstance(recipe, str):
        recipe = recipes.load(recipe, given)
    data = open_data(recipe, corpus, tokenizer)
    recipe = data.recipe
    learner = build_learner(recipe, init, allow_pickle, data.tokenizer).to(where)
    before = [_guesses(learner, data, text) for text in blanks]
    optimizer = make_optimizer(learner, recipe.training)
    facts: dict[str, Any] = {
        "corpus": data.corpus.fingerprint,
        "keel_version": __version__,
        "torch": torch.__version__.split("+")[0],
    }
    facts["threads"] = threads or default_threads()
    facts["precision"] = settle_precision(recipe.training.precision, where)
    state = loop.State()
    if resume:
        state, facts = _restore(folder, recipe, learner, optimizer, facts, threads)
    else:
        folder.begin(recipe.to_yaml())
    torch.set_num_threads(facts["threads"])
    held_out = [learner.prepare(rows, data.tokenizer, where) for rows in data.held_out]
    progress = TrainingProgress(quiet)
    progress.note(_opening(recipe, data, learner, state))

    def log(entry: dict[str, Any]) -> None:
        folder.log(entry)
        if entry["kind"] == "evaluation":
            figures = [f"{k} {v:.4f}" for k, v in entry.items() if "." in k]
            progress.note(f"held-out at step {entry['step']:,}: {', '.join(figures)}")

    def save(state: loop.State) -> None:
        card = _card(recipe, data)
        folder.save(learner, optimizer, data.tokenizer, state, facts, recipe.to_yaml(), card, recipe.training.keep)

    run = loop.Run(
        learner,
        optimizer,
        data.tokenizer,
        data.slices,
        recipe.training,
        state,
        where,
        facts["precision"],
        lambda: loop.evaluate(learner, held_out) if held_out else {},
        save,
        log,
        progress.show,
        began,
    )
    try:
        state, stopped = loop.train(run)
    finally:
        progress.close()
    if stopped:
        command = _resume_command(corpus, out, device)
        raise Stopped(f"stopped at step {state.step:,}; everything is saved. Go on with:\n  {command}")
    after = [_guesses(learner, data, text) for text in blanks]
    fills = [{"text": t, "before": b, "after": a} for t, b, a in zip(blanks, before, after, strict=True)]
    write_report(Path(out), facts=_report_facts(recipe, data, learner, state), fills=fills)
    folder.finish(facts)
    result = {"out": out, "step": state.step, "seconds": round(state.elapsed, 1), **_last_evaluation(folder)}
    return result | ({"fills": fills} if fills else {})


def build_learner(recipe: Recipe, init: str | None, allow_pickle: bool, tokenizer: WordPiece) -> Learner:
    """A learner at fresh weights, or at those of another model (whose heads are kept where the recipe has them)."""
    config = recipe.model.backbone
    backbone = find("backbones", config.kind)(config)  # type: ignore[attr-defined]
    learner = assemble(backbone, dict(recipe.model.objectives))
    generator = torch.Generator().manual_seed(seed_of(recipe.training.seed, WEIGHTS))
    backbone.start(generator)
    for objective in learner.objectives.values():
        start_weights(objective, backbone.config.start_deviation, generator)
    if init:
        _start_from(learner, init, allow_pickle, tokenizer)
    return learner


def _start_from(learner: Learner, init: str, allow_pickle: bool, tokenizer: WordPiece) -> None:
    loaded = load_model(init, pickle=allow_pickle)
    if loaded.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"{init} has another tokenizer than the corpus; build the corpus with `--tokenizer {init}` to go on from it"
        )
    wanted = learner.state_dict()
    for name, tensor in loaded.learner.state_dict().items():
        if name in wanted and wanted[name].shape != tensor.shape:
            found, asked = tuple(tensor.shape), tuple(wanted[name].shape)
            raise UserError(
                f"{init}: '{name}' has shape {found}, the recipe asks for {asked}; use a recipe of its size"
            )
        if name.startswith("backbone.") and name not in wanted:
            raise UserError(f"{init}: has '{name}', which the recipe's backbone lacks; use a recipe of its size")
    learner.load_state_dict({**wanted, **{k: v for k, v in loaded.learner.state_dict().items() if k in wanted}})


def _restore(
    folder: RunFolder, recipe: Recipe, learner: Learner, optimizer: Any, facts: dict[str, Any], threads: int | None
) -> tuple[loop.State, dict[str, Any]]:
    """Puts the newest checkpoint's weights and optimizer state in place."""
    path, state, saved = folder.latest()
    before = recipes.load(str(path / "recipe.yaml"))
    if saved["corpus"] != facts["corpus"]:
        raise UserError(f"{folder.out} was trained on another corpus; resume with the one it began with")
    if (before.model, before.data) != (recipe.model, recipe.data):
        raise UserError(
            f"{folder.out} was begun with another recipe; resume with --set and recipe unchanged ({path}/recipe.yaml)"
        )
    if threads and threads != saved["threads"]:
        print(f"keel: the run began with {saved['threads']} threads; {threads} give other bits", file=sys.stderr)
        saved["threads"] = threads
    loaded = load_model(path)
    learner.load_state_dict(loaded.learner.state_dict())
    restore_optimizer(optimizer, learner, read_tensors(path, "state"))
    folder.forget_metrics_after(state.step)
    return state, saved


def _guesses(learner: Learner, data: Data, text: str) -> list[str]:
    return [guess["token"] for guess in Model(learner, data.tokenizer, data.corpus.path).fill(text)[0]]


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"--device {name}: not available here; `keel doctor` tells what is") from None
    return device


def _parameters(learner: Learner) -> int:
    return sum(p.numel() for p in learner.parameters())


def _opening(recipe: Recipe, data: Data, learner: Learner, state: loop.State) -> str:
    start = f"resuming at step {state.step:,}" if state.step else "starting"
    plan = recipe.training.budget or f"{recipe.training.steps:,} steps"
    return (
        f"{start}: {recipe.name}, {_parameters(learner):,} parameters; {data.corpus.tokens:,} tokens, "
        f"{len(data.held_out)} held-out batches; {plan} of {recipe.training.batch_tokens:,} tokens a step"
    )


def _card(recipe: Recipe, data: Data) -> str:
    return (
        f"# {recipe.name}\n\n{recipe.description}\n\nPretrained with Keel {__version__} on a corpus of "
        f"{data.corpus.documents:,} documents and {data.corpus.tokens:,} tokens. The complete recipe is in "
        "`recipe.yaml`.\n\n"
        '```python\nimport keel\n\nmodel = keel.load("this-folder")\n'
        'model.fill("Paris is the [MASK] of France.")\nmodel.encode(["a text"])\n```\n\n'
        "The folder also opens in `transformers`, with the class named under `architectures` in `config.json`.\n"
    )


def _report_facts(recipe: Recipe, data: Data, learner: Learner, state: loop.State) -> dict[str, Any]:
    return {
        "title": f"Pretraining {recipe.name}",
        "recipe": recipe.name,
        "parameters": _parameters(learner),
        "corpus": f"{data.corpus.documents:,} documents, {data.corpus.tokens:,} tokens",
        "steps": state.step,
        "tokens seen": state.tokens,
        "seconds": round(state.elapsed),
        "tokens per second": round(state.tokens / max(1e-9, state.elapsed)),
    }


def _last_evaluation(folder: RunFolder) -> dict[str, Any]:
    entries = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    last = [e for e in entries if e["kind"] == "evaluation"][-1:]
    return {k: v for e in last for k, v in e.items() if "." in k or k == "loss"}


def _resume_command(corpus: str, out: str, device: str) -> str:
    words = ["keel", "pretrain", f"{out}/recipe.yaml", "--corpus", corpus, "--out", out, "--resume"]
    return shlex.join(words + (["--device", device] if device != "auto" else []))
