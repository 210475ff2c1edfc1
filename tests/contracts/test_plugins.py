"""The library for authors of plug-ins: a good one passes, and what is done wrong on purpose is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keel
from keel import catalog
from keel.testing.contracts import check_backbone, check_device, check_objective, check_packer, check_task

GOOD = Path(__file__).with_name("plugin_example.py")
SELF_UPDATING = '''
import torch

from keel.configs import ObjectiveConfig
from keel.interfaces import SelfUpdatingObjective
from keel.values import Score


class Shrink(SelfUpdatingObjective):
    """Gives no gradients at all."""

    name = "shrink"
    Config = ObjectiveConfig

    def __init__(self, config, backbone):
        super().__init__()
        self.config = config
        self.register_buffer("size", torch.ones(()))

    def prepare(self, rows, tokenizer):
        return rows, {"shrink.answers": rows.ids}

    def predict(self, encoder, batch):
        return torch.nn.functional.one_hot(batch.ids, 80)

    @torch.no_grad()
    def forward(self, encoder, batch):
        loss = encoder(batch).vectors.square().sum() * self.size
        return {"shrink": Score(loss, (batch.ids >= 0).sum(), len(batch.ids), self.config.weight)}

    @torch.no_grad()
    def update(self, backbone, rows, learning_rate):
        self.size *= 1 - learning_rate
        backbone.token_embeddings().mul_(1 - learning_rate)
        return {"shrink": Score(self.size, None, len(rows.ids))}
'''


Plugin = Callable[..., str]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    """Adds the example with some of its text replaced, for this test alone; returns the file."""
    monkeypatch.setattr(catalog, "_plugins", {})

    def add(*changes: tuple[str, str], source: str = GOOD.read_text(encoding="utf-8")) -> str:
        for before, after in changes:
            assert source.count(before) == 1, before
            source = source.replace(before, after)
        file = tmp_path / "plugin.py"
        file.write_text(source, encoding="utf-8")
        keel.add_plugin(str(file))
        return str(file)

    return add


def voices(count: int) -> list[Any]:
    """Examples of the task with answers; the last does not fit into a row."""
    kind = type(catalog.find("tasks", "vote")(None, None).example(""))
    texts = [" ".join(f"w{n}" for n in range(10, 12 + number)) for number in range(count - 1)]
    return [kind(text, "ab"[n % 2]) for n, text in enumerate([*texts, "w10 " * 40])]


def test_a_good_plugin_passes(plugin: Plugin) -> None:
    plugin()
    check_backbone("mixer")
    check_backbone("mixer", layers=1, width=6)
    check_objective("mixer", "masked_lm")
    for backbone in ("mixer", "bert", "gpt"):
        check_objective(backbone, "simcse", temperature=0.1)
    check_packer("single_sentences")


def test_a_good_task_passes_with_and_without_answers(plugin: Plugin) -> None:
    plugin()
    for backbone in ("mixer", "electra"):
        check_task(backbone, "vote")
        check_task(backbone, "vote", voices(5))
    check_task("mixer", "classify", pooling="mean")


def test_an_objective_without_gradients_passes(plugin: Plugin) -> None:
    plugin(source=SELF_UPDATING)
    check_objective("word2vec", "shrink")


# What is done wrong -> the rule that must be named, and what is replaced in the example by what.
Broken = dict[str, tuple[str, list[tuple[str, str]]]]

OTHERS = "mean_of_rows(x, batch)[row_of_token(batch)]"
ROW_VECTORS = """
    def row_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        return mean_of_rows(vectors, batch)
