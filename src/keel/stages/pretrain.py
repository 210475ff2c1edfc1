"""`keel pretrain`: a recipe and a corpus -> a model folder.

In: recipe, corpus, out. Out: the folder described in training/run_folder.py, a report page, and the last figures.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from keel import __version__
from keel import recipe as recipes
from keel.catalog import find
from keel.checkpoint import write_folder
from keel.errors import UserError
from keel.layers.start import start_weights
from keel.randomness import seed_of
from keel.recipe import Recipe
from keel.reporting.report import write_report
from keel.stages.data import Data, open_data
from keel.stages.held_out import hide_held_out
from keel.stages.model import Model
from keel.stages.run import Plan, find_device, last_evaluation, parameters, run
from keel.tokenizers.library import LibraryTokenizer
from keel.training import loop
from keel.training.learner import Learner
from keel.training.machine import prepare_cpu
from keel.training.model_folder import Loaded, assemble, load_model, save_model
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

    `init` is a model to start from: its shape and weights instead of the recipe's backbone at fresh ones.
    `blanks` are texts with [MASK], filled before and after training for the report page.
    """
    began = time.monotonic()
    if not resume:
        RunFolder(Path(out)).check_new()
    prepare_cpu()
    where = find_device(device)
    given = list(overrides) + ([f"training.budget={budget}"] if budget else [])
    if isinstance(recipe, str):
        recipe = recipes.load(recipe, given)
    loaded = load_model(init, pickle=allow_pickle) if init else None
    if loaded:
        recipe = recipe.with_backbone(loaded.learner.backbone.config.model_copy(update={"vocabulary": None}), str(init))
    data = open_data(recipe, corpus, tokenizer)
    if loaded:
        _check_tokenizer(loaded, data.tokenizer)
        data = replace(data, recipe=data.recipe.with_backbone(loaded.learner.backbone.config, str(init)))
    recipe = data.recipe
    learner = build_learner(recipe)
    _introduce(learner, data)
    if loaded:
        _start_from(learner, loaded)
    learner.to(where)
    before = [_guesses(learner, data, text) for text in blanks]
    judged, held_out = hide_held_out(learner, data, where)
    plan = Plan(
        "pretrain",
        learner,
        data.tokenizer,
        recipe.training,
        data.slices,
        lambda: loop.evaluate(judged, held_out) if held_out else {},
        data.corpus.fingerprint,
        recipe.to_yaml(),
        lambda path: _same(recipe, path),
        _card(recipe, data),
        _opening(recipe, data, learner),
        _resume_command(corpus, out, device, init),
    )
    state, folder, facts = run(plan, out, where, resume=resume, threads=threads, quiet=quiet, began=began)
    after = [_guesses(learner, data, text) for text in blanks]
    fills = [{"text": t, "before": b, "after": a} for t, b, a in zip(blanks, before, after, strict=True)]
    facts_shown = _report_facts(recipe, data, learner, state)
    write_report(Path(out), facts=facts_shown, fills=fills, use=_other_use(recipe))
    folder.finish(facts)
    result = {"out": out, "step": state.step, "seconds": round(state.elapsed, 1), **last_evaluation(folder)}
    return result | ({"fills": fills} if fills else {})


def save_untrained(recipe: str, corpus: str, out: str) -> None:
    """The model a recipe starts from, as a folder: what a trained one is to be compared with."""
    data = open_data(recipes.load(recipe), corpus, None)
    learner = build_learner(data.recipe)
    _introduce(learner, data)
    with write_folder(Path(out), {"keel": "untrained", "recipe": recipe}) as folder:
        save_model(folder, learner, data.tokenizer, f"# {recipe}, untrained\n")


def _same(recipe: Recipe, path: Path) -> bool:
    """Whether a checkpoint's recipe learns the same from the same; how long and how fast may change."""
    before = recipes.load(str(path))
    return (before.model, before.data) == (recipe.model, recipe.data)


