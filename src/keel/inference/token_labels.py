"""The labels of every token of a text, with their probabilities, from a model fine-tuned to tag.

In: texts. Out: for each its tokens and a (tokens, labels) array.

Notable choice: a tagger learns the label of the first token of each word, and `Model.predict` reads no other. Clients
of other tools aggregate the tokens of a word themselves, so they need all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keel.errors import UserError
from keel.inference.model import Model
from keel.inference.work import Work
from keel.learner.windows import output
from keel.tasks.tag import Tag, TagObjective


@dataclass(frozen=True)
class TokenLabels:
    text: str
    ids: list[int]
    spans: list[tuple[int, int]]  # the characters of each token
    probabilities: np.ndarray  # (tokens, labels)


def token_label_work(model: Model, texts: Sequence[str]) -> Work[list[TokenLabels]]:
    task, objective = model.need_task(), next(iter(model.learner.objectives.values()), None)
    if not isinstance(task, Tag) or not isinstance(objective, TagObjective):
        raise UserError(f"{model.path}: this model does not tag")
    if objective.crf is not None:
        raise UserError(f"{model.path}: a CRF scores sequences of labels, so single tokens have no probabilities")
    encoded = [model.tokenizer.encode_with_offsets(text) for text in texts]
    windows = task.token_windows([np.asarray(ids, np.int64) for ids, _ in encoded], model.tokenizer)

    def finish(outputs: list[np.ndarray]) -> list[TokenLabels]:
        found = [np.zeros((len(ids), len(task.config.labels or ())), np.float32) for ids, _ in encoded]
        for window, probabilities in zip(windows, outputs, strict=True):
            found[window.example][window.place] = probabilities
        return [TokenLabels(text, *tokens, p) for text, tokens, p in zip(texts, encoded, found, strict=True)]

    return Work(
        (id(model), "token labels"),
        windows,
        [len(window.ids) for window in windows],
        lambda batch: output(
            model.learner,
            batch,
            model.tokenizer,
            model.device,
            lambda encoder, rows: objective.logits(encoder, rows).float().softmax(1),
        ),
        finish,
    )
