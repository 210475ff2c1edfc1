"""The loss Keel minimises is transformers' `BertForPreTraining(...).loss`, labels and all, on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from keel.errors import UserError
from keel.hugging_face.folder import load_model
from keel.learner.build import assemble
from keel.learner.learner import Learner, answer_counts
from keel.training.loop import evaluate, weighted_sum
from keel.values import Rows

SIZE = 90


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A random BERT in transformers, and the same folder opened by Keel."""
    import transformers

    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=SIZE,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=48,
        initializer_range=0.3,
    )
    theirs = transformers.BertForPreTraining(config).eval()
    theirs.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(SIZE - 5)]
    (folder / "vocab.txt").write_text("\n".join(words))
    return theirs, load_model(folder)


def padded(rows: Rows, hidden: np.ndarray, places: np.ndarray) -> dict[str, torch.Tensor]:
    """The same batch as transformers wants it: padded, with -100 where there is no answer."""
    shape = (len(rows.lengths), max(rows.lengths))
    inputs = {name: torch.zeros(shape, dtype=torch.long) for name in ("input_ids", "token_type_ids", "attention_mask")}
    labels = torch.full(shape, -100)
    flat = np.full(len(rows.ids), -100)
    flat[places] = rows.ids[places]
    start = 0
    for row, length in enumerate(rows.lengths):
        part = slice(start, start + length)
        inputs["input_ids"][row, :length] = torch.from_numpy(hidden[part])
        inputs["token_type_ids"][row, :length] = torch.from_numpy(rows.segments[part])
        inputs["attention_mask"][row, :length] = 1
        labels[row, :length] = torch.from_numpy(flat[part])
        start += length
    return {**inputs, "labels": labels, "next_sentence_label": torch.from_numpy(rows.answers["next_sentence"])}


@pytest.mark.parametrize("seed", range(4))
def test_the_summed_loss_is_transformers(twins: tuple[Any, Any], make_rows: Callable[..., Rows], seed: int) -> None:
    theirs, loaded = twins
    rows = make_rows([48, 31, 31, 17, 9, 5], SIZE, seed)
    batch = loaded.learner.prepare(rows, loaded.tokenizer)
    hidden, places = batch.ids.numpy(), batch.targets["masked_lm.places"].numpy()
    with torch.no_grad():
        expected = theirs(**padded(rows, hidden, places))
        scores = loaded.learner(batch)
        ours = weighted_sum(scores, answer_counts(batch))
    assert abs(float(expected.loss) - float(ours)) <= 1e-5
    guesses = expected.seq_relationship_logits.argmax(1).numpy()
    assert int(scores["next_sentence"].correct) == int((guesses == rows.answers["next_sentence"]).sum())
    figures = evaluate(loaded.learner, [batch])
    assert abs(figures["loss"] - float(expected.loss)) <= 1e-5


def test_zero_means_follows(corpus: Any, tokenizer: Any) -> None:
    """transformers: 0 says B is a continuation of A. Keel's packer gives 0 to exactly such rows."""
    from keel.corpus.stream import Cursor, Stream
    from keel.packers.pairs import PairPacker, PairsConfig

    documents = np.arange(corpus.documents)
    everything = np.concatenate([corpus.ids(*corpus.sentence_bounds(d)[[0, -1]]) for d in documents]).tolist()
    text = " ".join(map(str, everything))
    packer = PairPacker(PairsConfig(short_seq_prob=0.1, random_next_prob=0.5), corpus, documents, 24)
    stream = Stream(corpus, documents, packer, tokenizer, 5, None)
    rows, _ = stream.take(Cursor(), 4000)
    start = checked = 0
    for length, label in zip(rows.lengths, rows.answers["next_sentence"], strict=True):
        ids, special = rows.ids[start : start + length], rows.special[start : start + length]
        start += length
        if label == 0 and length < 24:  # nothing was cut, so A and B are neighbours in the corpus
            assert f" {' '.join(map(str, ids[~special]))} " in f" {text} "
            checked += 1
    assert checked > 5


def test_the_objectives_weights_scale_their_losses(twins: tuple[Any, Any], make_rows: Callable[..., Rows]) -> None:
    _, loaded = twins
    rows = make_rows([20, 12], SIZE)
    backbone = loaded.learner.backbone
    weighted = assemble(backbone, {"masked_lm": {"weight": 2.0}, "next_sentence": {"weight": 0.5}}).eval()
    weighted.load_state_dict(loaded.learner.state_dict())
    batch = weighted.prepare(rows, loaded.tokenizer)
    scores = weighted(batch)
    means = {name: float(score.loss.detach()) / score.count for name, score in scores.items()}
    total = float(weighted_sum(scores, answer_counts(batch)).detach())
    assert total == pytest.approx(2.0 * means["masked_lm"] + 0.5 * means["next_sentence"], rel=1e-6)


def test_the_backbone_runs_once_for_all_objectives(twins: tuple[Any, Any], make_rows: Callable[..., Rows]) -> None:
    _, loaded = twins
    learner: Learner = loaded.learner
    calls: list[int] = []
    handle = learner.backbone.register_forward_hook(lambda *_: calls.append(1))
    learner(learner.prepare(make_rows([10], SIZE), loaded.tokenizer))
    handle.remove()
    assert len(calls) == 1


def test_a_backbone_without_a_pooler_is_refused() -> None:
    from keel.backbones.bert import Bert, BertConfig

    backbone = Bert(BertConfig(vocabulary=20, layers=1, width=8, heads=1, feed_forward=8, pooler=False))
    with pytest.raises(UserError, match=r"model\.backbone\.pooler"):
        assemble(backbone, {"next_sentence": {}})
