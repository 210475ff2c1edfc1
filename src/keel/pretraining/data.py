"""The corpus as a pretraining run reads it: the rows that `keel pretrain` trains on and `keel corpus inspect` shows.

In: a recipe and a corpus folder. Out: streams of rows by phase, and the fixed rows of the held-out documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keel import recipe as recipes
from keel.catalog import find
from keel.configs import ObjectiveConfig
from keel.corpus.store import Corpus
from keel.corpus.stream import Cursor, Stream
from keel.errors import UserError
from keel.hugging_face.cache import find_folder
from keel.randomness import seed_of
from keel.recipe import Recipe
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer
from keel.values import Rows


@dataclass(frozen=True)
class Data:
    """The corpus as this run reads it: streams by phase, and the held-out batches' rows."""

    corpus: Corpus
    tokenizer: LibraryTokenizer
    streams: dict[str, Stream]
    held_out: list[Rows]
    recipe: Recipe
    evaluated: dict[str, ObjectiveConfig]  # objectives of held-out losses, with the settings of the evaluation recipe

    def micro_batches(self, progress: float, cursors: dict[str, Cursor]) -> tuple[list[Rows], dict[str, Cursor]]:
        """The next step's rows, divided into micro-batches of about the same number of tokens."""
        training, phase = self.recipe.training, self._phase(progress)
        rows, cursor = self.streams[phase].take(cursors.get(phase, Cursor()), training.batch_tokens)
        count = min(training.micro_batches, len(rows.lengths))
        deals = [rows.pick(range(i, len(rows.lengths), count)) for i in range(count)]
        return deals, {**cursors, phase: cursor}

    def _phase(self, progress: float) -> str:
        phase = self.recipe.data.long_phase
        return "long" if phase and progress >= 1 - phase.fraction else "main"


def open_data(recipe: Recipe, corpus_path: str, tokenizer_path: str | None) -> Data:
    """Opens and verifies the corpus, and sets the vocabulary's size in the recipe."""
    corpus = Corpus.open(Path(corpus_path))
    tokenizer = open_tokenizer(corpus.tokenizer_path)
    if tokenizer_path and open_tokenizer(find_folder(tokenizer_path)).fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"{corpus_path} was built with another tokenizer than {tokenizer_path}; leave --tokenizer out to use the "
            "corpus' own, or build a corpus with this one"
        )
    recipe = recipe.for_tokenizer(tokenizer.size, tokenizer.pad)
    all_documents = np.arange(corpus.documents)
    kept, held = all_documents[~corpus.held_out], all_documents[corpus.held_out]
    if recipe.data.packing == "pairs" and not _differ(corpus, kept):
        raise UserError(
            f"{corpus_path}: has {len(kept)} training documents, none different from the others; pairs need two"
        )
    streams = {"main": _stream(corpus, tokenizer, kept, kept, recipe, recipe.data.length)}
    if recipe.data.long_phase:
        streams["long"] = _stream(corpus, tokenizer, kept, kept, recipe, recipe.data.long_phase.length)
    # With a single held-out document, the random second segments of pairs come from all documents.
    pool = held if _differ(corpus, held) else all_documents
    used, evaluated = find_eval_recipe(recipe)
    rows = []
    if len(held):
        rows = _evaluation_rows(_stream(corpus, tokenizer, held, pool, used, used.data.length), used)
    return Data(corpus, tokenizer, streams, rows, recipe, evaluated)


def find_eval_recipe(recipe: Recipe) -> tuple[Recipe, dict[str, ObjectiveConfig]]:
    """The recipe that packs and masks the held-out rows, and the objectives that are evaluated on them."""
    own = dict(recipe.model.objectives)
    if recipe.data.eval_recipe is None:
        return recipe, own
    used = recipes.load(recipe.data.eval_recipe)
    shared = {name: options for name, options in used.model.objectives.items() if name in own}
    if not shared:  # none of its objectives can be evaluated with that recipe
        return recipe, own
    longest = recipe.model.backbone.max_length
    if used.data.length > longest:
        raise UserError(
            f"data.eval_recipe={used.name} has rows of {used.data.length} tokens, but {recipe.name} reads at most "
            f"{longest}; choose another recipe"
        )
    return used, shared


def _differ(corpus: Corpus, documents: np.ndarray) -> bool:
    """Whether there are two documents of different content among these."""
    hashes = corpus.hashes[documents]
    return bool((hashes != hashes[:1]).any())


def _stream(
    corpus: Corpus, tokenizer: LibraryTokenizer, documents: np.ndarray, pool: np.ndarray, recipe: Recipe, length: int
) -> Stream:
    kind = find("packers", recipe.data.packing)
    options = {k: v for k, v in recipe.data.model_dump().items() if k in kind.Config.model_fields}
    packer = kind(kind.Config(**options), corpus, pool, length)
    return Stream(corpus, documents, packer, tokenizer, seed_of(recipe.training.seed, length), recipe.data.static_masks)


def _evaluation_rows(stream: Stream, recipe: Recipe) -> list[Rows]:
    """The first rows of the held-out documents, always the same; at most about one epoch."""
    batches, cursor, left = [], Cursor(), recipe.training.evaluation_tokens
    while left > 0 and cursor.epoch == 0:
        rows, cursor = stream.take(cursor, min(left, recipe.training.batch_tokens // recipe.training.micro_batches))
        batches.append(rows)
        left -= len(rows.ids)
    return batches
