"""Options of the built-in tasks that exercise code beyond the defaults. A task without an entry gets its defaults."""

from __future__ import annotations

from typing import Any

TASK_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "answer": [{}, {"unanswerable": True}],
    "choose": [{"pooling": pooling} for pooling in ("cls", "mean", "attention")],
    "classify": [
        *({"pooling": pooling} for pooling in ("cls", "mean", "attention")),
        {"class_weights": {"a": 2.0}, "label_smoothing": 0.1},
        {"multi_label": True},
    ],
    "regress": [{"pooling": pooling} for pooling in ("cls", "mean", "attention")],
    "tag": [{}, {"entities": True}, {"crf": True}],
    "translate": [{"decoder": decoder} for decoder in ("transformer", "rnn", "rnn-attention")],
}


def variants_of(task: str) -> list[dict[str, Any]]:
    return TASK_VARIANTS.get(task, [{}])
