"""A model as an ordinary Hugging Face folder: written by any run, opened by Keel and by `transformers`.

In: a learner and its tokenizer, and the task it learnt, if any. Out: config.json, model.safetensors, the tokenizer's
files and a README; and back.

Notable choices
- Nothing is ever loaded at random values. A missing, unexpected, mis-shaped or non-finite tensor is an error that names
  it; only whole heads may be absent, and then the model simply does not have that ability.
- What a task needs beside the weights (labels, lengths, columns, the way the encoder is used) stands in config.json
  under `keel`. Folders of `transformers` with a task's head are opened with what their config says.
- A head that no class there computes (other poolings, a CRF, a frozen encoder's layers, ELECTRA's generator) stands in
  a file of its own, `keel.safetensors`, under our own names: the folder opens there as what is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from keel import catalog, checkpoint
from keel.checkpoint import Name
from keel.errors import UserError, near, suggest
from keel.interfaces import Objective, Task
from keel.text.labelled import LabelledData
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer
from keel.training.encoder import EncoderUse, view
from keel.training.learner import Learner

OURS = "keel"  # the key in config.json, the prefix of tensors and the name of their file


@dataclass(frozen=True)
class Loaded:
    learner: Learner
    tokenizer: LibraryTokenizer
    path: Path
    purpose: Purpose | None = None

    @property
    def task(self) -> Task | None:
        return self.purpose.task if self.purpose else None


@dataclass(frozen=True)
class Purpose:
    """A task, and how the encoder serves it."""

    task: Any
    encoder: EncoderUse

    @property
    def kind(self) -> str:
        return str(self.task.config.kind)

    @property
    def standard(self) -> bool:
        """Whether `transformers` has a class that computes the same."""
        pooling, crf = (getattr(self.task.config, name, None) for name in ("pooling", "crf"))
        return self.encoder.use == "all" and pooling in (None, "cls") and not crf

    def learner(self, backbone: Any) -> Learner:
        seen = view(backbone, self.encoder)
        return Learner(backbone, {self.kind: self.task.objective(seen or backbone)}, seen)

    def as_config(self) -> dict[str, Any]:
        """The entries of config.json."""
        parts = {"task": self.task.config, "data": self.task.data, "encoder": self.encoder}
        entries: dict[str, Any] = {OURS: {name: part.model_dump(mode="json") for name, part in parts.items()}}
        labels = getattr(self.task.config, "labels", None) or (["LABEL_0"] if self.kind == "regress" else None)
        if labels:
            entries["id2label"] = {str(number): name for number, name in enumerate(labels)}
            entries["label2id"] = {name: number for number, name in enumerate(labels)}
        if self.kind in PROBLEMS:
            several = getattr(self.task.config, "several", False)
            entries["problem_type"] = "multi_label_classification" if several else PROBLEMS[self.kind]
        return entries


PROBLEMS = {"classify": "single_label_classification", "regress": "regression"}


def make_purpose(sections: Mapping[str, Any], where: Path | str) -> Purpose:
    """From plain data: `task`, and optionally `data` and `encoder`."""
    kind = catalog.find("tasks", str(sections["task"].get("kind")))
    try:
        task = kind(kind.Config(**sections["task"]), LabelledData(**sections.get("data", {})))
        return Purpose(task, EncoderUse(**sections.get("encoder", {})))
    except ValueError as error:
        raise UserError(f"{where}: its '{OURS}' entry cannot be used ({str(error).splitlines()[0]})") from None


def save_model(
    folder: Path, learner: Learner, tokenizer: LibraryTokenizer, card: str, purpose: Purpose | None = None
) -> None:
    """Writes the model's own files into an existing folder."""
    backbone = learner.backbone
    border = backbone.published
    config = border.config_to(backbone.config, tokenizer.pad)
    kind, has = _class_for(learner, border, purpose)
    config["architectures"] = [kind]
    if not getattr(getattr(backbone.config, "attention", None), "scaled", True):
        config["model_type"] = f"{OURS}-{config['model_type']}"  # one that `transformers` would compute otherwise
    if backbone.causal or border.model_type == "modernbert":
        config |= {"bos_token_id": tokenizer.cls, "eos_token_id": tokenizer.sep}
        config |= {"cls_token_id": tokenizer.cls, "sep_token_id": tokenizer.sep}
    config |= purpose.as_config() if purpose else {}
    config[OURS] = config.get(OURS, {}) | _own_entries(learner, purpose)
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")
    names = [name for name in _names(backbone.config, border, purpose) if _part(name.ours) in has]
    names += _own_names(set(learner.state_dict()) - {name.ours for name in names})
    published = checkpoint.to_published(learner.named_tensors(), names)
    own = {name: published.pop(name) for name in list(published) if name.startswith(f"{OURS}.")}
    checkpoint.write_tensors(folder / "model.safetensors", published)
    if own:
        checkpoint.write_tensors(folder / f"{OURS}.safetensors", own)
    _save_tokenizer(folder, tokenizer, backbone)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _save_tokenizer(folder: Path, tokenizer: LibraryTokenizer, backbone: Any) -> None:
    """The tokenizer's own files, told what this model reads: how much, and whether it knows segments."""
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    segments = ["token_type_ids"] if backbone.published.model_type in ("bert", "albert", "electra") else []
    reads = {"model_max_length": backbone.longest, "model_input_names": ["input_ids", *segments, "attention_mask"]}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | reads, indent=2), encoding="utf-8")


