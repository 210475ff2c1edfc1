"""`keel pretrain`: a recipe and a corpus -> a model folder.

In: recipe, corpus, out. Out: the folder described in `training/run_folder.py`, a report page, and the last held-out
metrics.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keel import __version__
from keel import recipe as recipes
from keel.catalog import find
from keel.console import path_argument, shell_command
from keel.errors import UserError
from keel.files.folders import write_folder
from keel.hugging_face.folder import LoadedModel, load_model, save_model
from keel.hugging_face.known import family_of
from keel.inference.model import Model
from keel.learner.build import fresh_learner
from keel.learner.learner import Learner
from keel.machine import find_device, prepare_cpu
from keel.pretraining.data import Data, open_data
from keel.pretraining.held_out import prepare_held_out
from keel.pretraining.plateau import LEVEL, Plateau, advice, remark
from keel.recipe import Recipe
from keel.reporting.report import write_report
from keel.tokenizers.library import LibraryTokenizer
from keel.training import loop
from keel.training.callbacks import Callback, Callbacks
from keel.training.run import RunOptions, RunPlan, parameters, run
from keel.training.run_folder import RunFolder
from keel.training.state import State
from keel.values import Batch


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
    track: str | None = None,
    on_step: Callback | None = None,
    on_evaluate: Callback | None = None,
) -> dict[str, Any]:
    """Trains, or resumes training, and returns the last held-out metrics.

    `init` is a model to start from: its architecture and weights replace the recipe's backbone and its fresh weights.
    `blanks` are texts with [MASK], filled before and after training for the report page. `on_step` and `on_evaluate`
    get the entries of `metrics.jsonl`, `on_step` one for every step; one that returns False ends the run as if it were
    complete, and the result then has `ended_by_callback`. `track` names a tracker, such as tensorboard.
    """
    began = time.monotonic()
    if not resume:
        RunFolder(Path(out)).check_new()
    prepare_cpu()
    where, callbacks = find_device(device), Callbacks(on_step, on_evaluate)
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
    given = list(overrides) + ([f"training.budget={budget}"] if budget else [])
    data, loaded = _read(recipe, given, corpus, tokenizer, init, allow_pickle)
    learner = _fresh(data)
    if loaded:
        _start_from(learner, loaded)
    learner.to(where)
    before = {text: _predictions(learner, data, text) for text in blanks}
    evaluated, held_out = prepare_held_out(learner, data, where)
    plateau = Plateau.of(learner, data, held_out)
    command = _resume_command(corpus, out, device, init, track)
    published = loaded is not None and not loaded.pretrained_here
    state, folder, facts = run(_plan(learner, data, evaluated, held_out, plateau, command, published), options)
    fills = [{"text": t, "before": before[t], "after": _predictions(learner, data, t)} for t in blanks]
    result = _write_results(folder, data, learner, state, plateau, fills)
    folder.finish(facts)
    return {"out": out, **result, **callbacks.result(), **({"fills": fills} if fills else {})}


def _read(
    recipe: str | Recipe, given: list[str], corpus: str, tokenizer: str | None, init: str | None, allow_pickle: bool
) -> tuple[Data, LoadedModel | None]:
    """The corpus as the recipe reads it, and the model to start from."""
    if isinstance(recipe, str):
        recipe = recipes.load(recipe, given)
    if not init:
        return open_data(recipe, corpus, tokenizer), None
    loaded = load_model(init, pickle=allow_pickle)
    config = loaded.learner.backbone.config
    data = open_data(recipe.with_backbone(config.model_copy(update={"vocabulary": None}), init), corpus, tokenizer)
    _check_tokenizer(loaded, data.tokenizer)
    return replace(data, recipe=data.recipe.with_backbone(config, init)), loaded


def save_untrained(recipe: str, corpus: str, out: str) -> None:
    """Saves the model a recipe starts from, as a baseline for the trained one."""
    data = open_data(recipes.load(recipe), corpus, None)
    learner = _fresh(data)
    with write_folder(Path(out), {"keel": "untrained", "recipe": recipe}) as folder:
        save_model(folder, learner, data.tokenizer, f"# {recipe}, untrained\n")


def _same(recipe: Recipe, path: Path) -> bool:
    """Whether a checkpoint's recipe has the same model and data; the training settings may differ."""
    before = recipes.load(str(path))
    return (before.model, before.data) == (recipe.model, recipe.data)


def _fresh(data: Data) -> Learner:
    """A learner with fresh weights, attached to its tokenizer and corpus."""
    model = data.recipe.model
    learner = fresh_learner(model.backbone, model.objectives, data.recipe.training.seed)
    count_tokens = functools.cache(lambda: data.corpus.count_tokens(data.tokenizer.size))
    try:
        learner.attach_corpus(data.tokenizer, count_tokens)
    except UserError as error:  # objectives cannot name the corpus
        raise UserError(f"{data.corpus.path}: {error}") from None
    return learner


