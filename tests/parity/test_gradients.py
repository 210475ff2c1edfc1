"""The gradients of Keel's BERT are those of transformers' BERT, for every parameter, with both pretraining losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.hugging_face.families import bert
from keel.hugging_face.folder import load_model
from keel.hugging_face.names import to_published
from keel.values import Batch, Rows

SIZE, IGNORED = 97, -100


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT without dropout, in which no bias is 0 and no norm is 1."""
    import transformers

    folder = tmp_path_factory.mktemp("gradients")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=SIZE,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=100,
        max_position_embeddings=40,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForPreTraining(config)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(SIZE - 5)]
    (folder / "vocab.txt").write_text("\n".join(words))
    return folder


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_every_parameter_has_the_gradient_of_transformers(published: Path, lengths: list[int], seed: int) -> None:
    """One batch of rows of several lengths: flat here, padded there. Relative to the largest value of a tensor."""
    import transformers

    lengths = sorted(lengths, reverse=True)
    source, total = np.random.default_rng(seed), sum(lengths)
    ids, segments, labels = (
        source.integers(5, SIZE, total),
        source.integers(0, 2, total),
        source.integers(5, SIZE, total),
    )
    places = np.flatnonzero(source.random(total) < 0.3)
    places = places if len(places) else np.array([0])
    follows = source.integers(0, 2, len(lengths))

    ours = load_model(published).learner.train()
    none, keys = np.zeros(total, bool), np.arange(len(lengths), dtype=np.uint64)
    targets = {
        "masked_lm.places": places,
        "masked_lm.answers": labels[places],
        "next_sentence.answers": follows,
    }
    scores = ours(Batch.of(Rows(ids, tuple(lengths), segments, none, ~none, keys), targets))
    loss = scores["masked_lm"].loss / len(places) + scores["next_sentence"].loss / len(lengths)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())

    theirs = transformers.BertForPreTraining.from_pretrained(published).train()
    asked = np.full(total, IGNORED)
    asked[places] = labels[places]

    def padded(flat: np.ndarray, filler: int = 0) -> torch.Tensor:
        rows = torch.from_numpy(flat).split(lengths)
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=filler)

    answer = theirs(
        input_ids=padded(ids),
        token_type_ids=padded(segments),
        attention_mask=padded(np.ones_like(ids)),
        labels=padded(asked, IGNORED),
        next_sentence_label=torch.from_numpy(follows),
    )
    answer.loss.backward()
    assert float(loss.detach()) == pytest.approx(float(answer.loss.detach()), rel=1e-5)
    named = to_published(gradients, bert.FAMILY.names(ours.backbone.config, None))  # type: ignore[arg-type]
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert expected.keys() <= named.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None)
    for name, gradient in expected.items():
        assert gradient is not None, name
        difference = float((named[name] - gradient).abs().max())
        # A key's bias moves all scores of a row alike: its gradient is 0, and what is computed is rounding.
        size = largest if name.endswith("key.bias") else float(gradient.abs().max())
        assert difference <= 1e-5 * size, (name, difference, size)
