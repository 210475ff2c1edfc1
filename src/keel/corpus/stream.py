"""The order in which a run reads the corpus: an endless, seekable stream of rows.

In: a corpus, a packer, a seed. Out: `take(cursor, tokens)` returns the rows of the next step and the cursor after it.
The stream is stateless: row order, packing and row keys are functions of (seed, epoch, block, row), so a run that
resumes from a saved cursor gets exactly the rows it would have had without the interruption.

Notable choice: documents are shuffled per epoch and cut into blocks of about BLOCK_TOKENS; rows are planned and
shuffled block by block. Starting anywhere therefore costs the plan of one block, whatever the size of the corpus.
Rejected: one plan per epoch (its cost and memory grow with the corpus), and a shuffle buffer (it has state).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np

from keel.corpus.row_plan import Packer, RowPlan
from keel.corpus.store import Corpus
from keel.errors import UserError
from keel.interfaces import Tokenizer
from keel.randomness import Draw, mix, seed_of
from keel.values import Rows

BLOCK_TOKENS = 4_000_000


@dataclass(frozen=True)
class Cursor:
    """A position in the stream: the next row to return."""

    epoch: int = 0
    block: int = 0
    row: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class Stream:
    """`static_masks`: after that many epochs the same rows return with the same keys, and therefore the same masks, in
    another order (static masking); None: never (dynamic masking)."""

    def __init__(
        self,
        corpus: Corpus,
        documents: np.ndarray,
        packer: Packer,
        tokenizer: Tokenizer,
        seed: int,
        static_masks: int | None,
    ) -> None:
        self.corpus = corpus
        self.documents = documents
        self.packer = packer
        self.tokenizer = tokenizer
        self.seed = seed
        self.static_masks = static_masks
        self._block = lru_cache(maxsize=2)(self._plan_block)
        self._epoch_blocks = lru_cache(maxsize=1)(self._cut_epoch)

    def take(self, cursor: Cursor, tokens: int) -> tuple[Rows, Cursor]:
        """Rows of at most `tokens` tokens in all (but at least one row), longest first."""
        parts: list[tuple[RowPlan, np.ndarray, np.ndarray]] = []
        room = tokens
        while True:
            plan, order, keys = self._block(cursor.epoch, cursor.block)
            ahead = order[cursor.row :]
            fitting = int(np.searchsorted(np.cumsum(plan.lengths[ahead[: room + 1]]), room, side="right"))
            fitting = fitting or (0 if parts else min(1, len(ahead)))
            chosen = ahead[:fitting]
            if len(chosen):
                parts.append((plan, chosen, keys[chosen]))
                room -= int(plan.lengths[chosen].sum())
            cursor = Cursor(cursor.epoch, cursor.block, cursor.row + fitting)
            if cursor.row < len(order):
                return self._assemble(parts), cursor
            cursor = self._next_block(cursor)

    def _next_block(self, cursor: Cursor) -> Cursor:
        if cursor.block + 1 < len(self._epoch_blocks(cursor.epoch)):
            return Cursor(cursor.epoch, cursor.block + 1, 0)
        return Cursor(cursor.epoch + 1, 0, 0)

    def _cut_epoch(self, epoch: int) -> list[np.ndarray]:
        """The documents of an epoch in random order, cut into blocks."""
        order = np.argsort(mix(self.seed, Draw.DOCUMENT_ORDER, self._version(epoch), self.documents), kind="stable")
        documents = self.documents[order]
        filled = np.cumsum(self.corpus.document_tokens[documents])
        cuts = np.searchsorted(filled, np.arange(BLOCK_TOKENS, filled[-1], BLOCK_TOKENS))
        return [block for block in np.split(documents, np.unique(cuts)) if len(block)]

    def _plan_block(self, epoch: int, block: int) -> tuple[RowPlan, np.ndarray, np.ndarray]:
        """The rows of a block, the order in which they are returned, and their keys."""
        version = self._version(epoch)
        documents = self._epoch_blocks(epoch)[block]
        random = np.random.Generator(np.random.PCG64(seed_of(self.seed, Draw.PACKING, version, block)))
        plan = self.packer.plan(documents, random)
        if not len(plan):
            raise UserError(f"{self.corpus.path}: no rows could be packed; the corpus has no text")
        index = np.arange(len(plan))
        order = np.argsort(mix(self.seed, Draw.ROW_ORDER, epoch, block, index), kind="stable")
        return plan, order, mix(self.seed, Draw.ROW_KEY, version, block, index)

    def _version(self, epoch: int) -> int:
        """Epochs of the same version have the same rows and keys."""
        return epoch % self.static_masks if self.static_masks else epoch

    def _assemble(self, parts: list[tuple[RowPlan, np.ndarray, np.ndarray]]) -> Rows:
        rows = [(plan, int(i), key) for plan, chosen, keys in parts for i, key in zip(chosen, keys, strict=True)]
        rows.sort(key=lambda row: -int(row[0].lengths[row[1]]))
        return assemble(self.corpus, self.tokenizer, rows)


def assemble(corpus: Corpus, tokenizer: Tokenizer, rows: list[tuple[RowPlan, int, np.uint64]]) -> Rows:
    """Reads the tokens of planned rows: [CLS], then each range followed by a [SEP]."""
    cls, sep = np.array([tokenizer.cls]), np.array([tokenizer.sep])
    starts_word = np.array([True])  # special tokens count as words
    ids, starts, segments, special = [], [], [], []
    for plan, number, _ in rows:
        ids.append(cls)
        starts.append(starts_word)
        sizes = []
        for a, b in plan.row(number):
            ids += [corpus.ids(a, b), sep]
            starts += [corpus.word_starts(a, b), starts_word]
            sizes.append(b - a + 1)
        length = 1 + sum(sizes)
        segments.append(
            np.repeat(range(len(sizes)), [1 + sizes[0], *sizes[1:]]) if plan.segmented else np.zeros(length)
        )
        is_special = np.zeros(length, bool)
        is_special[np.cumsum([0, *sizes])] = True
        special.append(is_special)
    answers = {name: np.array([plan.answers[name][number] for plan, number, _ in rows]) for name in rows[0][0].answers}
    return Rows(
        np.concatenate(ids).astype(np.int64),
        tuple(int(plan.lengths[number]) for plan, number, _ in rows),
        np.concatenate(segments).astype(np.int64),
        np.concatenate(special),
        np.concatenate(starts),
        np.array([key for _, _, key in rows], dtype=np.uint64),
        answers,
    )
