"""Folders of version 0.1 open with every tensor and compute the same; those that would not are refused.

What such folders contain, and what 0.1 computed with them, is recorded in `version_0_1.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keel import catalog
from keel.backbones.transformer import TransformerConfig
from keel.backbones.word2vec import Word2Vec, Word2VecConfig
from keel.errors import UserError
from keel.hugging_face.folder import load_model, save_model
from keel.learner.build import assemble
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.task_setup import TaskSetup
from keel.renamed_keys import MEMBERS
from keel.text.labelled import LabelledData
from keel.tokenizers.whole_words import WholeWords, from_list
from keel.values import Rows

sys.path.insert(0, str(Path(__file__).parent))
import version_0_1 as old

RECORDED: dict[str, Any] = json.loads(old.RECORDED.read_text(encoding="utf-8"))
REFUSED = {
    "translate gelu": "Transformer decoders on recurrent encoders used gelu",
    "rnn relu": "token heads on recurrent encoders used relu",
}
OPENED = [name for name in RECORDED if name not in REFUSED]


@pytest.fixture(scope="module")
def tokenizer() -> WholeWords:
    return from_list(old.WORDS, lowercase=True)


@pytest.mark.parametrize("name", OPENED)
def test_a_folder_opens_and_computes_the_same(name: str, tokenizer: WholeWords, tmp_path: Path) -> None:
    old.write(tmp_path, RECORDED[name], tokenizer)
    loaded = load_model(tmp_path)
    losses = {}
    for key, loss in RECORDED[name]["losses"].items():
        objective, _, part = key.partition(".")
        losses[".".join(filter(None, (MEMBERS.get(objective, objective), part)))] = loss
    assert old.losses(loaded.learner, loaded.tokenizer, Rows) == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("name", OPENED)
def test_a_folder_that_is_saved_again_has_todays_names(name: str, tokenizer: WholeWords, tmp_path: Path) -> None:
    """And computes the same as before."""
    old.write(tmp_path, RECORDED[name], tokenizer)
    loaded = load_model(tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    save_model(again, loaded.learner, loaded.tokenizer, "", loaded.setup)
    reopened = load_model(again)
    expected, found = (old.losses(model.learner, tokenizer, Rows) for model in (loaded, reopened))
    assert found == expected
    assert type(loaded.learner.backbone.config) is type(reopened.learner.backbone.config)
    written = json.loads((again / "config.json").read_text())
    keys = {key for section in ("task", "encoder") for key in written["keel"].get(section, {})} | set(written)
    if written["model_type"] in ("keel-elmo", "keel-fasttext", "keel-rnn", "keel-transformer"):
        assert not keys & {"start_deviation", "spelling", "highways", "least", "most", "attention_start"}
    assert not keys & {"longest", "beam", "smoothing", "use", "penalty", "restart", "freeze"}


def test_options_keep_their_values_under_new_names(tokenizer: WholeWords, tmp_path: Path) -> None:
    def opened(name: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        old.write(folder, RECORDED[name], tokenizer)
        return load_model(folder)

    translate, tag = opened("translate"), opened("tag frozen")
    task = translate.setup.task.config
    assert (task.max_length, task.beam_size, task.label_smoothing) == (9, 2, 0.1)
    assert translate.setup.encoder == EncoderSettings(reinit_layers=1, freeze_layers=1)
    encoder = tag.setup.encoder
    assert (encoder.frozen, encoder.layers, encoder.mix_penalty, encoder.bilstm.cells) == (True, "mix", 0.01, 3)
    elmo = tag.learner.backbone.config
    assert (elmo.max_characters, elmo.highway_layers, elmo.init_std) == (8, 1, 0.02)
    fasttext = opened("fasttext").learner.backbone.config
    assert (fasttext.min_n, fasttext.max_n, fasttext.max_characters) == (2, 3, 12)
    assert opened("bert causal").learner.backbone.config.attention.causal
    assert not opened("bert ablation").learner.backbone.config.attention.scaled
    masked = opened("bert").learner.objectives["masked_lm"].config
    assert (masked.mask_prob, masked.max_words, masked.mask_replace_prob) == (0.3, 4, 0.8)
    electra = opened("electra").learner.objectives["replaced_token"].config
    assert (electra.mask_prob, electra.generator_size, electra.weight) == (0.15, 0.5, 50.0)


@pytest.mark.parametrize("name", ["translate gelu", "rnn relu"])
def test_a_model_that_would_compute_something_else_is_refused(name: str, tokenizer: WholeWords, tmp_path: Path) -> None:
    old.write(tmp_path, RECORDED[name], tokenizer)
    with pytest.raises(UserError, match=REFUSED[name]) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_transformer_from_before_attention_init_keeps_its_config(tokenizer: WholeWords, tmp_path: Path) -> None:
    """The first Transformers had no such key: their heads started as noise."""
    case = json.loads(json.dumps(RECORDED["transformer"]))
    del case["config"]["attention_start"]
    old.write(tmp_path, case, tokenizer)
    shape = old.SHAPE | {"position": "learned"}
    assert load_model(tmp_path).learner.backbone.config == TransformerConfig(**shape, attention_init="noise")


PLUGIN = """
from typing import Literal
from torch import nn
from keel.backbones.word2vec import Word2Vec, Word2VecConfig
from keel.tasks.classify import Classify, ClassifyConfig

class HighwayConfig(Word2VecConfig):
    kind: Literal["highway"] = "highway"
    most: int = 2

class Highway(Word2Vec):
    Config = HighwayConfig
    def __init__(self, config):
        super().__init__(config)
        self.highways = nn.ModuleList(nn.Linear(config.width, config.width) for _ in range(config.most))

class CutConfig(ClassifyConfig):
    kind: Literal["cut"] = "cut"
    threshold: float = 0.25

class Cut(Classify):
    Config = CutConfig
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An encoder with a module called `highways`, and a task with an option called `threshold`."""
    path = tmp_path_factory.mktemp("plugin") / "plugin.py"
    path.write_text(PLUGIN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "_plugins", {})  # other tests do not see it
        catalog.add_plugin(str(path))
        yield


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_may_have_tensors_named_as_in_version_0_1(
    plugin: None, tokenizer: WholeWords, tmp_path: Path
) -> None:
    kind = catalog.find("backbones", "highway")
    backbone = kind(kind.Config(vocabulary=tokenizer.size, width=4))
    save_model(tmp_path, assemble(backbone, {}), tokenizer, "")
    assert load_model(tmp_path).learner.backbone.state_dict().keys() == backbone.state_dict().keys()


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_may_have_options_named_as_in_version_0_1(
    plugin: None, tokenizer: WholeWords, tmp_path: Path
) -> None:
    kind = catalog.find("tasks", "cut")
    setup = TaskSetup(kind(kind.Config(labels=["a", "b"], threshold=0.75), LabelledData()), EncoderSettings())
    learner = setup.make_learner(Word2Vec(Word2VecConfig(vocabulary=tokenizer.size, width=4)))
    save_model(tmp_path, learner, tokenizer, "", setup)
    loaded = load_model(tmp_path).setup
    assert loaded is not None and loaded.task.config.threshold == 0.75
