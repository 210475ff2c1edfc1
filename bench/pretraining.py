"""Pretraining speed compared with transformers, in tokens per second: same architecture, rows and optimizer, in one
process, alternating step by step.

Both sides train masked LM and next-sentence prediction with dropout 0.1, clip the gradients and update with fused
AdamW. transformers' `BertForPreTraining` computes logits for all tokens, Keel only for the masked ones.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from keel.backbones.bert import BertConfig
from keel.learner.build import fresh_learner
from keel.learner.learner import Learner
from keel.training.optimizer import make_optimizer
from keel.training.settings import TrainingSettings
from keel.values import Batch, Rows


class SpecialIds:
    """The ids of the special tokens: all that masking needs of a tokenizer."""

    size, cls, sep, mask, pad, unk = 30522, 101, 102, 103, 0, 100


def rows_of(count: int, length: int) -> Rows:
    random = np.random.default_rng(0)
    total = count * length
    special = np.zeros((count, length), bool)
    special[:, [0, length // 2, -1]] = True
    segments = np.repeat((0, 1), (length // 2 + 1, length - length // 2 - 1))
    return Rows(
        random.integers(1000, SpecialIds.size, total),
        (length,) * count,
        np.tile(segments, count),
        special.reshape(-1),
        np.ones(total, bool),
        np.arange(count, dtype=np.uint64),
        {"next_sentence": random.integers(0, 2, count)},
    )


class Ours:
    def __init__(self, layers: int, width: int, rows: Rows) -> None:
        config = BertConfig(
            vocabulary=SpecialIds.size, layers=layers, width=width, heads=width // 64, feed_forward=4 * width
        )
        self.learner: Learner = fresh_learner(config, {"masked_lm": {}, "next_sentence": {}}, seed=0).train()
        self.optimizer = make_optimizer(self.learner, TrainingSettings())
        self.rows = rows

    def step(self) -> None:
        batch = self.learner.prepare(self.rows, SpecialIds())  # type: ignore[arg-type]
        scores = self.learner(batch)
        sum(s.loss / s.count for s in scores.values()).backward()
        torch.nn.utils.clip_grad_norm_(self.learner.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Theirs:
    def __init__(self, layers: int, width: int, rows: Rows, learner: Learner) -> None:
        import transformers

        config = transformers.BertConfig(
            vocab_size=SpecialIds.size,
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            attn_implementation="sdpa",
        )
        self.model = transformers.BertForPreTraining(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        batch: Batch = learner.prepare(rows, SpecialIds())  # type: ignore[arg-type]
        count = len(rows.lengths)
        labels = torch.full_like(batch.ids, -100)
        labels[batch.targets["masked_lm.places"]] = batch.targets["masked_lm.answers"]
        self.inputs = {
            "input_ids": batch.ids.view(count, -1),
            "token_type_ids": batch.segments.view(count, -1),
            "attention_mask": torch.ones(count, len(batch.ids) // count, dtype=torch.long),
            "labels": labels.view(count, -1),
            "next_sentence_label": batch.targets["next_sentence.answers"],
        }

    def step(self) -> None:
        self.model(**self.inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def measure(layers: int, width: int, rounds: int, count: int = 32, length: int = 128) -> dict[str, float]:
    rows = rows_of(count, length)
    ours = Ours(layers, width, rows)
    theirs = Theirs(layers, width, rows, ours.learner)
    times: dict[str, list[float]] = {"keel": [], "transformers": []}
    for turn in range(rounds + 1):
        for name, side in (("keel", ours), ("transformers", theirs)):
            began = time.perf_counter()
            side.step()
            if turn:
                times[name].append(time.perf_counter() - began)
    tokens = count * length
    keel, peer = (tokens / float(np.median(times[name])) for name in ("keel", "transformers"))
    return {"keel": keel, "peer": peer, "ratio": keel / peer}