"""
ONLY_SELECTED = """
        if batch.selected is not None:
            return Encoding.of(batch, [layers[-1][batch.selected.places]], batch.selected, False)
        return Encoding(layers[-1], t"""
BACKBONES: Broken = {
    "rows leak into each other": ("depend on the other rows.*batch.lengths", [(OTHERS, "x.mean(0)")]),
    "reads less than it says": ("context is 'both'.*declare 'none'", [(OTHERS, "0")]),
    "an undeclared block": (
        "blocks were run 1 times for 2 layers.*put every layer into `blocks`",
        [
            ("for _ in range(config.layers))", "for _ in range(1))\n        self.top = Block(config.width)"),
            ("for block in self.blocks", "for block in (*self.blocks, self.top)"),
        ],
    ),
    "an idle parameter": (
        "no objective gives .*idle.* leave them out",
        [("self.tokens = nn.E", "self.idle = nn.Linear(2, 2)\n        self.tokens = nn.E")],
    ),
    "a start of its own": (
        "init_weights does not set",
        [("init_normal(self, self.config.init_std, generator)", "pass")],
    ),
    "no pooler": ("create one if config.pooler is true", [("    pooler: Literal[False] = False\n", "")]),
    "no default": (
        "give every field a default",
        [("    layers: int = 2\n", "    layers: int = 2\n    scale: float\n")],
    ),
    "torch's dropout": (
        "same seed gives different vectors",
        [("self.dropout = Dropout(", "self.dropout = nn.Dropout(")],
    ),
    "a layer too few": ("gives 2 layers, not 3", [("tuple(layers) if", "tuple(layers[1:]) if")]),
    "half a table": ("one row for each", [("return self.tokens.weight", "return self.tokens.weight[:-1]")]),
    "rows of vectors left out": (
        "row_vectors reads more",
        [
            ("    def token_head", f"{ROW_VECTORS}\n    def token_head"),
            ("\n        return Encoding(layers[-1], t", ONLY_SELECTED),
        ],
    ),
    "keeps the padding": (
        "the padding of pad_to_multiple changes results.*`len\\(batch.ids\\)`",
        [
            ("from keel.layers.pooling", "from keel.layers.padding import pad_to_multiple\nfrom keel.layers.pooling"),
            ("        return Enc", "        layers[-1] = pad_to_multiple(layers[-1])\n        return Enc"),
        ],
    ),
    "a number nobody saves": (
        "a loaded model gives different vectors.*in buffers",
        [
            ("self.dropout = D", "self.shift = 0.0\n        self.dropout = D"),
            ("        init_normal(self, s", "        self.shift = 0.5\n        init_normal(self, s"),
            ("self.tokens(batch.ids)", "self.tokens(batch.ids) + self.shift"),
        ],
    ),
}
NOISE = "(other + 0.1 * torch.randn_like(other)).t()"
OBJECTIVES: Broken = {
    "draws from torch's generator": (
        "draw with keel.randomness.uniform",
        [("np.arange(len(rows.lengths))}", "torch.randperm(7).numpy()[: len(rows.lengths)]}")],
    ),
    "changes the rows": (
        "prepare changes the rows it is given",
        [('        return rows, {"simcse', '        rows.ids[3] = 7\n        return rows, {"simcse')],
    ),
    "rows need each other": ("declare needs.whole_batch", [(", whole_batch=True)", ")")]),
    "forgets its weight": (
        "pass `self.config.weight` to Score",
        [("len(answers), self.config.weight)", "len(answers))")],
    ),
    "cannot count": (
        "counts 1 answers, but .* has 7",
        [("len(answers), self.config.weight)", "1, self.config.weight)")],
    ),
    "names of others": ("not named after the objective", [('"simcse.answers": np', '"row.answers": np')]),
    "noise of its own": ("the same seed gives another loss", [("other.t()", NOISE)]),
    "reads more than it says": (
        "losses or gradients change",
        [("encoder.backbone.row_vectors(encoding.vectors, batch)", "mean_of_rows(encoding.vectors, batch)")],
    ),
    "scores something else": (
        "score what predict gives",
        [
            (
                "(logits.argmax(1) == answers).sum(), len(answers), s",
                "(logits.argmin(1) == answers).sum(), len(answers), s",
            )
        ],
    ),
    "teaches nothing": (
        "the loss has no gradient",
        [("(encoding.vectors, batch)", "(encoding.vectors.detach(), batch)")],
    ),
}
SALTED = """
    def __init__(self, config: VoteConfig, data: Any) -> None:
        super().__init__(config, data)
        self.salt = float(np.random.rand())
"""
LOOP = "label = self.config.labels.index"
VOTES = '"score": float(output.max())'
TASKS: Broken = {
    "drops an example": (
        "have windows for .*at least one for each",
        [(LOOP, f"if number == 1:\n                continue\n            {LOOP}")],
    ),
    "counts from one": ("its index, from 0", [("[ids[:room]]), number,", "[ids[:room]]), number + 1,")]),
    "rows too long": ("data.length is 32: truncate", [("[ids[:room]])", "[ids])")]),
    "an answer too few": ("4 answers for 5 examples", [("for output in outputs]", "for output in outputs[1:]]")]),
    "answers that compare": (
        "among others, but .* alone",
        [(VOTES, '"score": float(output.max() - outputs[0].max())')],
    ),
    "outputs too few": (
        "predict gives 4 outputs for 5",
        [
            (
                "logits: Tensor = self.out(mean_of_rows(encoder(batch).vectors, batch))",
                "logits: Tensor = self.out(mean_of_rows(encoder(batch).vectors, batch)[1:])",
            )
        ],
    ),
    "teaches nothing": (
        "no gradient reaches the encoder",
        [("(encoder(batch).vectors, batch)", "(encoder(batch).vectors.detach(), batch)")],
    ),
    "means": (
        "return sums, not means",
        [
            (
                "return {self.name: Score(loss, (logits.argmax(1) == answers).sum(), len(answers))}",
                "return {self.name: Score(loss / len(answers), (logits.argmax(1) == answers).sum(), len(answers))}",
            )
        ],
    ),
    "no such metric": ("primary one is 'f1'", [('self.votes)}, "accuracy"', 'self.votes)}, "f1"')]),
    "only the last group": ("scored one by one", [("self.votes += len(examples)", "self.votes = len(examples)")]),
    "a number nobody saves": (
        "a loaded model answers",
        [
            ("    def open(self", f"{SALTED}\n    def open(self"),
            (VOTES, '"score": float(output.max()) + self.salt'),
        ],
    ),
}


@pytest.mark.parametrize("mistake", BACKBONES)
def test_a_broken_backbone_is_found(mistake: str, plugin: Plugin) -> None:
    rule, changes = BACKBONES[mistake]
    plugin(*changes)
    with pytest.raises(AssertionError, match=rule):
        check_backbone("mixer")


@pytest.mark.parametrize("mistake", OBJECTIVES)
def test_a_broken_objective_is_found(mistake: str, plugin: Plugin) -> None:
    rule, changes = OBJECTIVES[mistake]
    plugin(*changes)
    with pytest.raises(AssertionError, match=rule):
        check_objective("bert", "simcse")


@pytest.mark.parametrize("mistake", TASKS)
def test_a_broken_task_is_found(mistake: str, plugin: Plugin) -> None:
    rule, changes = TASKS[mistake]
    plugin(*changes)
    with pytest.raises(AssertionError, match=rule):
        check_task("bert", "vote", voices(5))


def test_the_device_is_tried_with_plugins(plugin: Plugin) -> None:
    check_device("mixer", plugins=[plugin()])


def test_an_objective_that_looks_at_numbers_is_found(plugin: Plugin) -> None:
    file = plugin(("other.t() / self", "other.t() / float(one.max()) / self"))
    with pytest.raises(AssertionError, match=r"mixer simcse: DataDependent.*\n(.*\n)*.*do not synchronise with it"):
        check_device("simcse", plugins=[file])


def test_authors_need_no_pytest() -> None:
    code = "import sys, keel.testing.contracts, keel.testing.fake_device; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
