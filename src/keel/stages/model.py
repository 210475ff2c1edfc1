"""`keel.load(path)`: a model you can ask.

In: texts. Out: `fill` gives ranked guesses for each [MASK], `encode` one array of token vectors per text.

Notable choices
- Texts are encoded in order of length, in flat batches of a fixed number of tokens, and answered in the given order:
  no padding, and memory does not grow with the number of texts.
- A text longer than the model's positions is an error here, not a silent cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel.errors import UserError
from keel.interfaces import Batch, Rows
from keel.tokenizers.wordpiece import WordPiece
from keel.training.learner import Learner
from keel.training.machine import prepare_cpu
from keel.training.model_folder import load_model

BATCH_TOKENS = 4096


class Model:
    def __init__(self, learner: Learner, tokenizer: WordPiece, path: Path) -> None:
        self.learner = learner.eval()
        self.tokenizer = tokenizer
        self.path = path

    @staticmethod
    def load(path: str | Path, allow_pickle: bool = False) -> Model:
        prepare_cpu()
        loaded = load_model(path, pickle=allow_pickle)
        return Model(loaded.learner, loaded.tokenizer, loaded.path)

    def fill(self, text: str, top: int = 5) -> list[list[dict[str, Any]]]:
        """One ranked list of guesses per [MASK]."""
        if "masked_lm" not in self.learner.objectives:
            raise UserError(f"{self.path}: this model has no masked-language-model head, so it cannot fill blanks")
        ids, _ = self.tokenizer.encode_with_offsets(text)
        row = self._framed(np.asarray(ids), text)
        places = np.flatnonzero(row == self.tokenizer.mask)
        if not len(places):
            raise UserError(f"there is no {self.tokenizer.token(self.tokenizer.mask)} in the text: {_short(text)}")
        batch = Batch.of(self._rows([row]), {"masked_lm.places": places})
        with torch.inference_mode():
            objective: Any = self.learner.objectives["masked_lm"]
            chances = objective.predict(self.learner.backbone, batch).softmax(-1)
        best = chances.topk(min(top, chances.shape[-1]))
        return [
            [
                {"token": self.tokenizer.token(int(i)), "id": int(i), "probability": float(p)}
                for p, i in zip(row_p, row_i, strict=True)
            ]
            for row_p, row_i in zip(best.values, best.indices, strict=True)
        ]

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """One (tokens, width) array per text, [CLS] and [SEP] included."""
        if isinstance(texts, str):
            raise UserError("encode takes a list of texts; write encode([text]) for one")
        rows = [self._framed(ids, text) for ids, text in zip(self.tokenizer.encode(texts), texts, strict=True)]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        answers: list[np.ndarray] = [np.zeros(0)] * len(rows)
        with torch.inference_mode():
            for group in _by_tokens(order, rows):
                batch = Batch.of(self._rows([rows[i] for i in group]), {})
                vectors = self.learner.backbone(batch).vectors.numpy()
                stops = np.cumsum(batch.lengths)
                for i, part in zip(group, np.split(vectors, stops[:-1]), strict=True):
                    answers[i] = part
        return answers

    def _framed(self, ids: np.ndarray, text: str) -> np.ndarray:
        row = np.concatenate([[self.tokenizer.cls], ids, [self.tokenizer.sep]]).astype(np.int64)
        longest = self.learner.backbone.longest
        if len(row) > longest:
            raise UserError(
                f"a text of {len(row)} tokens is longer than this model's {longest} positions: {_short(text)}"
            )
        return row

    def _rows(self, rows: list[np.ndarray]) -> Rows:
        flat = np.concatenate(rows)
        none = np.zeros(len(flat), bool)
        lengths = tuple(len(row) for row in rows)
        return Rows(flat, lengths, np.zeros_like(flat), none, none, np.zeros(len(rows), np.uint64))


def _by_tokens(order: list[int], rows: list[np.ndarray]) -> list[list[int]]:
    groups: list[list[int]] = []
    filled = BATCH_TOKENS
    for i in order:
        if filled + len(rows[i]) > BATCH_TOKENS:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += len(rows[i])
    return groups


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
