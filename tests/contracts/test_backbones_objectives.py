"""What every backbone and every objective owes the others, asked of each file in the two folders.

A new file is tested by existing. Each pair is tried on a flat batch of mixed lengths: on the CPU, and with fake tensors
on a device that is not there, where a hard-coded device or a hidden wait for the device (`.item()`) is an error.
"""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import catalog
from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Objective, Rows
from keel.layers import filler
from keel.layers.dropout import drawing
from keel.tokenizers.wordpiece import WordPiece
from keel.training.learner import Learner
from keel.training.loop import _objective_sum
from keel.training.model_folder import assemble, load_model, save_model
from keel.training.precision import autocast
from keel.training.side_by_side import add_gradients

CPU = torch.device("cpu")
SIZE = 70
LENGTHS = (32, 21, 21, 12, 7, 7, 5)
SMALL = {
    "vocabulary": SIZE,
    "layers": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 24,
    "positions": 32,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "embedding_width": 8,
    "cells": 24,
    "filters": [(1, 4), (3, 6)],
    "spelling": 9,
    "buckets": 50,
    "neighbourhood": 8,
    "padding": 0,
    "pooler": True,
}
BACKBONES, OBJECTIVES = catalog.names("backbones"), catalog.names("objectives")


class Vocabulary:
    size, pad, unk, cls, sep, mask = SIZE, 0, 1, 2, 3, 4

    def token(self, id: int) -> str:
        return f"w{id}"


def make_backbone(name: str, **options: Any) -> Backbone:
    kind = catalog.find("backbones", name)
    known = {key: value for key, value in (SMALL | options).items() if key in kind.Config.model_fields}
    backbone: Backbone = kind(kind.Config(**known))
    return backbone


def fitting(backbone: str) -> list[str]:
    """The objectives that go with a backbone; the others say why not."""
    found = []
    for name in OBJECTIVES:
        with contextlib.suppress(UserError):
            assemble(make_backbone(backbone), {name: {}})
            found.append(name)
    return found


def make_learner(backbone: str, objectives: list[str], **options: Any) -> Learner:
    learner = assemble(make_backbone(backbone, **options), {name: {} for name in objectives})
    generator = torch.Generator().manual_seed(0)
    learner.backbone.start(generator)
    learner.backbone.meet(Vocabulary())  # type: ignore[arg-type]
    with torch.no_grad():  # biases and norms that start at 0 and 1 would hide mistakes
        for parameter in learner.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return learner


def prepared(learner: Learner, rows: Rows, device: str = "cpu") -> Batch:
    return learner.prepare(rows, Vocabulary(), device)  # type: ignore[arg-type]


