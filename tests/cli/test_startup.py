"""A command that asks a model starts quickly: it imports torch, and nothing else that is large.

What is imported is tested, not the time it takes, which depends on the machine. `sympy` and `torch._dynamo` come with
torch's compiler, which some of torch's own functions load when they are first called.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from keel import catalog
from keel.learner.build import make_backbone
from keel.learner.no_weights import no_weights
from keel.testing.small import small_config

HEAVY = {"sympy", "torch._dynamo", "torch._inductor", "transformers", "numba", "pandas", "pyarrow", "scipy", "sklearn"}
HEAVY |= {"jinja2", "datasets", "sacrebleu", "keel.training.loop", "keel.reporting.report", "keel.recipe"}
LISTED = "import sys; from keel.cli.main import run; code = run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize("verb", ["predict", "fill", "embed", "predict --out"])
def test_asking_a_model_imports_no_compiler_and_no_other_library(
    verb: str, finished_run: Path, classifier: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("The captain remembers the mast.\n")
    command = {
        "predict": ["predict", classifier, "The captain remembers the mast."],
        "fill": ["fill", finished_run, "The captain [MASK] the mast."],
        "embed": ["embed", finished_run, "--file", texts, "--out", tmp_path / "vectors.npy", "--quiet"],
        "predict --out": ["predict", classifier, "--file", texts, "--out", tmp_path / "answers.csv", "--quiet"],
    }[verb]
    done = subprocess.run(
        [sys.executable, "-c", LISTED, *map(str, command)], capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert done.stdout and "torch" in loaded, done.stderr
    assert not HEAVY & loaded


@pytest.mark.parametrize("name", catalog.names("backbones"))
def test_modules_without_weights_have_the_shapes_of_those_with(name: str) -> None:
    whole = make_backbone(small_config(name)).state_dict()
    with no_weights():
        bare = make_backbone(small_config(name)).state_dict()
    assert {k: (v.shape, v.dtype) for k, v in bare.items()} == {k: (v.shape, v.dtype) for k, v in whole.items()}
    assert all(tensor.is_meta for tensor in bare.values())


def test_what_is_not_on_the_meta_device_is_initialised_all_the_same() -> None:
    with no_weights():
        real = torch.empty(1000, device="cpu").normal_(3.0, 0.1)
        torch.nn.init.uniform_(other := torch.zeros(1000, device="cpu"), 5.0, 6.0)
    assert 2.9 < real.mean() < 3.1 and other.min() >= 5
    assert torch.nn.Linear(4, 4).weight.abs().sum() > 0, "and after the block everything is as before"
