"""Architectures with heads, what they are asked, and the number behind the answer, from the output of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

OLD = ("Bert", "Roberta", "XLMRoberta", "Electra", "Albert", "DistilBert", "MPNet", "DebertaV2")
TEXT = "w3 w14 w15 w9 w26 w53 w58 w97 w32"
MASKED = "w3 w14 [MASK] w9 w26 w53 [MASK] w58"
QUESTION = "w31 w41 w59"
LABELS = {0: "O", 1: "B-X", 2: "I-X"}
WITH_SEGMENTS = ("Bert", "Electra", "Albert")


@dataclass(frozen=True)
class Case:
    family: str
    kind: str  # the end of the architecture's name

    def __str__(self) -> str:
        return f"{self.family}{self.kind}"

    @property
    def texts(self) -> tuple[str, ...]:
        """What is explained: a text, or a text and a pair."""
        if self.kind == "ForQuestionAnswering":
            return QUESTION, TEXT
        return (MASKED,) if self.kind == "ForMaskedLM" else (TEXT,)

    @property
    def segments(self) -> bool:
        return self.family in WITH_SEGMENTS

    def score(self, found: Any, scale: str) -> Callable[[Any], Tensor]:
        """The explained number, `scale` for a label; a token's is a log-probability. Of the answer that the explanation
        names, which `check_best` compares with all others."""
        if self.kind == "ForQuestionAnswering":
            first, last = span_tokens(found)
            return lambda output: output.start_logits[0, first] + output.end_logits[0, last]
        places = places_of(self, found)
        if self.kind in ("ForMaskedLM", "LMHeadModel"):
            scale = "log-probability"
        ids = chosen(self, found)

        def number(output: Any) -> Tensor:
            logits = output.logits if places is None else output.logits[0, places]
            scaled = {"logit": logits, "probability": logits.softmax(-1), "log-probability": logits.log_softmax(-1)}
            return scaled[scale].gather(-1, ids[:, None]).mean()

        return number


def check_best(case: Case, found: Any, output: Any) -> None:
    """What is explained is the model's own answer: no other class, or span in the text, has a better score."""
    if case.kind == "ForQuestionAnswering":
        starts, ends = output.start_logits[0], output.end_logits[0]
        of_text = [n for n, token in enumerate(found.reading.tokens) if token.segment == 1 and not token.special]
        best = max(((n, m) for n in of_text for m in of_text if n <= m), key=lambda at: starts[at[0]] + ends[at[1]])
        assert span_tokens(found) == best
        return
    places = places_of(case, found)
    logits = output.logits if places is None else output.logits[0, places]
    assert torch.equal(logits.argmax(-1), chosen(case, found))


def places_of(case: Case, found: Any) -> Tensor | None:
    """The tokens whose vectors are read; None: the row's vector."""
    ids = found.reading.ids
    if case.kind == "ForMaskedLM":
        return torch.from_numpy(np.flatnonzero(ids == 4))  # [MASK]
    if case.kind == "LMHeadModel":
        return torch.tensor([len(ids) - 1])
    if case.kind == "ForTokenClassification":
        start = found.answer["start"]
        return torch.tensor([n for n, token in enumerate(found.reading.tokens) if token.start == start])
    return None


def chosen(case: Case, found: Any) -> Tensor:
    """The class that was explained at each place."""
    if case.kind in ("ForMaskedLM", "LMHeadModel"):
        return torch.tensor([int(name[1:]) + 5 if name[0] == "w" else 0 for name in found.answer["tokens"]])
    names = LABELS if case.kind == "ForTokenClassification" else {n: f"LABEL_{n}" for n in range(3)}
    return torch.tensor([{name: n for n, name in names.items()}[found.answer["label"]]])


def span_tokens(found: Any) -> tuple[int, int]:
    """The first and the last token of the answer; [CLS] where there is none."""
    if found.answer["start"] is None:
        return 0, 0
    of_text = [(n, token) for n, token in enumerate(found.reading.tokens) if token.segment == 1 and not token.special]
    (first,) = (n for n, token in of_text if token.start == found.answer["start"])
    (last,) = (n for n, token in of_text if token.end == found.answer["end"])
    return first, last


CASES = [
    *(Case(family, "ForMaskedLM") for family in (*OLD, "ModernBert")),
    *(Case(family, "ForSequenceClassification") for family in (*OLD, "ModernBert")),
    *(Case(family, "ForTokenClassification") for family in (*OLD, "GPT2")),
    *(Case(family, "ForQuestionAnswering") for family in (*OLD, "GPT2")),
    Case("GPT2", "LMHeadModel"),
]


def asked(family: Callable[..., Any], case: Case) -> Any:
    """The same weights in Keel and in transformers, and the modules that project the heads' outputs."""
    more: dict[str, Any] = {}
    if case.kind == "ForTokenClassification":
        more = {"id2label": LABELS, "label2id": {name: n for n, name in LABELS.items()}}
    elif case.kind == "ForSequenceClassification":
        more = {"num_labels": 3}
    return family(case.family, case.kind, **more)