pairs = pytest.mark.parametrize(
    "backbone, objectives",
    [(b, [o]) for b in BACKBONES for o in fitting(b)] + [(b, fitting(b)) for b in BACKBONES],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
each_backbone = pytest.mark.parametrize("backbone", BACKBONES)


@pytest.fixture
def rows(make_rows: Callable[..., Rows]) -> Rows:
    made: Rows = make_rows(LENGTHS, SIZE)
    return made


def test_there_is_something_to_test() -> None:
    assert "bert" in BACKBONES and {"masked_lm", "next_sentence"} <= set(OBJECTIVES)
    for name in BACKBONES:
        assert issubclass(catalog.find("backbones", name), Backbone)
    for name in OBJECTIVES:
        kind = catalog.find("objectives", name)
        assert issubclass(kind, Objective) and kind.name == name, "an objective is called as its file is"
        assert kind.Config().weight > 0, "an objective needs no options, and has a weight"


@pairs
def test_losses_are_finite_and_gradients_reach_every_parameter(
    backbone: str, objectives: list[str], rows: Rows
) -> None:
    learner = make_learner(backbone, objectives).train()
    batch = prepared(learner, rows)
    scores = learner(batch)
    counts = learner.answer_counts(batch)
    assert set(scores) == set(learner.weights()) >= set(objectives)
    for name, score in scores.items():
        assert score.loss.shape == () and torch.isfinite(score.loss) and float(score.loss.detach()) > 0
        assert score.count == counts[name] > 0
        assert 0 <= int(score.correct) <= score.count
    _objective_sum(learner, scores, counts).backward()
    without = {
        name
        for name, p in learner.named_parameters()
        if p.grad is None or not torch.isfinite(p.grad).all() or not p.grad.abs().sum() > 0
    }
    if objectives == fitting(backbone):
        assert not without, "all objectives together use all of the model"
    assert not {name for name in without if name.startswith("objectives.")}
    pooler = {name for name, _ in learner.named_parameters() if name.startswith("backbone.pooler")}
    assert without <= pooler, "only the pooler is for some objectives alone"


@pairs
def test_rows_together_answer_as_each_row_alone(backbone: str, objectives: list[str], rows: Rows) -> None:
    learner = make_learner(backbone, objectives).eval()
    with torch.no_grad():
        together = learner(prepared(learner, rows))
        alone = [learner(prepared(learner, rows.pick([row]))) for row in range(len(LENGTHS))]
    for name, score in together.items():
        assert float(score.loss) == pytest.approx(sum(float(part[name].loss) for part in alone), rel=1e-5)
        assert int(score.correct) == sum(int(part[name].correct) for part in alone)
        assert score.count == sum(part[name].count for part in alone)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pairs
def test_slices_side_by_side_are_slices_one_after_the_other(
    backbone: str, objectives: list[str], precision: str, rows: Rows
) -> None:
    """Nothing that a model keeps from one call to the next, and no draw of dropout, is shared by threads."""
    found, made = [], make_learner(backbone, objectives, dropout=0.2, attention_dropout=0.2).train()
    for threads in (1, 2):
        learner = copy.deepcopy(made)
        parts = [prepared(learner, rows.pick(list(part))) for part in ((0, 3, 5), (1, 2, 4, 6))]

        def ask(number: int, learner: Learner = learner, parts: list[Batch] = parts) -> tuple[torch.Tensor, Any]:
            with drawing(number, CPU), autocast(CPU, precision, lanes=2):
                scores = learner(parts[number])
            return _objective_sum(learner, scores, learner.answer_counts(parts[number])), None

        torch.set_num_threads(threads)
        try:
            assert list(add_gradients(learner, ask, len(parts), 2, CPU)) == [None, None]
        finally:
            torch.set_num_threads(1)
        found.append({name: p.grad for name, p in learner.named_parameters() if p.grad is not None})
    one, other = found
    assert one and one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pairs
def test_predictions_are_what_is_scored(backbone: str, objectives: list[str], rows: Rows) -> None:
    learner = make_learner(backbone, objectives).eval()
    batch = prepared(learner, rows)
    with torch.no_grad():
        scores = learner(batch)
        batch, _ = learner.disguise(batch)
        for name in objectives:
            logits = learner.objectives[name].predict(learner.backbone, batch)  # type: ignore[operator]
            assert len(logits) == scores[name].count
            right = logits.argmax(-1) == batch.targets[f"{name}.answers"]
            assert int(right.sum()) == int(scores[name].correct)


@pairs
def test_hiding_is_repeatable_and_gives_only_targets_of_its_own(
    backbone: str, objectives: list[str], rows: Rows
) -> None:
    learner = make_learner(backbone, objectives)
    one, two = prepared(learner, rows), prepared(learner, rows)
    assert torch.equal(one.ids, two.ids) and one.lengths == rows.lengths
    assert one.targets.keys() == two.targets.keys()
    assert all(torch.equal(one.targets[name], two.targets[name]) for name in one.targets)
    assert all(any(name.startswith(f"{o}.") for o in objectives) for name in one.targets)
    assert all(f"{name}.answers" in one.targets for name in learner.weights())


@each_backbone
def test_vectors_do_not_depend_on_company(backbone: str, rows: Rows) -> None:
    model = make_learner(backbone, fitting(backbone)).backbone.eval()
    with torch.no_grad():
        together = model(Batch.of(rows, {})).vectors
        alone = torch.cat([model(Batch.of(rows.pick([row]), {})).vectors for row in range(len(LENGTHS))])
    assert together.shape == (sum(LENGTHS), model.width)
    assert float((together - alone).abs().max()) <= 1e-5


@pairs
def test_what_nobody_looks_at_may_be_left_out(backbone: str, objectives: list[str], rows: Rows) -> None:
    """An objective that declares which vectors it looks at gets the score and gradients it would get from all."""
    learner = make_learner(backbone, objectives)
    batch = prepared(learner, rows)
    found = []
    for asked in (batch.asked, None):
        learner.zero_grad()
        scores = learner(replace(batch, asked=asked))
        _objective_sum(learner, scores, learner.answer_counts(batch)).backward()
        found.append([*(s.loss.detach() for s in scores.values()), *(p.grad for p in learner.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_backbone
def test_filler_takes_no_part(backbone: str, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 products like round numbers of tokens (`layers/filler.py`): same scores, gradients and layers with them."""
    learner = make_learner(backbone, fitting(backbone))
    batch = prepared(learner, rows)
    found = []
    for needed in (False, True):
        monkeypatch.setattr(filler, "_needed", lambda x, needed=needed: needed)
        learner.zero_grad()
        scores = learner(batch)
        _objective_sum(learner, scores, learner.answer_counts(batch)).backward()
        with torch.no_grad():
            layers = learner.backbone(batch, every_layer=True).layers
        losses = [score.loss.detach() for score in scores.values()]
        found.append([*losses, *(p.grad.clone() for p in learner.parameters()), *layers])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_backbone
def test_every_layer_ends_with_the_answer(backbone: str, rows: Rows) -> None:
    model = make_learner(backbone, fitting(backbone)).backbone.eval()
    with torch.no_grad():
        plain, layered = model(Batch.of(rows, {})), model(Batch.of(rows, {}), every_layer=True)
    assert plain.layers == () and len(layered.layers) == model.config.layers + 1
    assert torch.equal(layered.layers[-1], layered.vectors) and torch.equal(plain.vectors, layered.vectors)
    assert all(layer.shape == plain.vectors.shape for layer in layered.layers)
    assert not model.has_table or len(model.token_table()) == SIZE


@each_backbone
def test_fine_tuning_can_reach_inside(backbone: str, rows: Rows) -> None:
    """The token table may be replaced by another, the layers are all of `blocks`, the pooler comes and goes."""
    model = make_learner(backbone, fitting(backbone)).backbone.eval()
    with torch.no_grad():
        before = model(Batch.of(rows, {})).vectors
        if hasattr(model, "tokens"):
            table = model.tokens.weight
            model.tokens = torch.nn.Embedding.from_pretrained(table.detach().clone())
            assert torch.equal(model(Batch.of(rows, {})).vectors, before)
        assert len(model.blocks) >= min(1, model.config.layers)
        for block in model.blocks:
            was = {name: tensor.clone() for name, tensor in block.state_dict().items()}
            for parameter in block.parameters():
                parameter += 0.3
            assert not torch.equal(model(Batch.of(rows, {})).vectors, before), "a block that takes no part"
            block.load_state_dict(was)
    for wanted in (True, False):
        if "pooler" in model.config.__class__.model_fields:
            assert (make_backbone(backbone, pooler=wanted).pooler is not None) == wanted


@each_backbone
def test_fresh_weights_are_a_function_of_the_generator(backbone: str) -> None:
    tables = []
    for seed in (1, 1, 2):
        model = make_backbone(backbone)
        model.start(torch.Generator().manual_seed(seed))
        tables.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(tables[0], tables[1]) and not torch.equal(tables[0], tables[2])
    assert torch.isfinite(tables[0]).all()


@each_backbone
def test_dropout_works_in_training_only(backbone: str, rows: Rows) -> None:
    model = make_learner(backbone, fitting(backbone), dropout=0.3, attention_dropout=0.3).backbone
    batch = Batch.of(rows, {})

    def vectors(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            answer: torch.Tensor = model(batch).vectors
        return answer

    model.train()
    drops = "dropout" in type(model.config).model_fields
    assert torch.equal(vectors(1), vectors(1)) and torch.equal(vectors(1), vectors(2)) != drops
    model.eval()
    assert torch.equal(vectors(1), vectors(2))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(SIZE - 5))]))
    return WordPiece.load(path)


@pairs
def test_a_saved_folder_opens_here_and_in_transformers(
    backbone: str, objectives: list[str], rows: Rows, tokenizer: WordPiece, tmp_path: Path
) -> None:
    """Here with every tensor; there with no key missing or unexpected, and the same vectors."""
    import transformers

    learner = make_learner(backbone, objectives).eval()
    save_model(tmp_path, learner, tokenizer, "")
    loaded = load_model(tmp_path).learner
    tensors, back = learner.named_tensors(), loaded.named_tensors()
    assert back.keys() == tensors.keys() and all(torch.equal(back[name], tensors[name]) for name in tensors)

    published = json.loads((tmp_path / "config.json").read_text())
    if published["model_type"] not in transformers.CONFIG_MAPPING:
        assert backbone in ("word2vec", "fasttext", "elmo", "rnn", "transformer"), (
            "a family that is known there opens there"
        )
        return
    kind = getattr(transformers, published["architectures"][0])
    theirs, account = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not {key: found for key, found in account.items() if found}
    base = theirs.base_model.eval()
    with torch.no_grad():
        ours = loaded.backbone(Batch.of(rows, {})).vectors
        for row, start in enumerate(rows.starts):
            part = slice(start, start + rows.lengths[row])
            given = {"input_ids": torch.tensor(rows.ids[part])[None]}
            if backbone in ("bert", "albert", "electra"):
                given["token_type_ids"] = torch.tensor(rows.segments[part])[None]
            answer = base(**given).last_hidden_state[0]
            assert float((answer - ours[part]).abs().max()) <= 1e-5


def test_an_objective_that_does_not_fit_says_so() -> None:
    for backbone in BACKBONES:
        for name in set(OBJECTIVES) - set(fitting(backbone)):
            with pytest.raises(UserError, match=f"{name} needs a backbone"):
                assemble(make_backbone(backbone), {name: {}})
        assert fitting(backbone), f"{backbone} learns from nothing"


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, Any]:
    """What happened on a device that is not the CPU; see fake_device.py."""
    program = Path(__file__).with_name("fake_device.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=400)
    if "_setup_privateuseone_for_python_backend" in done.stderr:
        pytest.skip("this torch cannot register a device from Python")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pairs
def test_nothing_is_tied_to_the_cpu(backbone: str, objectives: list[str], elsewhere: dict[str, Any]) -> None:
    """Forward, predictions and backward without a tensor on the wrong device or a wait for the device."""
    found = elsewhere[f"{backbone} {'+'.join(objectives)}"]
    assert found == "ok"


@each_backbone
def test_no_task_is_tied_to_the_cpu(backbone: str, elsewhere: dict[str, Any]) -> None:
    kinds = catalog.names("tasks")
    found = {name: said for name, said in elsewhere.items() if name.split()[1:] and name.split()[1] in kinds}
    assert {name.split()[1] for name in found} == set(kinds), "a task without a trial in fake_device.py"
    assert {name: said for name, said in found.items() if name.startswith(backbone) and said != "ok"} == {}


@each_backbone
def test_a_step_waits_for_the_device_only_at_its_end(backbone: str, elsewhere: dict[str, Any]) -> None:
    assert elsewhere[f"{backbone} loop"] == "ok"


def test_the_fake_device_finds_what_it_is_there_to_find(elsewhere: dict[str, Any]) -> None:
    assert elsewhere["mistakes"] and "ok" not in elsewhere["mistakes"].values()
