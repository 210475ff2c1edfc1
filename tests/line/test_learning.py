"""Training really learns: on a tiny language whose answers are known, the losses fall below what can be had without
looking at the context."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from keel.corpus.store import Corpus
from keel.stages.corpus import build
from keel.stages.pretrain import pretrain
from keel.stages.tokenizer import train

TOPICS = ["sail mast rope", "bread milk salt", "snow wind rain", "red green blue", "lute drum harp", "cat dog horse"]


def language(path: Path) -> Path:
    """Each document keeps to the three words of its topic."""
    source = random.Random(0)
    documents = []
    for number in range(300):
        words = TOPICS[number % len(TOPICS)].split()
        sentences = (
            " ".join(source.choice(words) for _ in range(source.randint(4, 8))) + " ."
            for _ in range(source.randint(4, 10))
        )
        documents.append(json.dumps({"text": "\n".join(sentences)}))
    path.write_text("\n".join(documents))
    return path


def entropy_without_context(corpus: Corpus) -> float:
    """The lowest loss of a model that knows how often each token occurs, and nothing else."""
    bounds = [corpus.sentence_bounds(document)[[0, -1]] for document in range(corpus.documents)]
    counts = np.bincount(np.concatenate([corpus.ids(start, stop) for start, stop in bounds]))
    chances = counts[counts > 0] / counts.sum()
    return float(-(chances * np.log(chances)).sum())


def test_a_model_learns_to_look_at_the_context(tmp_path: Path) -> None:
    text = str(language(tmp_path / "topics.jsonl"))
    train([text], tmp_path / "T", vocab_size=80)
    build([text], str(tmp_path / "T"), str(tmp_path / "C"), workers=1, held_out=0.1)
    size = "layers=2 width=64 heads=4 feed_forward=128 positions=32 dropout=0 attention_dropout=0"
    overrides = [f"model.backbone.{option}" for option in size.split()] + [
        "data.length=32",
        "training.steps=250",
        "training.batch_tokens=512",
        "training.learning_rate=3e-3",
        "training.evaluation_tokens=4096",
    ]
    result = pretrain("bert-tiny", corpus=str(tmp_path / "C"), out=str(tmp_path / "M"), overrides=overrides, quiet=True)
    blind = entropy_without_context(Corpus.open(tmp_path / "C"))
    assert result["masked_lm.loss"] < 0.8 * blind, (result, blind)
    assert result["next_sentence.accuracy"] > 0.7 and result["next_sentence.loss"] < 0.5
