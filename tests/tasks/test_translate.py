"""Translation: decoding with what was kept equals decoding afresh, batches equal single texts, and it learns."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keel import catalog
from keel.errors import UserError, separate
from keel.files.folders import write_folder
from keel.layers.dropout import seeded_dropout
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.learner import Learner
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import outputs, to_rows
from keel.tasks.translate import TranslateConfig, TranslateObjective
from keel.text.labelled import LabelledData
from keel.text.parallel import read_pairs
from keel.training.example_stream import POOL, ExampleStream
from keel.training.micro_batches import add_gradients
from keel.training.precision import autocast
from keel.training.settings import FinetuneSettings
from keel.values import Batch, TaskNeeds, Window

SIZE = 30
DECODERS = ["transformer", "rnn", "rnn-attention"]


class Vocabulary:
    size, pad, unk, cls, sep, mask, between = SIZE, 0, 1, 2, 3, 4, 1


def make(decoder: str, backbone: str = "transformer", frozen: bool = False, **options: Any) -> Learner:
    kind = catalog.find("backbones", backbone)
    small = {"vocabulary": SIZE, "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 64}
    small |= {"dropout": 0.0, "attention_dropout": 0.0}
    config = kind.Config(**{k: v for k, v in (small | options).items() if k in kind.Config.model_fields})
    task = catalog.find("tasks", "translate")
    given = {"decoder": decoder, "dropout": 0.0, "max_length": 12}
    given |= {k: v for k, v in options.items() if k == "beam_size"}
    torch.manual_seed(0)
    setup = TaskSetup(task(TranslateConfig(**given), LabelledData()), EncoderSettings(frozen=frozen))  # type: ignore[arg-type]
    made = setup.make_learner(kind(config))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.4, generator=generator)
    return made.eval()


def windows(count: int = 7, seed: int = 0) -> list[Window]:
    source = np.random.default_rng(seed)
    found = []
    for number in range(count):
        ids = np.array([2, *source.integers(5, SIZE, source.integers(1, 9)), 3])
        answer = np.array([2, *source.integers(5, SIZE, source.integers(1, 9)), 3])
        special = (ids == 2) | (ids == 3)
        found.append(Window(ids, np.zeros_like(ids), special, number, {"translate": answer}))
    return found


@pytest.mark.parametrize("position", ["sinusoid", "learned", "rotary"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_writing_token_by_token_gives_the_chances_of_reading_all_at_once(decoder: str, position: str) -> None:
    """With the cache or without it: the same to 1e-5, at every place of every text."""
    learner = make(decoder, position=position)
    objective: Any = learner.objectives["translate"]
    rows = to_rows(windows())
    batch = learner.prepare(rows, Vocabulary())  # type: ignore[arg-type]
    with torch.no_grad():
        encoder = learner.encoder()
        logits = objective.logits(encoder, batch)
        lengths, inputs = batch.targets["translate.lengths"], batch.targets["translate.inputs"]
        read = objective.read_source(encoder, batch).pick(batch.targets["translate.order"])
        for row, (whole, tokens) in enumerate(zip(logits.split(lengths), inputs.split(lengths), strict=True)):
            with objective.decoder.writing():
                mine = read.pick(torch.tensor([row]))
                for place, token in enumerate(tokens):
                    at = torch.tensor([place])
                    vectors = objective.decoder(objective.embed(encoder, token[None]), at, (1,), mine)
                    found = vectors @ objective.token_embeddings(encoder).t() + objective.bias
                    assert float((found[0] - whole[place]).abs().max()) <= 1e-5


@pytest.mark.parametrize("backbone", ["transformer", "rnn", "bert", "gpt"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_texts_together_are_translated_as_each_alone(decoder: str, backbone: str) -> None:
    learner = make(decoder, backbone, beam_size=3)
    given = windows(9)
    together = outputs(learner, given, Vocabulary())  # type: ignore[arg-type]
    for window, found in zip(given, together, strict=True):
        (alone,) = outputs(learner, [window], Vocabulary())  # type: ignore[arg-type]
        tokens = found[1:][found[1:] >= 0]
        assert np.array_equal(tokens, alone[1:][alone[1:] >= 0]) and abs(found[0] - alone[0]) <= 1e-5


@pytest.mark.parametrize("decoder", DECODERS)
def test_no_place_sees_what_comes_after_it(decoder: str) -> None:
    learner = make(decoder)
    objective: Any = learner.objectives["translate"]
    (window,) = windows(1, seed=3)
    answer = window.answers["translate"]
    for place in range(1, len(answer) - 1):
        changed = answer.copy()
        changed[place] = 5 + (changed[place] - 4) % (SIZE - 5)
        found = []
        for written in (answer, changed):
            rows = to_rows([Window(window.ids, window.segments, window.special, 0, {"translate": written})])
            with torch.no_grad():
                found.append(objective.logits(learner.encoder(), learner.prepare(rows, Vocabulary())))  # type: ignore
        assert torch.equal(found[0][:place], found[1][:place]) and not torch.equal(found[0][place], found[1][place])


def test_the_loss_is_torchs_with_smoothing() -> None:
    learner = make("transformer").train()
    objective: Any = learner.objectives["translate"]
    batch = learner.prepare(to_rows(windows()), Vocabulary())  # type: ignore[arg-type]
    logits = objective.logits(learner.encoder(), batch)
    right = torch.nn.functional.cross_entropy(
        logits, batch.targets["translate.answers"], label_smoothing=0.1, reduction="sum"
    )
    (expected,) = torch.autograd.grad(right, objective.bias)
    score = learner(batch)["translate"]
    (found,) = torch.autograd.grad(score.loss, objective.bias)
    assert float(score.loss.detach()) == pytest.approx(float(right.detach()), rel=1e-5)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("backbone", ["transformer", "rnn"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_half_precision_teaches_nearly_the_same(decoder: str, backbone: str) -> None:
    """Padding, packed rows and states in fp32: the loss and its gradient are those of fp32, to the 8 bits of bf16."""
    learner = make(decoder, backbone).train()
    batch = learner.prepare(to_rows(windows(20)), Vocabulary())  # type: ignore[arg-type]
    losses, gradients = [], []
    for half in (False, True):
        learner.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = learner(batch)["translate"].loss
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([p.grad.flatten() for p in learner.parameters() if p.grad is not None]))
    assert losses[1] == pytest.approx(losses[0], rel=0.03)
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.97


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_micro_batches_in_parallel_are_micro_batches_one_after_the_other(decoder: str, precision: str) -> None:
    found, cpu = [], torch.device("cpu")
    for threads in (1, 2):
        learner = make(decoder, attention_dropout=0.2).train()
        parts = [learner.prepare(to_rows(windows(9, seed)), Vocabulary(), cpu) for seed in (1, 2)]  # type: ignore[arg-type]

        def ask(number: int, learner: Learner = learner, parts: list[Batch] = parts) -> tuple[torch.Tensor, None]:
            with seeded_dropout(number, cpu), autocast(cpu, precision, parallel=2):
                return learner(parts[number])["translate"].loss, None

        torch.set_num_threads(threads)
        try:
            list(add_gradients(learner, ask, len(parts), 2, cpu))
        finally:
            torch.set_num_threads(1)
        found.append([p.grad for p in learner.parameters() if p.grad is not None])
    assert found[0] and all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_table_that_learns_is_shared_and_a_frozen_one_is_not() -> None:
    assert make("transformer").objectives["translate"].table is None
    frozen = make("transformer", frozen=True).objectives["translate"]
    assert isinstance(frozen, TranslateObjective) and frozen.table is not None


def test_parallel_files_are_read_line_by_line(tmp_path: Path) -> None:
    left, right = tmp_path / "a.en", tmp_path / "a.de"
    left.write_text("A dog.\n\nTwo cats.\r\n", encoding="utf-8")
    right.write_text("Ein Hund.\nNichts.\nZwei Katzen.\n", encoding="utf-8")
    pairs, rejected = separate(read_pairs(f"{left},{right}", LabelledData(), translated=True))
    assert [(p.text, p.answer) for p in pairs] == [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen.")]
    assert [(r.file, r.line, r.reason) for r in rejected] == [(str(left), 2, "empty source")]


def test_commas_in_names_do_not_split_them(tmp_path: Path) -> None:
    for name, text in (("a,1.en", "A dog."), ("a,1.de", "Ein Hund.")):
        (tmp_path / name).write_text(text)
    pairs, _ = separate(read_pairs(f"{tmp_path}/a,1.en,{tmp_path}/a,1.de", LabelledData(), translated=True))
    assert [(p.text, p.answer) for p in pairs] == [("A dog.", "Ein Hund.")]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(1, 8), st.integers(0, 3))
def test_steps_of_similar_lengths_are_still_every_example_once(lengths: list[int], batch: int, seed: int) -> None:
    windows = [Window(*[np.zeros(n, np.int64)] * 3, k, {"x": np.array([k])}) for k, n in enumerate(lengths)]
    settings = FinetuneSettings(batch_size=batch, micro_batches=1, seed=seed)
    source, cursors, seen = ExampleStream(windows, settings, TaskNeeds(group_by_length=True)), {}, []
    while len(seen) < len(lengths):
        (rows,), cursors = source(0.0, cursors)
        seen += rows.answers["x"].ravel().tolist()
    assert sorted(seen) == list(range(len(lengths))) and cursors["main"].epoch == 1
    if len(lengths) <= POOL * batch:
        steps = [lengths[k] for k in seen[: len(seen) - len(seen) % batch]]
        spans = sorted((min(part), max(part)) for part in zip(*[iter(steps)] * batch, strict=True))
        assert all(a[1] <= b[0] for a, b in pairwise(spans)), "no step's lengths reach into another's"


def test_files_of_different_length_are_refused_with_the_line(tmp_path: Path) -> None:
    left, right = tmp_path / "a.en", tmp_path / "a.de"
    left.write_text("One.\nTwo.\nThree.\n", encoding="utf-8")
    right.write_text("Eins.\nZwei.\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.en, line 3: has no counterpart, because .*a\.de ends with line 2"):
        separate(read_pairs(f"{left},{right}", LabelledData(), translated=True))


def test_tables_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"en": "A dog.", "de": "Ein Hund."}, {"en": " ", "de": "Leer."}, {"en": "A cat.", "de": None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pairs, rejected = separate(read_pairs(str(path), LabelledData(text="en", label="de"), translated=True))
    assert [(p.text, p.answer) for p in pairs] == [("A dog.", "Ein Hund.")]
    assert [(r.line, r.reason) for r in rejected] == [(2, "empty source"), (3, "empty translation")]


@pytest.mark.parametrize("recipe, decoder", [("transformer-mini", "transformer"), ("rnn-mini", "rnn-attention")])
def test_a_translator_learns_is_saved_and_resumed(recipe: str, decoder: str, tmp_path: Path) -> None:
    """Words of one language into words of another, each its own; and every word of a text turned round."""
    from keel.inference.model import Model
    from keel.inference.translate import attention, open_translator, translate
    from keel.stages.finetune import finetune
    from keel.tokenizers.whole_words import from_list

    source = np.random.default_rng(0)
    english, german = ["dog", "cat", "bird", "runs", "sleeps"], ["Hund", "Katze", "Vogel", "rennt", "ruht"]
    lines = [source.integers(0, 5, source.integers(1, 5)) for _ in range(300)]
    for name, words, step in (("a.en", english, 1), ("a.de", german, -1)):
        (tmp_path / name).write_text("".join(" ".join(words[i] for i in line[::step]) + "\n" for line in lines))
    from_list([*english, *german], lowercase=False).save(tmp_path / "tokenizer")
    small = tmp_path / "small.yaml"
    shape = "layers: 1, width: 32" + (", heads: 2, feed_forward: 64" if decoder == "transformer" else "")
    small.write_text(f"extends: {recipe}\nmodel:\n  backbone: {{{shape}, dropout: 0.0}}\n")
    given: dict[str, Any] = {
        "train": f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}",
        "dev": f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}",
        "tokenizer": str(tmp_path / "tokenizer"),
        "quiet": True,
        "threads": 1,
    }
    changes = [f"task.decoder={decoder}", "task.dropout=0.0", "encoder.dropout=0.0", "training.batch_size=32"]
    changes += [
        "training.learning_rate=5e-3",
        "training.decay=constant",
        "training.checkpoint_steps=40",
        "task.beam_size=2",
    ]
    changes += ["training.warmup=16", "training.precision=fp32", "training.evaluate_steps=160"]
    out = str(tmp_path / "whole")
    result = finetune(str(small), "translate", out=out, overrides=[*changes, "training.steps=440"], **given)
    assert result["bleu"] > 90 and result["primary_metric"] == "bleu", result
    model = open_translator(out, beam=3)
    assert [a["translation"] for a in translate(model, ["dog runs", "", "bird"])] == ["rennt Hund", "", "Vogel"]
    assert Model.load(out).predict(["cat sleeps"])[0]["translation"] == "ruht Katze"
    said, found = attention(model, "dog runs")
    assert said == "rennt Hund" and found.written[:2] == ["rennt", "Hund"] and found.read[1:3] == ["dog", "runs"]
    np.testing.assert_allclose(found.weights.sum(-1), 1.0, atol=1e-5)
    cut = str(tmp_path / "cut")
    finetune(str(small), "translate", out=cut, overrides=[*changes, "training.steps=165"], **given)
    finetune(str(small), "translate", out=cut, overrides=[*changes, "training.steps=440"], resume=True, **given)
    one, other = (Model.load(path).learner.state_dict() for path in (out, cut))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_translators_encoder_serves_other_tasks(tmp_path: Path) -> None:
    from keel.stages.finetune import finetune
    from keel.tokenizers.whole_words import from_list

    from_list(["dog", "cat", "Hund", "Katze"], lowercase=False).save(tmp_path / "tokenizer")
    pairs, labels = tmp_path / "p.tsv", tmp_path / "l.tsv"
    pairs.write_text("text\tlabel\n" + "dog\tHund\ncat\tKatze\n" * 8)
    labels.write_text("text\tlabel\n" + "dog\ta\ncat\tb\n" * 8)
    fresh = {"tokenizer": str(tmp_path / "tokenizer"), "overrides": ["training.epochs=1"], "quiet": True}
    files = {"train": str(pairs), "dev": str(pairs), "out": str(tmp_path / "mt")}
    finetune("rnn-mini", "translate", **files, **fresh)  # type: ignore[arg-type]
    changes = ["encoder.frozen=true", "encoder.layers=mix", "training.epochs=30", "training.learning_rate=1e-2"]
    result = finetune(
        str(tmp_path / "mt"),
        "classify",
        train=str(labels),
        dev=str(labels),
        out=str(tmp_path / "c"),
        overrides=changes,
        quiet=True,
    )
    assert result["accuracy"] == 1.0


def test_mistakes_of_translating_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from keel.cli.main import run
    from keel.tokenizers.whole_words import from_list

    with write_folder(tmp_path / "tok", {}) as folder:
        from_list(["dog", "Hund"], lowercase=False).save(folder)
    (tmp_path / "a.en").write_text("dog\ndog\n")
    (tmp_path / "a.de").write_text("Hund\n")
    (tmp_path / "p.tsv").write_text("text\tlabel\ndog\tHund\ndog\tHund\n")
    start = ["finetune", "transformer-mini", "translate", "--tokenizer", str(tmp_path / "tok"), "--quiet"]
    done = [*start, "--train", str(tmp_path / "p.tsv"), "--dev", str(tmp_path / "p.tsv"), "--out", str(tmp_path / "m")]
    assert run([*done, "--epochs", "1"]) == 0
    (tmp_path / "latin.en").write_bytes(b"dog\nd\xf6g\n")
    capfd.readouterr()
    for words, expected in (
        ([*start, "--train", f"{tmp_path}/a.en", "--out", "x"], "a.en: has no translations. Name two files"),
        (["finetune", "transformer-mini", "translate", "--train", "a,b", "--out", "x"], "add --tokenizer DIR"),
        (["translate", str(tmp_path / "m"), "--file", f"{tmp_path}/latin.en"], "latin.en, line 2: invalid UTF-8"),
        (["translate", str(tmp_path / "m"), "dog", "--attention", f"{tmp_path}/a.en"], "a.en: already there"),
        ([*start, "--train", f"{tmp_path}/a.en,{tmp_path}/a.de", "--out", "x"], "a.en, line 2: has no counterpart"),
        ([*start, "--train", f"{tmp_path}/a.en,{tmp_path}/none", "--out", "x"], "none: no such file"),
        (["translate", str(tmp_path / "m"), ""], "an empty text"),
        (["translate", str(tmp_path / "m")], "needs texts, or --file"),
        (["translate", str(tmp_path / "m"), "dog", "dog", "--attention", "x.svg"], "draws one text"),
        (["translate", str(tmp_path / "m"), "", "--attention", "x.svg"], "nothing to draw"),
        (["translate", str(tmp_path / "m"), "dog", "--length-penalty", "inf"], "length penalty between 0 and 10"),
        (["translate", str(tmp_path / "m"), "dog", "--length-penalty", "1000"], "length penalty between 0 and 10"),
        ([*start, "--train", f"{tmp_path}/p.tsv,{tmp_path}/p.tsv", "--out", "x"], "p.tsv: is a table by itself"),
        (["translate", str(tmp_path / "tok"), "dog"], "config.json"),
    ):
        code = run(words)
        said = capfd.readouterr().err
        if expected == "an empty text":
            assert code == 0 and "1 of 1 lines are empty" in said
        else:
            assert code == 2 and expected in said and "Traceback" not in said, (words, said)
            assert len(said.splitlines()) == 1 + ("are empty" in said), (words, said)
