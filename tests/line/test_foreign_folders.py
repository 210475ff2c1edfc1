"""Folders that other programs wrote: shards are put together, pickles are refused unless allowed, and a tensor that is
missing, misshapen, unexpected or not finite is an error with its name."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import keel
from keel.errors import UserError

NAME = "bert.encoder.layer.0.attention.self.query.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def foreign(finished_run: Path, tmp_path: Path) -> Path:
    """A model folder as another program would write it: no manifest, nothing of Keel's."""
    folder = tmp_path / "foreign"
    ours = ("checkpoints", "manifest.json", "*.html", "*.jsonl", "*.yaml")
    return Path(shutil.copytree(finished_run, folder, ignore=shutil.ignore_patterns(*ours)))


def test_shards_are_one_model(finished_run: Path, tmp_path: Path) -> None:
    import transformers

    model = transformers.AutoModelForPreTraining.from_pretrained(finished_run)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    transformers.AutoTokenizer.from_pretrained(finished_run).save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*-of-*.safetensors"))
    assert len(shards) >= 2
    whole, parts = (keel.load(str(folder)).learner.state_dict() for folder in (finished_run, tmp_path))
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)
    shards[-1].unlink()
    with pytest.raises(UserError, match=shards[-1].name):
        keel.load(str(tmp_path))


def test_a_whole_copy_opens(foreign: Path) -> None:
    """So that what is refused below is refused for what was done to it."""
    keel.load(str(foreign))


def missing(tensors: Tensors) -> None:
    del tensors[NAME]


def misshapen(tensors: Tensors) -> None:
    tensors[NAME] = tensors[NAME][:, 1:].contiguous()


def unexpected(tensors: Tensors) -> None:
    tensors["bert.encoder.layer.7.attention.self.query.weight"] = tensors[NAME].clone()


def nan(tensors: Tensors) -> None:
    tensors["bert.pooler.dense.weight"][3, 5] = float("nan")


def infinite(tensors: Tensors) -> None:
    tensors["bert.pooler.dense.weight"][3, 5] = float("-inf")


@pytest.mark.parametrize(
    "damage, message",
    [
        (missing, f"'{NAME}' is missing"),
        (misshapen, rf"'{NAME}' has (shape )?\(32, 31\)"),
        (unexpected, r"unexpected tensor 'bert\.encoder\.layer\.7\.attention\.self\.query\.weight'"),
        (nan, r"pooler.*NaN or infinite"),
        (infinite, r"pooler.*NaN or infinite"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_name(
    foreign: Path, damage: Callable[[Tensors], None], message: str
) -> None:
    tensors = load_file(foreign / "model.safetensors")
    damage(tensors)
    save_file(tensors, foreign / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=message) as caught:
        keel.load(str(foreign))
    assert str(foreign) in str(caught.value)


class Bomb:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def as_pickle(folder: Path) -> Tensors:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    return tensors


def test_a_pickle_is_read_only_when_that_is_allowed(foreign: Path, finished_run: Path) -> None:
    as_pickle(foreign)
    with pytest.raises(UserError, match="--allow-pickle"):
        keel.load(str(foreign))
    before = keel.load(str(finished_run)).learner.state_dict()
    after = keel.load(str(foreign), allow_pickle=True).learner.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_pickle_never_runs_code(foreign: Path, tmp_path: Path, allowed: bool) -> None:
    tensors, mark = as_pickle(foreign), tmp_path / "exploded"
    for write in (torch.save, lambda what, path: path.write_bytes(pickle.dumps(what))):
        write({**tensors, NAME: Bomb(mark)}, foreign / "pytorch_model.bin")
        with pytest.raises(UserError):
            keel.load(str(foreign), allow_pickle=allowed)
        assert not mark.exists()
