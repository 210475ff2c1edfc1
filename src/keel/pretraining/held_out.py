"""The losses of a pretrained model on held-out text, per token and per character.

In: a learner and the held-out rows of a corpus, masked by a recipe. Out: losses that a run logs, and that
`keel evaluate MODEL --corpus DIR` prints for any model.

Notable choices
- Losses per token cannot be compared between vocabularies: longer tokens are fewer and harder to predict. Losses per
  character can, on the same documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from keel import recipe as recipes
from keel.errors import UserError
from keel.hugging_face.folder import load_model
from keel.learner.build import assemble, make_backbone
from keel.learner.learner import Learner
from keel.learner.no_weights import no_weights
from keel.machine import find_device, prepare_cpu
from keel.objectives._masking import ordinary_tokens
from keel.pretraining.data import Data, open_data
from keel.tokenizers.library import LibraryTokenizer
from keel.training import loop
from keel.values import Batch, Rows

# By objective, the recipe that evaluates it; the first objective that the model has is used.
EVAL_RECIPES = {
    "masked_lm": "roberta-mini",
    "causal_lm": "gpt-mini",
    "bidirectional_lm": "elmo-mini",
    "skip_gram": "word2vec",
    "cbow": "word2vec-cbow",
}
WINDOWS = ("skip_gram", "cbow")  # their losses are over word pairs, not over the tokens of a text


def evaluate_on_corpus(
    model: str, corpus: str, *, eval_recipe: str | None = None, device: str = "auto", allow_pickle: bool = False
) -> dict[str, Any]:
    """A model's losses on the held-out documents of a corpus; `eval_recipe` is the recipe that packs and masks them."""
    prepare_cpu()
    loaded = load_model(model, pickle=allow_pickle)
    able = [name for name in EVAL_RECIPES if name in loaded.learner.objectives]
    if eval_recipe is None and not able:
        raise UserError(
            f"{model}: has no language-model head, so there is no loss to compute; train one with keel pretrain"
        )
    recipe = recipes.load(eval_recipe or EVAL_RECIPES[able[0]])
    evaluated = {name: value for name, value in recipe.model.objectives.items() if name in loaded.learner.objectives}
    if not evaluated:
        raise UserError(f"{model}: has no head for {', '.join(recipe.model.objectives)}, which {recipe.name} evaluates")
    config = loaded.learner.backbone.config
    length = min(recipe.data.length, config.max_length)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"length": length})})
    recipe = recipe.with_backbone(config.model_copy(update={"vocabulary": None}), model)
    data = open_data(recipe, corpus, None)
    if data.tokenizer.fingerprint() != loaded.tokenizer.fingerprint():
        raise UserError(f"{corpus} was built with another tokenizer than {model}; build one with --tokenizer {model}")
    if not data.held_out:
        raise UserError(f"{corpus}: no document is held out; build it with --held-out 0.01")
    data = replace(data, recipe=data.recipe.with_backbone(config, model), evaluated=evaluated)
    where = find_device(device)
    figures = loop.evaluate(*prepare_held_out(loaded.learner.to(where), data, where))
    tokens, characters = _count(data.held_out, data.tokenizer)
    losses = {name: figures[f"{name}.loss"] for name in evaluated if name in EVAL_RECIPES and name not in WINDOWS}
    return {
        "model": model,
        "corpus": corpus,
        "eval_recipe": f"{recipe.name}, rows of {length}",
        "tokens": tokens,
        "characters": characters,
        **{k: v for k, v in figures.items() if "." in k},
        **{f"{name}.loss_per_character": loss * tokens / characters for name, loss in losses.items()},
    }


def prepare_held_out(learner: Learner, data: Data, device: torch.device) -> tuple[Learner, list[Batch]]:
    """The learner with the objectives to evaluate, and the held-out rows, masked by the evaluation recipe."""
    with no_weights():  # masking needs the objectives' settings, not their weights
        masker = assemble(make_backbone(data.recipe.model.backbone), data.evaluated)
    evaluated = Learner(learner.backbone, {name: learner.objectives[name] for name in data.evaluated})
    return evaluated, [masker.prepare(rows, data.tokenizer, device) for rows in data.held_out]


def _count(batches: list[Rows], tokenizer: LibraryTokenizer) -> tuple[int, int]:
    """The number of tokens that can be predicted, and of the characters that they stand for."""
    tokens = characters = 0
    for rows in batches:
        ids = rows.ids[ordinary_tokens(rows, tokenizer)]
        tokens += len(ids)
        characters += len(tokenizer.decode(ids))
    return tokens, max(1, characters)