def load_model(path: str | Path, pickle: bool = False) -> Loaded:
    """Opens a Keel or Hugging Face folder with every head it has."""
    folder = Path(path)
    published = _read_config(folder)
    if (folder / checkpoint.MANIFEST).is_file():
        checkpoint.verify_folder(folder)
    backbone_class = _backbone_for(published.get("model_type"), folder)
    border = backbone_class.published
    tensors = border.tidy(checkpoint.read_tensors(folder, pickle=pickle))
    if (folder / f"{OURS}.safetensors").is_file():
        tensors |= checkpoint.read_tensors(folder, OURS)
    own = published[OURS] if isinstance(published.get(OURS), dict) else {}
    config = _read_shape(border, published, set(tensors), own, folder)
    purpose = _purpose_of(published, border, config, folder)
    apart = {name.removeprefix(f"{OURS}.") for name in tensors if name.startswith(f"{OURS}.")}
    names = [n for n in _names(config, border, purpose) if n.ours not in apart] + _own_names(apart)
    with torch.device("meta"):
        backbone = backbone_class(config)
        if purpose:
            learner = purpose.learner(backbone)
        else:
            heads = _find_objectives(names, tensors, published, border)
            try:
                learner = assemble(backbone, heads)
            except (ValueError, TypeError, AttributeError):
                raise UserError(
                    f"{folder / 'config.json'}: its '{OURS}' entry has options no objective takes"
                ) from None
    ours = checkpoint.from_published(tensors, names, folder / "model.safetensors")
    ours = {name: t.float() if t.is_floating_point() else t for name, t in ours.items()}  # some are stored in bf16
    _check_finite(ours, folder)
    _check_against(learner, ours, names, folder)
    learner.load_state_dict(ours, assign=True)
    tokenizer = open_tokenizer(folder)
    if tokenizer.size > config.vocabulary:
        raise UserError(f"{folder}: the tokenizer has {tokenizer.size} tokens, the model only {config.vocabulary}")
    if backbone.reads_spellings:
        tokenizer.open = True  # words without an entry keep their spelling
    return Loaded(learner.eval(), tokenizer, folder, purpose)


def assemble(backbone: Any, options: dict[str, Any]) -> Learner:
    """A learner from a backbone and the options (or Config values) of its objectives."""
    objectives: dict[str, Objective] = {}
    for name, value in options.items():
        kind = catalog.find("objectives", name)
        objectives[name] = kind(kind.Config(**value) if isinstance(value, dict) else value, backbone)
    return Learner(backbone, objectives)


def _names(config: Any, border: checkpoint.Published, purpose: Purpose | None) -> list[Name]:
    """The family's table, and a task's last layer."""
    if purpose is None:
        return border.names(config, None)
    names = border.names(config, purpose.kind)
    if _is_standard(config, border, purpose):
        last, theirs = f"objectives.{purpose.kind}.out", border.heads[purpose.kind][1]
        names += [Name(f"{last}.{part}", f"{theirs}.{part}") for part in ("weight", "bias")]
    return names


def _is_standard(config: Any, border: checkpoint.Published, purpose: Purpose) -> bool:
    """Whether a class there computes what this model does. Causal ones are pooled from the last token here."""
    causal = getattr(getattr(config, "attention", None), "look", "both") == "left"
    return purpose.kind in border.heads and purpose.standard and not (causal and purpose.kind not in ("tag", "answer"))


def _own_names(ours: set[str]) -> list[Name]:
    """Names of what no class there has."""
    return [Name(name, f"{OURS}.{name}") for name in sorted(ours)]


def _class_for(learner: Learner, border: checkpoint.Published, purpose: Purpose | None) -> tuple[str, set[str]]:
    """The class that opens the model, and the parts that it has."""
    pooler = {"pooler"} if learner.backbone.pooler is not None else set()
    if purpose and _is_standard(learner.backbone.config, border, purpose):
        return border.heads[purpose.kind][0], {"encoder", purpose.kind} | pooler
    kind, has = border.best_class(pooler | (set() if purpose else set(learner.objectives)))
    return kind, {"encoder"} | has


