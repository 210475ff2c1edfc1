"""A plug-in: retrieval, which passage belongs to a query, trained with in-batch negatives (Karpukhin et al. 2020).

In: a table with the columns text (query) and pair (passage). Learns: each query's own passage among those of the batch.
Out: the similarity of a query and its passage, and both vectors. Judged by recall among all passages of a file.

Shapes: R rows, E examples, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from keel.configs import TaskConfig
from keel.errors import Rejected, UserError
from keel.interfaces import Backbone, CachedEncoder, Objective, Task, Tokenizer
from keel.layers.pooling import mean_of_rows
from keel.text.labelled import as_text, find_columns, read_examples
from keel.text.tables import Record
from keel.tokenizers.special_tokens import frame, framing
from keel.values import (
    Batch,
    Evaluation,
    ExampleFile,
    ObjectiveNeeds,
    Rows,
    Score,
    Scorer,
    TaskNeeds,
    Truncation,
    Usage,
    Window,
)


class RetrieveConfig(TaskConfig):
    kind: Literal["retrieve"] = "retrieve"
    temperature: float = Field(0.05, gt=0)


@dataclass(frozen=True)
class Pair:
    query: str
    passage: str
    where: str = ""


class Retrieve(Task):
    Config = RetrieveConfig
    needs = TaskNeeds(keep_together=True)
    usage = Usage('--pair "A passage." "A query?"', '("A query?", "A passage.")', several_texts=True)

    def open(self, path: str, labelled: bool = True) -> ExampleFile:
        data = find_columns(path, self.data, ("text", "pair"))
        if not data.pair:
            raise UserError(f"{path}: which column holds the passage? Choose with --pair")
        return ExampleFile(lambda: map(_from_record, read_examples(path, data, ("text", "pair"))), data)

    def example(self, given: Any) -> Pair:
        if isinstance(given, str) or len(given) != 2:
            raise UserError(f"a query and a passage are needed, not {str(given)[:60]!r}")
        return Pair(*given)

    def objective(self, backbone: Backbone) -> RetrieveObjective:
        return RetrieveObjective(self.config, backbone)

    def windows(self, examples: Sequence[Pair], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        """A row for each query and one for each passage."""
        room, windows, truncation = self.data.length - framing(tokenizer, 1), [], Truncation()
        encoded = tokenizer.encode([text for example in examples for text in (example.query, example.passage)])
        for place, ids in enumerate(encoded):
            number, side = divmod(place, 2)
            answers = {"retrieve.example": number, "retrieve.side": side}
            windows.append(Window(*frame(tokenizer, [ids[:room]]), number, answers, place=side))
            truncation += Truncation(1, int(len(ids) > room), len(ids), max(0, len(ids) - room))
        return windows, truncation

    def answer(
        self, examples: Sequence[Pair], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        vectors: list[dict[int, np.ndarray]] = [{} for _ in examples]
        for window, output in zip(windows, outputs, strict=True):
            vectors[window.example][window.place] = output
        return [
            {"similarity": float(sides[0] @ sides[1]), "query": sides[0].tolist(), "passage": sides[1].tolist()}
            for sides in vectors
        ]

    def scorer(self) -> RetrieveScorer:
        return RetrieveScorer()


def _from_record(record: Record | Rejected) -> Pair | Rejected:
    if isinstance(record, Rejected):
        return record
    query, passage = (as_text(record.fields[role]) or "" for role in ("text", "pair"))
    if query.strip() and passage.strip():
        return Pair(query, passage, f"{record.file}, line {record.line}")
    return Rejected(record.file, record.line, "empty text")


class RetrieveScorer(Scorer):
    """Keeps all vectors: every query is compared with every passage."""

    def __init__(self) -> None:
        self.queries, self.passages = list[list[float]](), list[list[float]]()

    def gold(self, example: Pair) -> Any:
        return example.passage

    def update(self, examples: Sequence[Pair], answers: Sequence[dict[str, Any]]) -> None:
        self.queries += [answer["query"] for answer in answers]
        self.passages += [answer["passage"] for answer in answers]

    def compute(self) -> Evaluation:
        queries, passages = np.array(self.queries), np.array(self.passages)
        similarities = queries @ passages.T
        own = np.diag(similarities)[:, None]
        ranks = (similarities > own).sum(1)
        metrics = {"recall_at_1": float((ranks == 0).mean()), "mean_reciprocal_rank": float((1 / (1 + ranks)).mean())}
        constant = bool(np.ptp(similarities) < 1e-6)
        return Evaluation(metrics, "recall_at_1", constant)


class RetrieveObjective(Objective):
    name = "retrieve"
    needs = ObjectiveNeeds(whole_batch=True)

    def __init__(self, config: RetrieveConfig, backbone: Backbone) -> None:
        super().__init__()
        self.temperature = config.temperature

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        example, side = rows.answers["retrieve.example"], rows.answers["retrieve.side"]
        numbers, of_row = np.unique(example, return_inverse=True)
        table = np.zeros((2, len(numbers)), np.int64)
        table[side, of_row] = np.arange(len(of_row))
        return rows, {"retrieve.rows": table, "retrieve.answers": np.arange(len(numbers))}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(R, W): unit vectors."""
        return F.normalize(mean_of_rows(encoder(batch).vectors, batch), dim=1)

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        queries, passages = batch.targets["retrieve.rows"]
        vectors, answers = self.predict(encoder, batch).float(), batch.targets["retrieve.answers"]
        logits = vectors[queries] @ vectors[passages].t() / self.temperature
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), answers.shape[0])}
