"""MPNet and DeBERTa v2/v3 give the values of transformers', for drawn configs and rows longer than all buckets.

Folders written there open here with every tensor, and folders written here open there with none missing: every logit,
every layer's vectors and every gradient is compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.errors import UserError
from keel.hugging_face.folder import load_model, save_model
from keel.hugging_face.known import family_of
from keel.hugging_face.names import to_published
from keel.interfaces import CachedEncoder
from keel.learner.learner import Learner
from keel.tokenizers.wordpiece import WordPiece
from keel.values import Batch, Rows

SIZE = 97
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(SIZE - 5))]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LONG = 200  # beyond the last bucket of MPNet, 128
SHAPES = st.builds(
    lambda layers, heads, size, inner: {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": heads * size,
        "intermediate_size": inner,
    },
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([4, 9, 16]),
    st.integers(5, 100),
)
DEBERTA = st.fixed_dictionaries(
    {
        "relative_attention": st.sampled_from([True, True, True, False]),
        "position_buckets": st.sampled_from([-1, 2, 7, 16, 64]),
        "max_relative_positions": st.sampled_from([-1, 40, LONG]),
        "pos_att_type": st.sampled_from(["p2c|c2p", ["c2p", "p2c"], "c2p", ["p2c"], None]),
        "share_att_key": st.booleans(),
        "norm_rel_ebd": st.sampled_from(["layer_norm", "none"]),
        "position_biased_input": st.booleans(),
        "type_vocab_size": st.sampled_from([0, 2]),
        "conv_kernel_size": st.sampled_from([0, 0, 1, 3, 5]),
        "conv_act": st.sampled_from(["tanh", "gelu"]),
        "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu"]),
        "legacy": st.booleans(),
    },
    optional={"embedding_size": st.sampled_from([3, 12])},
)
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=5).map(lambda some: tuple(sorted(some, reverse=True)))
few = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


def published(folder: Path, family: str, kind: str, changes: dict[str, Any], seed: int = 0) -> Any:
    """A random model of transformers in which no bias is 0 and no norm is 1, and its folder."""
    import transformers

    torch.manual_seed(seed)
    given = {"vocab_size": SIZE, "max_position_embeddings": LONG + 2, "initializer_range": 0.2} | NO_DROPOUT | changes
    model = getattr(transformers, f"{family}{kind}")(getattr(transformers, f"{family}Config")(**given)).eval()
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return model


def random_rows(lengths: tuple[int, ...], seed: int = 0) -> Rows:
    """Tokens of all ids: MPNet counts positions in its own way at one of them."""
    source, total = np.random.default_rng(seed), sum(lengths)
    ids, segments, plain = source.integers(0, SIZE, total), source.integers(0, 2, total), np.zeros(total, bool)
    return Rows(ids, lengths, segments, plain, ~plain, np.arange(len(lengths), dtype=np.uint64))


def their_inputs(rows: Rows, row: int, segments: bool) -> dict[str, torch.Tensor]:
    part = slice(rows.starts[row], rows.starts[row] + rows.lengths[row])
    inputs = {"input_ids": rows.ids[part], "attention_mask": np.ones(rows.lengths[row], np.int64)}
    inputs |= {"token_type_ids": rows.segments[part]} if segments else {}
    return {key: torch.from_numpy(value)[None] for key, value in inputs.items()}


def assert_same_values(ours: Learner, theirs: Any, rows: Rows) -> None:
    batch = Batch.of(rows, {"masked_lm.places": np.arange(len(rows.ids))})
    segments = family_of(type(ours.backbone)).has_segments
    with torch.no_grad():
        encoder = CachedEncoder(ours.backbone)
        layers = torch.stack(encoder(batch, all_layers=True).layers)
        logits = ours.objectives["masked_lm"].predict(encoder, batch)
        for row, start in enumerate(rows.starts):
            part = slice(start, start + rows.lengths[row])
            answer = theirs(**their_inputs(rows, row, segments), output_hidden_states=True)
            for found, expected in (
                (layers[:, part], torch.cat(answer.hidden_states)),
                (logits[part], answer.logits[0]),
            ):
                assert found.shape == expected.shape
                assert float((found - expected).abs().max()) <= 1e-5 * max(1, float(expected.abs().max()))


def assert_opens_there(ours: Learner, kind: Any, rows: Rows, folder: Path) -> None:
    """The folder that Keel writes has no other values, and no tensor is missing there."""
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    save_model(folder, ours, WordPiece.load(folder), "")
    back, account = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(account.values()), account
    assert_same_values(ours, back.eval(), rows)
    assert_same_values(load_model(folder).learner, back, rows)


@few
@given(shape=SHAPES, lengths=LENGTHS, act=st.sampled_from(["gelu", "relu"]))
def test_any_mpnet(
    tmp_path_factory: pytest.TempPathFactory, shape: dict[str, Any], lengths: tuple[int, ...], act: str
) -> None:
    folder = tmp_path_factory.mktemp("mpnet")
    theirs = published(folder, "MPNet", "ForMaskedLM", shape | {"hidden_act": act})
    ours = load_model(folder).learner
    assert_same_values(ours, theirs, random_rows(lengths))
    assert_opens_there(ours, type(theirs), random_rows(lengths), tmp_path_factory.mktemp("back"))


@few
@given(shape=SHAPES, options=DEBERTA, lengths=LENGTHS)
def test_any_deberta(
    tmp_path_factory: pytest.TempPathFactory,
    shape: dict[str, Any],
    options: dict[str, Any],
    lengths: tuple[int, ...],
) -> None:
    if options.get("embedding_size", shape["hidden_size"]) != shape["hidden_size"]:
        options = options | {"legacy": True}  # the other head multiplies vectors by embeddings of another width
    folder = tmp_path_factory.mktemp("deberta")
    theirs = published(folder, "DebertaV2", "ForMaskedLM", shape | options)
    ours = load_model(folder).learner
    assert_same_values(ours, theirs, random_rows(lengths))
    assert_opens_there(ours, type(theirs), random_rows(lengths), tmp_path_factory.mktemp("back"))


V3 = {"relative_attention": True, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p"}
V3 |= {"position_biased_input": False, "max_relative_positions": -1, "position_buckets": 32}
SHAPE = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 80}
FAMILIES = [("MPNet", {}), ("DebertaV2", V3)]


@pytest.mark.parametrize("family, options", FAMILIES)
def test_rows_beyond_all_buckets(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = published(tmp_path, family, "ForMaskedLM", SHAPE | options)
    assert_same_values(load_model(tmp_path).learner, theirs, random_rows((LONG, LONG, 131, 130, 129, 64, 33, 32, 2, 1)))


@pytest.mark.parametrize(
    "family, options",
    [
        *FAMILIES,
        ("DebertaV2", V3 | {"share_att_key": False, "embedding_size": 12, "position_biased_input": True}),
        ("DebertaV2", V3 | {"conv_kernel_size": 3, "conv_act": "gelu", "type_vocab_size": 2}),
    ],
)
def test_every_parameter_has_the_gradient_of_transformers(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    """One batch of rows of several lengths: flat here, padded there. Relative to the largest value of a tensor."""
    theirs = published(tmp_path, family, "ForMaskedLM", SHAPE | options).train()
    ours, rows = load_model(tmp_path).learner.train(), random_rows((90, 41, 40, 40, 7))
    rows.ids[rows.ids < 2] = 2  # the padding token's embedding gets no gradient there
    places = np.arange(0, len(rows.ids), 3)
    targets = {"masked_lm.places": places, "masked_lm.answers": rows.ids[places]}
    ours(Batch.of(rows, targets))["masked_lm"].loss.backward()
    segments = family_of(type(ours.backbone)).has_segments
    labels = np.full(len(rows.ids), -100)
    labels[places] = rows.ids[places]

    def padded(flat: np.ndarray, filler: int) -> torch.Tensor:
        split = list(torch.from_numpy(flat).split(rows.lengths))
        return torch.nn.utils.rnn.pad_sequence(split, batch_first=True, padding_value=filler)

    inputs = {"input_ids": padded(rows.ids, theirs.config.pad_token_id), "labels": padded(labels, -100)}
    inputs |= {"attention_mask": padded(np.ones_like(rows.ids), 0)}
    inputs |= {"token_type_ids": padded(rows.segments, 0)} if segments else {}
    (theirs(**inputs).loss * len(places)).backward()
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    named = to_published(gradients, family_of(type(ours.backbone)).names(ours.backbone.config, None))
    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    assert expected.keys() <= named.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        difference = float((named[name] - gradient).abs().max())
        # A key's bias moves all scores of a row almost alike: its gradient is nearly 0, and rounding shows.
        size = largest if name.endswith(("key_proj.bias", "attn.k.bias")) else float(gradient.abs().max())
        assert difference <= 2e-5 * size, (name, difference, size)


HEADS = ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "Model"]


@pytest.mark.parametrize("family, options", FAMILIES)
@pytest.mark.parametrize("kind", HEADS)
def test_a_folder_with_another_head_opens_here(family: str, options: dict[str, Any], kind: str, tmp_path: Path) -> None:
    labels = {} if kind == "ForQuestionAnswering" else {"num_labels": 3}
    theirs = published(tmp_path, family, kind, SHAPE | options | labels)
    ours, rows = load_model(tmp_path).learner, random_rows((150, 30, 30, 4))
    segments = family_of(type(ours.backbone)).has_segments
    with torch.no_grad():
        batch = Batch.of(rows, {})
        vectors = ours.backbone(batch).vectors
        head = next((objective.out for objective in ours.objectives.values()), torch.nn.Identity())
        for row, start in enumerate(rows.starts):
            part, inputs = slice(start, start + rows.lengths[row]), their_inputs(rows, row, segments)
            if kind == "ForMultipleChoice":
                inputs = {key: value[None] for key, value in inputs.items()}
            answer = theirs(**inputs)
            if kind in ("ForSequenceClassification", "ForMultipleChoice"):
                found, expected = head(ours.backbone.pool(vectors, batch)[row]), answer.logits[0]
            elif kind == "ForQuestionAnswering":
                found, expected = head(vectors[part]), torch.stack([answer.start_logits[0], answer.end_logits[0]], 1)
            else:
                found, expected = head(vectors[part]), (answer.logits if labels and kind != "Model" else answer[0])[0]
            assert found.shape == expected.shape and float((found - expected).abs().max()) <= 1e-5


@pytest.mark.parametrize(
    "family, change, message",
    [
        ("DebertaV2", {"pos_att_type": "p2c|c2p|p2p"}, "pos_att_type has 'p2p'"),
        ("DebertaV2", {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd has 'batch_norm'"),
        ("DebertaV2", {"attention_head_size": 7}, "attention_head_size is 7"),
        ("DebertaV2", {"pooler_hidden_size": 96}, "pooler_hidden_size is 96"),
        ("DebertaV2", {"conv_kernel_size": 4}, "convolution 4 is even"),
        ("DebertaV2", {"position_buckets": 404}, "half of the buckets"),
        ("DebertaV2", {"hidden_act": "swish"}, "'gelu', 'gelu_new', 'relu'"),
        ("DebertaV2", {"position_buckets": "many"}, "not a configuration Keel can use"),
        ("DebertaV2", {"pos_att_type": 3}, "not a configuration Keel can use"),
        ("MPNet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets is 64"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(
    family: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    published(tmp_path, family, "ForMaskedLM", SHAPE | dict(FAMILIES)[family])
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message) as told:
        load_model(tmp_path)
    assert "\n" not in str(told.value)


def test_tensors_of_published_pretraining_are_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """v3's folders also hold the head of its discriminator, and the published layout of the masked-LM head without
    `legacy` in config.json."""
    from safetensors.torch import load_file, save_file

    theirs = published(tmp_path, "DebertaV2", "ForMaskedLM", SHAPE | V3 | {"legacy": False})
    tensors = load_file(tmp_path / "model.safetensors")
    extra = ["mask_predictions.dense.weight", "mask_predictions.classifier.bias"]
    extra += ["deberta.embeddings.word_embeddings._weight", "deberta.embeddings.position_embeddings.weight"]
    save_file(tensors | {name: torch.ones(3) for name in extra}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    del config["legacy"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_same_values(load_model(tmp_path).learner, theirs, random_rows((40, 3)))
    assert "4 tensors" in capsys.readouterr().err
    both = tensors | {"cls.predictions.bias": tensors["lm_predictions.lm_head.bias"] + 1}
    save_file(both, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"unexpected tensor 'lm_predictions\.lm_head\.bias'"):
        load_model(tmp_path)
