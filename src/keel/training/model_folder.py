"""A model as an ordinary Hugging Face folder: written by any run, opened by Keel and by `transformers`.

In: a learner and its tokenizer. Out: config.json, model.safetensors, the tokenizer's files and a README; and back.

Notable choice: nothing is ever loaded at random values. A missing, unexpected, mis-shaped or non-finite tensor is an
error that names it; only whole heads may be absent, and then the model simply does not have that ability.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from keel import catalog, checkpoint
from keel.errors import UserError, near, suggest
from keel.interfaces import Objective
from keel.tokenizers.wordpiece import WordPiece
from keel.training.learner import Learner


@dataclass(frozen=True)
class Loaded:
    learner: Learner
    tokenizer: WordPiece
    path: Path


def save_model(folder: Path, learner: Learner, tokenizer: WordPiece, card: str) -> None:
    """Writes the model's own files into an existing folder."""
    backbone = learner.backbone
    border = backbone.published
    config = border.config_to(backbone.config, tokenizer.pad)
    config["architectures"] = [_architecture(set(learner.objectives))]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors = checkpoint.to_published(learner.named_tensors(), border.names(backbone.config))
    checkpoint.write_tensors(folder / "model.safetensors", tensors)
    tokenizer.save(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")


def load_model(path: str | Path, pickle: bool = False) -> Loaded:
    """Opens a Keel or Hugging Face folder with every head it has."""
    folder = Path(path)
    published = _read_config(folder)
    if (folder / checkpoint.MANIFEST).is_file():
        checkpoint.verify_folder(folder)
    backbone_class = _backbone_for(published.get("model_type"), folder)
    border = backbone_class.published
    tensors = border.tidy(checkpoint.read_tensors(folder, pickle=pickle))
    config = border.config_from(published, set(tensors))
    names = border.names(config)
    ours = checkpoint.from_published(tensors, names, folder / "model.safetensors")
    _check_finite(ours, folder)
    with torch.device("meta"):
        learner = assemble(backbone_class(config), {name: {} for name in _heads(ours)})
    _check_against(learner, ours, names, folder)
    learner.load_state_dict(ours, assign=True)
    tokenizer = WordPiece.load(folder)
    if tokenizer.size > config.vocabulary:
        raise UserError(f"{folder}: the tokenizer has {tokenizer.size} tokens, the model only {config.vocabulary}")
    return Loaded(learner.eval(), tokenizer, folder)


def assemble(backbone: Any, options: dict[str, Any]) -> Learner:
    """A learner from a backbone and the options (or Config values) of its objectives."""
    objectives: dict[str, Objective] = {}
    for name, value in options.items():
        kind = catalog.find("objectives", name)
        objectives[name] = kind(kind.Config(**value) if isinstance(value, dict) else value, backbone)
    return Learner(backbone, objectives)


def _architecture(objectives: set[str]) -> str:
    if not objectives & {"masked_lm", "next_sentence"}:
        return "BertModel"
    if "next_sentence" not in objectives:
        return "BertForMaskedLM"
    return "BertForPreTraining" if "masked_lm" in objectives else "BertForNextSentencePrediction"


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not folder.is_dir():
        beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if folder.parent.is_dir() else []
        raise UserError(f"{folder}: no such model folder.{near(folder.name, beside)}")
    if not path.is_file():
        checkpoints = sorted(folder.glob("checkpoints/step-*"))
        if checkpoints:
            raise UserError(f"{folder}: this run is not finished; its newest checkpoint is {checkpoints[-1]}")
        raise UserError(f"{folder}: there is no config.json, so this is not a model folder")
    try:
        published = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path}: not valid JSON; restore it from a copy") from None
    if not isinstance(published, dict):
        raise UserError(f"{path}: not a model configuration")
    # Folders from before 2019 have no model_type; their keys are BERT's.
    published.setdefault("model_type", "bert" if "type_vocab_size" in published else None)
    return published


def _backbone_for(model_type: Any, folder: Path) -> Any:
    known = {
        cls.published.model_type: cls for cls in (catalog.find("backbones", n) for n in catalog.names("backbones"))
    }
    if model_type not in known:
        raise UserError(
            f"{folder / 'config.json'}: model_type '{model_type}' is not one Keel knows."
            f"{suggest(str(model_type), known)}"
        )
    return known[model_type]


def _heads(tensors: dict[str, Tensor]) -> list[str]:
    return sorted({name.split(".")[1] for name in tensors if name.startswith("objectives.")})


def _check_finite(tensors: dict[str, Tensor], folder: Path) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UserError(f"{folder}: tensor '{name}' has values that are not numbers (NaN or infinite)")


def _check_against(learner: Learner, given: dict[str, Tensor], names: list[checkpoint.Name], folder: Path) -> None:
    theirs = {name.ours: name.theirs for name in names}
    for name, tensor in learner.state_dict().items():
        if name not in given:
            raise UserError(
                f"{folder}: tensor '{theirs.get(name, name)}' is missing; Keel does not fill it with random values"
            )
        if given[name].shape != tensor.shape:
            found, wanted = tuple(given[name].shape), tuple(tensor.shape)
            raise UserError(f"{folder}: tensor '{theirs.get(name, name)}' has shape {found}, config.json says {wanted}")
    extra = sorted(set(given) - set(learner.state_dict()))
    if extra:
        raise UserError(
            f"{folder}: unexpected tensor '{theirs.get(extra[0], extra[0])}' for the layers config.json names"
        )
