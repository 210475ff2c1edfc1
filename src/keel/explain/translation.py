"""Cross-attention: how much each token of a translation attends to each token of the source.

In: a translator, a text. Out: the translation, its tokens, and the weights of every layer and head of the decoder.

Notable choice: the weights are those of the finished translation, computed in one pass with the tokens before each one
as given; beam search itself keeps none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from keel.errors import UserError
from keel.explain.reading import ExplainedModel
from keel.learner.windows import to_rows
from keel.tasks.translate import TranslateObjective
from keel.values import Window


@dataclass(frozen=True)
class CrossAttention:
    """`written`: the tokens of the translation and its [SEP]; `read`: those of the source."""

    translation: str
    written: list[str]
    read: list[str]
    weights: np.ndarray  # (layers, heads, written, read)

    @property
    def mean(self) -> np.ndarray:
        """(written, read): the mean over all layers and heads."""
        found: np.ndarray = self.weights.mean((0, 1))
        return found


@torch.no_grad()
def cross_attention(model: ExplainedModel, text: str) -> CrossAttention:
    """Of a model that translates."""
    objective, tokenizer, task = model.learner.objectives["translate"], model.tokenizer, model.task
    assert isinstance(objective, TranslateObjective) and task is not None
    (found,) = model.predict([text])
    (window,), lost = task.windows([task.example(text)], tokenizer)
    if lost.truncated_texts:
        raise UserError(
            f"a text of {lost.tokens} tokens is longer than the {task.data.length} that this model was trained to "
            "translate, and an explanation is about all of it: shorten it"
        )
    ids = tokenizer.encode([found["translation"]])[0][: objective.config.max_length - 1]
    right = np.concatenate([[tokenizer.cls], ids, [tokenizer.sep]]).astype(np.int64)
    rows = to_rows([Window(window.ids, window.segments, window.special, 0, {"translate": right})])
    batch = model.learner.prepare(rows, tokenizer, model.device)
    weights = objective.attention_weights(model.learner.encoder(), batch).float().cpu().numpy()
    written, source = ([tokenizer.shown(int(id)).strip() for id in ids] for ids in (right[1:], window.ids))
    return CrossAttention(found["translation"], written, source, weights)
