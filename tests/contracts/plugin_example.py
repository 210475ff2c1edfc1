"""A plug-in as an author might write it: a backbone, an objective and a task. `test_plugins.py` also breaks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.configs import BackboneConfig, ObjectiveConfig, TaskConfig
from keel.interfaces import Backbone, CachedEncoder, Objective, Task, Tokenizer
from keel.layers.dropout import Dropout
from keel.layers.init_weights import init_normal
from keel.layers.pooling import mean_of_rows, row_of_token
from keel.layers.token_head import TiedHead
from keel.tokenizers.special_tokens import frame
from keel.values import (
    Batch,
    Encoding,
    Evaluation,
    ExampleFile,
    ObjectiveNeeds,
    Rows,
    Score,
    Scorer,
    Truncation,
    Window,
)


class MixerConfig(BackboneConfig):
    kind: Literal["mixer"] = "mixer"
    layers: int = 2
    width: int = 8
    dropout: float = 0.1
    pooler: Literal[False] = False


class Mixer(Backbone):
    """Each token reads itself and the mean of its row."""

    Config = MixerConfig

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        assert config.vocabulary is not None
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config.width) for _ in range(config.layers))

    def forward(self, batch: Batch, all_layers: bool = False) -> Encoding:
        layers = [self.dropout(self.tokens(batch.ids))]
        for block in self.blocks:
            layers.append(self.dropout(block(layers[-1], batch)))
        return Encoding(layers[-1], tuple(layers) if all_layers else ())

    def init_weights(self, generator: torch.Generator) -> None:
        init_normal(self, self.config.init_std, generator)

    def token_embeddings(self) -> Tensor:
        return self.tokens.weight

    def token_head(self) -> TiedHead:
        return TiedHead()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        return x + F.gelu(self.dense(x + mean_of_rows(x, batch)[row_of_token(batch)]))


class SimCseConfig(ObjectiveConfig):
    temperature: float = Field(0.05, gt=0)


class SimCse(Objective):
    """Which of the rows is this one, encoded with another dropout mask (Gao et al. 2021)?"""

    name = "simcse"
    Config = SimCseConfig
    needs = ObjectiveNeeds(packing="single_sentences", vectors="rows", whole_batch=True)

    def __init__(self, config: SimCseConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"simcse.answers": np.arange(len(rows.lengths))}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        one, other = (
            F.normalize(encoder.backbone.row_vectors(encoding.vectors, batch).float(), dim=1)
            for encoding in (encoder(batch), encoder.fresh(batch))
        )
        return one @ other.t() / self.config.temperature

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(encoder, batch), batch.targets["simcse.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), len(answers), self.config.weight)}


class VoteConfig(TaskConfig):
    kind: Literal["vote"] = "vote"
    labels: list[str] = Field(default_factory=lambda: ["no", "yes"])


@dataclass(frozen=True)
class Voice:
    text: str
    answer: str | None = None


class Vote(Task):
    Config = VoteConfig

    def open(self, path: str, labelled: bool = True) -> ExampleFile:
        def rows() -> Iterator[Voice]:
            for line in Path(path).read_text(encoding="utf-8").splitlines():
                yield Voice(*line.split("\t"))

        return ExampleFile(rows, self.data)

    def example(self, given: Any) -> Voice:
        return Voice(given)

    def objective(self, backbone: Backbone) -> VoteObjective:
        return VoteObjective(self.config, backbone)

    def windows(self, examples: Sequence[Voice], tokenizer: Tokenizer) -> tuple[list[Window], Truncation]:
        windows, truncation, room = [], Truncation(), self.data.length - 2
        for number, (example, ids) in enumerate(zip(examples, self._encode(examples, tokenizer), strict=True)):
            label = self.config.labels.index(example.answer) if example.answer else -1
            windows.append(Window(*frame(tokenizer, [ids[:room]]), number, {"vote": label}))
            lost = max(0, len(ids) - room)
            truncation += Truncation(1, int(lost > 0), len(ids), lost)
        return windows, truncation

    def _encode(self, examples: Sequence[Voice], tokenizer: Tokenizer) -> list[np.ndarray]:
        return tokenizer.encode([example.text for example in examples])

    def answer(
        self, examples: Sequence[Voice], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        return [{"label": self.config.labels[int(output.argmax())], "score": float(output.max())} for output in outputs]

    def scorer(self) -> VoteScorer:
        return VoteScorer()


class VoteScorer(Scorer):
    def __init__(self) -> None:
        self.votes = self.right = 0
        self.said = set[str]()

    def gold(self, example: Voice) -> str | None:
        return example.answer

    def update(self, examples: Sequence[Voice], answers: Sequence[dict[str, Any]]) -> None:
        self.votes += len(examples)
        self.right += sum(e.answer == a["label"] for e, a in zip(examples, answers, strict=True))
        self.said |= {a["label"] for a in answers}

    def compute(self) -> Evaluation:
        return Evaluation({"accuracy": self.right / max(1, self.votes)}, "accuracy", constant=len(self.said) == 1)


class VoteObjective(Objective):
    name = "vote"

    def __init__(self, config: VoteConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.out = nn.Linear(backbone.width, len(config.labels))

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        return rows, {"vote.answers": rows.answers["vote"]}

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        logits: Tensor = self.out(mean_of_rows(encoder(batch).vectors, batch))
        return logits

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        logits, answers = self.predict(encoder, batch), batch.targets["vote.answers"]
        loss = F.cross_entropy(logits, answers, reduction="sum")
        return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), len(answers))}