def _plan(
    learner: Learner,
    data: Data,
    evaluated: Learner,
    held_out: list[Batch],
    plateau: Plateau,
    resume_command: str,
    published_start: bool,
) -> RunPlan:
    recipe = data.recipe

    def evaluate(parts: int) -> dict[str, float]:
        figures = loop.evaluate(evaluated, held_out[:parts])
        share = {"held_out_share": round(parts / len(held_out), 4)} if parts < len(held_out) else {}
        return figures | plateau.figures(figures, parts) | share

    return RunPlan(
        verb="pretrain",
        learner=learner,
        tokenizer=data.tokenizer,
        settings=recipe.training,
        source=data.micro_batches,
        evaluate=evaluate,
        evaluation_parts=len(held_out),
        remark=remark,
        data=data.corpus.fingerprint,
        recipe_yaml=recipe.to_yaml(),
        same_recipe=lambda path: _same(recipe, path),
        card=_card(recipe, data),
        opening=_opening(recipe, data, learner),
        resume_command=resume_command,
        published_start=published_start,
    )


def _check_tokenizer(loaded: LoadedModel, tokenizer: LibraryTokenizer) -> None:
    if loaded.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"{loaded.path} has another tokenizer than the corpus; build the corpus with `--tokenizer {loaded.path}` "
            "to continue training it"
        )


def _start_from(learner: Learner, loaded: LoadedModel) -> None:
    """Copies the weights of another model, including those of heads that the recipe has too."""
    fresh, there = learner.state_dict(), loaded.learner.state_dict()
    fitting = {name: t for name, t in there.items() if name in fresh and t.shape == fresh[name].shape}
    fitting = {name: t for name, t in fitting.items() if not name.endswith(".counts")}  # keep this corpus's counts
    learner.load_state_dict({**fresh, **fitting})


def _write_results(
    folder: RunFolder, data: Data, learner: Learner, state: State, plateau: Plateau, fills: list[dict[str, Any]]
) -> dict[str, Any]:
    """Writes the report page; returns what the command prints."""
    figures = _last_figures(folder, plateau, data.recipe.model.backbone.kind)
    facts = _report_facts(data.recipe, data, learner, state) | {"plateau": figures.get("advice")}
    write_report(folder.out, facts=facts, fills=fills, use=_other_use(data.recipe))
    return {"step": state.step, "seconds": round(state.elapsed, 1), **figures}


def _last_figures(folder: RunFolder, plateau: Plateau, kind: str) -> dict[str, Any]:
    """The last held-out metrics, and whether the run ended on the plateau: without held-out rows, by its training."""
    kept = ("loss", LEVEL, "plateau")
    figures = {k: v for k, v in folder.last_entry("evaluation").items() if "." in k or k in kept}
    if LEVEL not in figures:
        figures |= plateau.figures(folder.last_entry("train"))
    return figures | ({"advice": advice(kind)} if figures.get("plateau") else {})


def _predictions(learner: Learner, data: Data, text: str) -> list[str]:
    return [predicted["token"] for predicted in Model(learner, data.tokenizer, data.corpus.path).fill(text)[0]]


def _opening(recipe: Recipe, data: Data, learner: Learner) -> str:
    plan = recipe.training.budget or f"{recipe.training.steps:,} steps"
    return (
        f"{recipe.name}, {parameters(learner):,} parameters; {data.corpus.tokens:,} tokens, "
        f"{len(data.held_out)} held-out batches; {plan} of {recipe.training.batch_tokens:,} tokens a step"
    )


def _other_use(recipe: Recipe) -> tuple[str, str] | None:
    """How to use a model that does not fill masks: a verb with its arguments, and a line of Python."""
    if "masked_lm" in recipe.model.objectives:
        return None
    if "causal_lm" in recipe.model.objectives:
        return 'generate "The harbour was"', 'print(model.generate("The harbour was"))'
    return "embed --file texts.txt --out vectors.npy", 'print(model.embed(["one text", "another"]).shape)'


def _card(recipe: Recipe, data: Data) -> str:
    other = _other_use(recipe)
    known_there = family_of(find("backbones", recipe.model.backbone.kind)).heads
    example = (
        other[1] if other else f'model.fill("Paris is the {data.tokenizer.shown(data.tokenizer.mask)} of France.")'
    )
    return (
        f"# {recipe.name}\n\n{recipe.description}\n\nPretrained with Keel {__version__} on a corpus of "
        f"{data.corpus.documents:,} documents and {data.corpus.tokens:,} tokens. The complete recipe is in "
        "`recipe.yaml`.\n\n"
        f'```python\nimport keel\n\nmodel = keel.load("this-folder")\n{example}\nmodel.encode(["a text"])\n```\n'
    ) + (
        "\nThe folder can also be loaded with `transformers`, as the class that `config.json` names.\n"
        if known_there
        else ""
    )


def _report_facts(recipe: Recipe, data: Data, learner: Learner, state: State) -> dict[str, Any]:
    return {
        "title": f"Pretraining {recipe.name}",
        "recipe": recipe.name,
        "parameters": parameters(learner),
        "corpus": f"{data.corpus.documents:,} documents, {data.corpus.tokens:,} tokens",
        "steps": state.step,
        "tokens seen": state.tokens,
        "seconds": round(state.elapsed),
        "tokens per second": round(state.tokens / max(1e-9, state.elapsed)),
    }


def _resume_command(corpus: str, out: str, device: str, init: str | None, track: str | None) -> str:
    corpus, out = path_argument(corpus), path_argument(out)
    words = ["keel", "pretrain", f"{out}/recipe.yaml", "--corpus", corpus, "--out", out, "--resume"]
    words += ["--device", device] if device != "auto" else []
    words += ["--track", track] if track else []
    return shell_command(words + (["--init", path_argument(init)] if init else []))
