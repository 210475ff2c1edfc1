"""What a pretrained model makes of held-out text: its losses, by token and by character.

In: a learner and a corpus' held-out rows, hidden as a recipe hides them. Out: figures that a run logs, and that
`keel evaluate MODEL --corpus DIR` prints for any model.

Notable choices
- Losses by token cannot be compared between vocabularies: longer tokens are fewer and harder. Divided by the characters
  the tokens stand for they can, on the same documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from keel import recipe as recipes
from keel.catalog import find
from keel.corpus.choose import ordinary_tokens
from keel.errors import UserError
from keel.interfaces import Batch, Rows
from keel.stages.data import Data, open_data
from keel.stages.run import find_device
from keel.tokenizers.library import LibraryTokenizer
from keel.training import loop
from keel.training.learner import Learner
from keel.training.machine import prepare_cpu
from keel.training.model_folder import assemble, load_model

# By what a model can be asked, the recipe that asks it; the first it has.
JUDGES = {
    "masked_lm": "roberta-mini",
    "left_to_right": "gpt-mini",
    "both_ways": "elmo-mini",
    "skip_gram": "word2vec",
    "cbow": "word2vec-cbow",
}
WINDOWS = ("skip_gram", "cbow")  # whose losses are over pairs, not over the tokens of a text


def evaluate_on_corpus(
    model: str, corpus: str, *, judge: str | None = None, device: str = "auto", allow_pickle: bool = False
) -> dict[str, Any]:
    """A model's figures on a corpus' held-out documents; `judge` is the recipe that packs and hides them."""
    prepare_cpu()
    loaded = load_model(model, pickle=allow_pickle)
    able = [name for name in JUDGES if name in loaded.learner.objectives]
    if judge is None and not able:
        raise UserError(f"{model}: has no language-model head, so there is no loss to take; go on with keel pretrain")
    recipe = recipes.load(judge or JUDGES[able[0]])
    asked = {name: value for name, value in recipe.model.objectives.items() if name in loaded.learner.objectives}
    if not asked:
        raise UserError(f"{model}: has no head for {', '.join(recipe.model.objectives)}, which {recipe.name} asks")
    config = loaded.learner.backbone.config
    length = min(recipe.data.length, getattr(config, "positions", recipe.data.length))
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"length": length})})
    recipe = recipe.with_backbone(config.model_copy(update={"vocabulary": None}), model)
    data = open_data(recipe, corpus, None)
    if data.tokenizer.fingerprint() != loaded.tokenizer.fingerprint():
        raise UserError(f"{corpus} was built with another tokenizer than {model}; build one with --tokenizer {model}")
    if not data.held_out:
        raise UserError(f"{corpus}: no document is held out; build it with --held-out 0.01")
    data = replace(data, recipe=data.recipe.with_backbone(config, model), judged=asked)
    where = find_device(device)
    figures = loop.evaluate(*hide_held_out(loaded.learner.to(where), data, where))
    tokens, characters = _count(data.held_out, data.tokenizer)
    losses = {name: figures[f"{name}.loss"] for name in asked if name in JUDGES and name not in WINDOWS}
    return {
        "model": model,
        "corpus": corpus,
        "judge": f"{recipe.name}, rows of {length}",
        "tokens": tokens,
        "characters": characters,
        **{k: v for k, v in figures.items() if "." in k},
        **{f"{name}.loss_per_character": loss * tokens / characters for name, loss in losses.items()},
    }


def hide_held_out(learner: Learner, data: Data, device: torch.device) -> tuple[Learner, list[Batch]]:
    """What is asked of the learner by held-out rows, and the rows with the answers hidden as the judge hides them."""
    config = data.recipe.model.backbone
    with torch.device("meta"):  # hiding needs the objectives' settings, not their weights
        hider = assemble(find("backbones", config.kind)(config), dict(data.judged))  # type: ignore[attr-defined]
    asked = {name: learner.objectives[name] for name in data.judged}
    judged = Learner(learner.backbone, asked)  # type: ignore[arg-type]
    return judged, [hider.prepare(rows, data.tokenizer, device) for rows in data.held_out]


def _count(batches: list[Rows], tokenizer: LibraryTokenizer) -> tuple[int, int]:
    """The tokens that can be asked about, and the characters they stand for."""
    tokens = characters = 0
    for rows in batches:
        ids = rows.ids[ordinary_tokens(rows, tokenizer)]
        tokens += len(ids)
        characters += len(tokenizer.decode(ids))
    return tokens, max(1, characters)