def _part(name: str) -> str:
    """What a tensor belongs to: an objective, the pooler, or the encoder."""
    room, part = name.split(".")[:2]
    return part if room == "objectives" or part == "pooler" else "encoder"


SHAPE = ("attention", "learn_positions", "share")  # keys of a backbone that config.json has no place for


def _own_entries(learner: Learner, purpose: Purpose | None) -> dict[str, Any]:
    """What config.json has no key for: how the backbone departs from the published one, and the objectives' options."""
    config = learner.backbone.config
    changed = {key for key in SHAPE if key in config.model_fields_set and getattr(config, key) != _usual(config, key)}
    entries = {"backbone": config.model_dump(mode="json", include=changed)} if changed else {}
    if purpose is None:
        options = {name: o.config.model_dump(mode="json") for name, o in learner.objectives.items()}  # type: ignore
        entries |= {"objectives": options} if options else {}
    return entries


def _usual(config: Any, key: str) -> Any:
    return type(config).model_fields[key].default


def _read_shape(
    border: checkpoint.Published, published: dict[str, Any], tensors: set[str], own: dict[str, Any], folder: Path
) -> Any:
    try:
        config = border.config_from(published, tensors)
        if any(name.startswith(f"{OURS}.backbone.pooler.") for name in tensors):
            config = config.model_copy(update={"pooler": True})
        return type(config)(**{**config.model_dump(), **own["backbone"]}) if own.get("backbone") else config
    except KeyError as error:
        raise UserError(f"{folder / 'config.json'}: the key {error} is missing") from None
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split("\n")[1:3]) or str(error)
        raise UserError(f"{folder / 'config.json'}: not a configuration Keel can use ({reason.strip()})") from None


def _find_objectives(
    names: list[Name], tensors: dict[str, Tensor], published: dict[str, Any], border: checkpoint.Published
) -> dict[str, Any]:
    """The heads that have tensors, or none to have, with the options they were trained with where those are known."""
    found = {
        name.ours.split(".")[1] for name in names if name.theirs in tensors and name.ours.startswith("objectives.")
    }
    named = {name.ours.split(".")[1] for name in names if name.ours.startswith("objectives.")}
    for kind, has in border.classes:
        if kind in (published.get("architectures") or []):
            found |= has - named - {"pooler"}
    own = published.get(OURS)
    listed = own.get("objectives") if isinstance(own, dict) else None
    known = listed if isinstance(listed, dict) else {}
    return {name: known.get(name, dict(catalog.find("objectives", name).as_published)) for name in sorted(found)}


def _purpose_of(published: dict[str, Any], border: checkpoint.Published, config: Any, folder: Path) -> Purpose | None:
    """The task this folder was made for: by Keel, or by `transformers` as its config tells."""
    if isinstance(published.get(OURS), dict) and isinstance(published[OURS].get("task"), dict):
        return make_purpose(published[OURS], folder / "config.json")
    made = str((published.get("architectures") or [""])[0])
    kinds = [kind for kind, (architecture, _) in border.heads.items() if architecture == made]
    if not kinds:
        return None
    labels = _labels(published.get("id2label") or {}, folder)
    kind = kinds[0]
    if kind == "classify" and (published.get("problem_type") == "regression" or len(labels) == 1):
        kind = "regress"
    task: dict[str, Any] = {"kind": kind}
    if kind in ("classify", "tag"):
        task["labels"] = labels or ["LABEL_0", "LABEL_1"]  # the default there
    if published.get("problem_type") == "multi_label_classification":
        task["several"] = True
    if kind == "tag":
        task["entities"] = "O" in labels
    return make_purpose({"task": task, "data": {"length": min(512, config.positions)}}, folder / "config.json")


def _labels(given: Any, folder: Path) -> list[str]:
    try:
        return [str(name) for _, name in sorted(given.items(), key=lambda item: int(item[0]))]
    except (AttributeError, ValueError):
        raise UserError(f"{folder / 'config.json'}: id2label is not a table of numbers and labels") from None


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
    model_type = str(model_type).removeprefix(f"{OURS}-")  # a model that `transformers` would compute otherwise
    if model_type not in known:
        raise UserError(
            f"{folder / 'config.json'}: model_type '{model_type}' is not one Keel knows."
            f"{suggest(str(model_type), known)}"
        )
    return known[model_type]


def _check_finite(tensors: dict[str, Tensor], folder: Path) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UserError(f"{folder}: tensor '{name}' has values that are not numbers (NaN or infinite)")


def _check_against(learner: Learner, given: dict[str, Tensor], names: list[Name], folder: Path) -> None:
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
