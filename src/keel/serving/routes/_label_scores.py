"""The labels of whole texts, scored as a client asks for: probabilities, or the model's raw numbers.

In: texts or pairs, for a model fine-tuned to classify or regress. Out: for each its labels and scores, the best first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.requests import Request

from keel.inference.work import Work
from keel.serving.models import ServedModel
from keel.serving.service import Service

NUMBER = "LABEL_0"  # how folders call the only output of a regression


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    found: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return found


def sigmoid(logits: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(-np.logaddexp(0, -logits))
    return found


def raw(logits: np.ndarray) -> np.ndarray:
    return logits


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"softmax": softmax, "sigmoid": sigmoid, "none": raw}


def label_names(served: ServedModel) -> list[str]:
    return list(served.describe()["labels"] or [NUMBER])


def usual_function(served: ServedModel) -> str:
    """That which the model was fine-tuned with."""
    if served.task == "regress":
        return "none"
    several = served.model.need_task().config.model_dump().get("multi_label")
    return "sigmoid" if several else "softmax"


async def logits(service: Service, request: Request, served: ServedModel, given: list[Any]) -> np.ndarray:
    """(given, labels): the mean over the windows of each, as in `Model.predict`."""
    model = served.model

    def make() -> Work[np.ndarray]:
        work = model.answer_work([model.example(one, number) for number, one in enumerate(given, 1)])

        def finish(outputs: list[np.ndarray]) -> np.ndarray:
            sums, counts = np.zeros((len(given), len(label_names(served)))), np.zeros((len(given), 1))
            for window, output in zip(work.rows, outputs, strict=True):
                sums[window.example] += output
                counts[window.example] += 1
            averaged: np.ndarray = sums / counts
            return averaged

        return Work(work.key, work.rows, work.sizes, work.compute, finish)

    texts = [text for one in given for text in ([one] if isinstance(one, str) else one)]
    return await service.answer(request, texts, make)


def ranked(served: ServedModel, scores: np.ndarray) -> list[list[dict[str, Any]]]:
    names = label_names(served)
    orders = np.argsort(-scores, axis=1, kind="stable")
    return [
        [{"label": names[place], "score": float(row[place])} for place in order]
        for order, row in zip(orders, scores, strict=True)
    ]
