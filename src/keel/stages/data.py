"""The corpus as a pretraining run reads it: what `keel pretrain` learns from and `keel corpus inspect` shows.

In: a recipe and a corpus folder. Out: streams of rows by phase, and the fixed rows of the held-out documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from keel import recipe as recipes
from keel.catalog import find
from keel.corpus.pack_order import OrderPacker
from keel.corpus.pack_pairs import PairPacker
from keel.corpus.pack_sentences import SentencePacker
from keel.corpus.plan import Packer
from keel.corpus.store import Corpus
from keel.corpus.stream import Cursor, Stream
from keel.errors import UserError
from keel.interfaces import Rows
from keel.randomness import seed_of
from keel.recipe import DataSection, Recipe
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer


@dataclass(frozen=True)
class Data:
    """The corpus as this run reads it: streams by phase, and the held-out batches' rows."""

    corpus: Corpus
    tokenizer: LibraryTokenizer
    streams: dict[str, Stream]
    held_out: list[Rows]
    recipe: Recipe
    judged: dict[str, BaseModel]  # the objectives that held-out figures are about, as the judge hides their answers

    def slices(self, progress: float, cursors: dict[str, Cursor]) -> tuple[list[Rows], dict[str, Cursor]]:
        """The next step's rows, dealt to its slices so that all have about the same number of tokens."""
        training, phase = self.recipe.training, self._phase(progress)
        rows, cursor = self.streams[phase].take(cursors.get(phase, Cursor()), training.batch_tokens)
        count = min(training.slices, len(rows.lengths))
        deals = [rows.pick(range(i, len(rows.lengths), count)) for i in range(count)]
        return deals, {**cursors, phase: cursor}

    def _phase(self, progress: float) -> str:
        phase = self.recipe.data.long_phase
        return "long" if phase and progress >= 1 - phase.share else "main"


def open_data(recipe: Recipe, corpus_path: str, tokenizer_path: str | None) -> Data:
    """Opens and verifies the corpus, and settles the vocabulary's size in the recipe."""
    corpus = Corpus.open(Path(corpus_path))
    tokenizer = open_tokenizer(corpus.tokenizer_path)
    if tokenizer_path and open_tokenizer(Path(tokenizer_path)).fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"{corpus_path} was built with another tokenizer than {tokenizer_path}; leave --tokenizer out to use the "
            "corpus' own, or build a corpus with this one"
        )
    _check_mask(recipe, tokenizer, corpus_path)
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
    # A single held-out document has no foreign text among its own kind; it borrows from the others.
    pool = held if _differ(corpus, held) else all_documents
    judge, judged = find_judge(recipe)
    rows = []
    if len(held):
        rows = _evaluation_rows(_stream(corpus, tokenizer, held, pool, judge, judge.data.length), judge)
    return Data(corpus, tokenizer, streams, rows, recipe, judged)


def _check_mask(recipe: Recipe, tokenizer: LibraryTokenizer, corpus_path: str) -> None:
    hiding = [name for name in recipe.model.objectives if find("objectives", name).shows_mask]
    if hiding and tokenizer.mask < 0:
        raise UserError(
            f"{corpus_path}: its tokenizer has no mask token, which {hiding[0]} needs; use a left-to-right recipe, or "
            "a corpus built with another tokenizer"
        )


def find_judge(recipe: Recipe) -> tuple[Recipe, dict[str, BaseModel]]:
    """The recipe that held-out rows are made by, and the objectives they ask of this one."""
    own = dict(recipe.model.objectives)
    if recipe.data.judge is None:
        return recipe, own
    judge = recipes.load(recipe.data.judge)
    shared = {name: options for name, options in judge.model.objectives.items() if name in own}
    if not shared:  # a model of another kind can only be asked its own question
        return recipe, own
    positions = getattr(recipe.model.backbone, "positions", judge.data.length)
    if judge.data.length > positions:
        raise UserError(
            f"data.judge={judge.name} has rows of {judge.data.length} tokens, {recipe.name} reads {positions} at most"
        )
    return judge, shared


def _differ(corpus: Corpus, documents: np.ndarray) -> bool:
    """Whether there are two documents of different content among these."""
    hashes = corpus.hashes[documents]
    return bool((hashes != hashes[:1]).any())


def _stream(
    corpus: Corpus, tokenizer: LibraryTokenizer, documents: np.ndarray, pool: np.ndarray, recipe: Recipe, length: int
) -> Stream:
    packer = _packer(corpus, pool, recipe.data, length)
    return Stream(corpus, documents, packer, tokenizer, seed_of(recipe.training.seed, length), recipe.data.copies)


def _packer(corpus: Corpus, pool: np.ndarray, data: DataSection, length: int) -> Packer:
    if data.packing == "pairs":
        return PairPacker(corpus, pool, length, data.short_share, data.random_share)
    if data.packing == "order":
        return OrderPacker(corpus, length, data.short_share)
    return SentencePacker(corpus, length, data.short_share, data.packing == "full-sentences")


def _evaluation_rows(stream: Stream, recipe: Recipe) -> list[Rows]:
    """The first rows of the held-out documents, always the same; about one epoch of them at the most."""
    batches, cursor, left = [], Cursor(), recipe.training.evaluation_tokens
    while left > 0 and cursor.epoch == 0:
        rows, cursor = stream.take(cursor, min(left, recipe.training.batch_tokens // recipe.training.slices))
        batches.append(rows)
        left -= len(rows.ids)
    return batches