def build_learner(recipe: Recipe) -> Learner:
    """A learner at fresh weights."""
    config = recipe.model.backbone
    backbone = find("backbones", config.kind)(config)  # type: ignore[attr-defined]
    learner = assemble(backbone, dict(recipe.model.objectives))
    generator = torch.Generator().manual_seed(seed_of(recipe.training.seed, WEIGHTS))
    backbone.start(generator)
    for objective in learner.objectives.values():
        start_weights(objective, backbone.config.start_deviation, generator)
        objective.begin(generator)  # type: ignore[operator]
    return learner


def _introduce(learner: Learner, data: Data) -> None:
    """Tells the backbone of the tokenizer, and objectives of the corpus' counts where they want them."""
    learner.backbone.meet(data.tokenizer)
    curious = [objective for objective in learner.objectives.values() if objective.wants_counts]
    counts = data.corpus.count_tokens(data.tokenizer.size) if curious else None
    for objective in curious:
        objective.meet(counts, data.tokenizer)  # type: ignore[operator]


def _check_tokenizer(loaded: Loaded, tokenizer: LibraryTokenizer) -> None:
    if loaded.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"{loaded.path} has another tokenizer than the corpus; build the corpus with `--tokenizer {loaded.path}` "
            "to go on from it"
        )


def _start_from(learner: Learner, loaded: Loaded) -> None:
    """The weights of another model, heads included where the recipe has them."""
    fresh, there = learner.state_dict(), loaded.learner.state_dict()
    fitting = {name: t for name, t in there.items() if name in fresh and t.shape == fresh[name].shape}
    fitting = {name: t for name, t in fitting.items() if not name.endswith(".counts")}  # those of this corpus stay
    learner.load_state_dict({**fresh, **fitting})


def _guesses(learner: Learner, data: Data, text: str) -> list[str]:
    return [guess["token"] for guess in Model(learner, data.tokenizer, data.corpus.path).fill(text)[0]]


def _opening(recipe: Recipe, data: Data, learner: Learner) -> str:
    plan = recipe.training.budget or f"{recipe.training.steps:,} steps"
    return (
        f"{recipe.name}, {parameters(learner):,} parameters; {data.corpus.tokens:,} tokens, "
        f"{len(data.held_out)} held-out batches; {plan} of {recipe.training.batch_tokens:,} tokens a step"
    )


def _other_use(recipe: Recipe) -> tuple[str, str] | None:
    """What a model that does not fill masks is for: a verb with its arguments, and a line of Python."""
    if "masked_lm" in recipe.model.objectives:
        return None
    if "left_to_right" in recipe.model.objectives:
        return 'generate "The harbour was"', 'print(model.generate("The harbour was"))'
    return "embed --file texts.txt --out vectors.npy", 'print(model.embed(["one text", "another"]).shape)'


def _card(recipe: Recipe, data: Data) -> str:
    other = _other_use(recipe)
    there = find("backbones", recipe.model.backbone.kind).published.heads  # type: ignore[attr-defined]
    asked = other[1] if other else f'model.fill("Paris is the {data.tokenizer.shown(data.tokenizer.mask)} of France.")'
    return (
        f"# {recipe.name}\n\n{recipe.description}\n\nPretrained with Keel {__version__} on a corpus of "
        f"{data.corpus.documents:,} documents and {data.corpus.tokens:,} tokens. The complete recipe is in "
        "`recipe.yaml`.\n\n"
        f'```python\nimport keel\n\nmodel = keel.load("this-folder")\n{asked}\nmodel.encode(["a text"])\n```\n'
    ) + ("\nThe folder also opens in `transformers`, as the class that `config.json` names.\n" if there else "")


def _report_facts(recipe: Recipe, data: Data, learner: Learner, state: loop.State) -> dict[str, Any]:
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


def _resume_command(corpus: str, out: str, device: str, init: str | None) -> str:
    words = ["keel", "pretrain", f"{out}/recipe.yaml", "--corpus", corpus, "--out", out, "--resume"]
    words += ["--device", device] if device != "auto" else []
    return shlex.join(words + (["--init", init] if init else []))
