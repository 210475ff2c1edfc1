"""A model as an ordinary Hugging Face folder: written by any run, opened by Keel and by `transformers`.

In: a learner and its tokenizer, and its task, if any. Out: config.json, model.safetensors, the tokenizer's files and a
README; and back.

Notable choices
- No weight is ever left at random values. A missing, unexpected, mis-shaped or non-finite tensor is an error that names
  it; only complete heads may be absent, and then the model has no such objective.
- What a task needs besides the weights (labels, lengths, columns, encoder settings) is in config.json under `keel`.
  Folders of `transformers` with a task head are opened with the settings in their config (`foreign_tasks.py`).
- A head that no class of `transformers` computes (other poolings, a CRF, a frozen encoder's layers, ELECTRA's
  generator) is in a separate file, `keel.safetensors`, under our own names: `transformers` opens the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from keel.configs import brief
from keel.console import say
from keel.errors import UserError, near
from keel.files.folders import MANIFEST, SealedFiles, read_json, read_manifest
from keel.files.tensors import first_not_finite, read_tensors, write_tensors
from keel.hugging_face.cache import find_model, how_to_fetch
from keel.hugging_face.family import OWN_PREFIX, Family
from keel.hugging_face.foreign_tasks import setup_from, task_entries
from keel.hugging_face.known import backbone_for, family_of
from keel.hugging_face.names import Name, from_published, layer, to_published
from keel.hugging_face.upgrade import FORMAT, upgrade_config, upgrade_tensors
from keel.interfaces import Backbone, Task
from keel.learner.build import assemble
from keel.learner.learner import Learner
from keel.learner.no_weights import no_weights
from keel.learner.task_setup import TaskSetup, read_setup
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import LibraryTokenizer

OURS = "keel"  # the key in config.json, the prefix of our own tensors and the name of their file
WEIGHTS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COUNTS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)  # buffers, and what `tidy` drops
REASON = 200  # characters shown of another error
HEADS_AS_PUBLISHED: dict[str, dict[str, Any]] = {"replaced_token": {"generator_size": None}}  # options of foreign heads


@dataclass(frozen=True)
class LoadedModel:
    learner: Learner
    tokenizer: LibraryTokenizer
    path: Path
    setup: TaskSetup | None = None

    @property
    def task(self) -> Task | None:
        return self.setup.task if self.setup else None

    @property
    def pretrained_here(self) -> bool:
        """Whether Keel pretrained the encoder from fresh weights, or its weights are still fresh."""
        if not (self.path / MANIFEST).is_file():
            return not self.path.is_dir()
        made_by = read_manifest(self.path)["made_by"]
        ours = isinstance(made_by, dict) and made_by.get("keel") in ("pretrain", "finetune", "untrained")
        return ours and not made_by.get("published_start", made_by["keel"] == "finetune")


def save_model(
    folder: Path, learner: Learner, tokenizer: LibraryTokenizer, card: str, setup: TaskSetup | None = None
) -> None:
    """Writes the model's files into an existing folder."""
    backbone = learner.backbone
    family = family_of(type(backbone))
    architecture, parts = _class_for(learner, family, setup)
    config = _config_entries(backbone, family, tokenizer) | {"architectures": [architecture]}
    config |= task_entries(setup) if setup else {}
    config[OURS] = {"format": FORMAT} | (setup.sections() if setup else {}) | _own_entries(learner, family, setup)
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")
    names = [name for name in _names(backbone.config, family, setup) if _part(name.ours) in parts]
    names += _own_names(set(learner.state_dict()) - {name.ours for name in names})
    published = to_published(learner.named_tensors(), names)
    own = {name: published.pop(name) for name in list(published) if name.startswith(f"{OURS}.")}
    if name := first_not_finite(published | own):
        raise UserError(f"{folder}: the tensor '{name}' has values that are not numbers (NaN or infinite); not written")
    write_tensors(folder / "model.safetensors", published)
    if own:
        write_tensors(folder / f"{OURS}.safetensors", own)
    _save_tokenizer(folder, tokenizer, backbone, family)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _config_entries(backbone: Backbone, family: Family, tokenizer: LibraryTokenizer) -> dict[str, Any]:
    entries = family.config_to(backbone.config, tokenizer.pad)
    if not family.computes_same(backbone.config):
        entries["model_type"] = f"{OWN_PREFIX}{entries['model_type']}"
    if backbone.config.context == "left" or family.names_special_tokens:
        entries |= {"bos_token_id": tokenizer.cls, "eos_token_id": tokenizer.sep}
        entries |= {"cls_token_id": tokenizer.cls, "sep_token_id": tokenizer.sep}
    return entries


def _save_tokenizer(folder: Path, tokenizer: LibraryTokenizer, backbone: Backbone, family: Family) -> None:
    """The tokenizer's files, with this model's maximum length and inputs."""
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    segments = ["token_type_ids"] if family.has_segments else []
    reads = {"model_max_length": backbone.max_length, "model_input_names": ["input_ids", *segments, "attention_mask"]}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | reads, indent=2), encoding="utf-8")


def load_model(path: str | Path, pickle: bool = False) -> LoadedModel:
    """Opens a Keel or Hugging Face folder with every head it has; or, by its name, a published model of the local
    cache."""
    folder = find_model(path)
    published = upgrade_config(_read_config(folder), folder)
    files = SealedFiles(folder)
    if files.names is None and OURS in published:
        say(f"keel: {folder}: its {MANIFEST} is missing, so its files cannot be checked for changes or damage")
    kind = backbone_for(published, folder)
    family = family_of(kind)
    tensors = _read_tensors(files, family, published, pickle)
    config = _read_shape(family, published, set(tensors), folder)
    tensors = _without_unused(tensors, family.unused(config), folder)
    if config.vocabulary is None:
        raise UserError(f"{folder / 'config.json'}: it has no vocab_size; restore it from a copy")
    _check_layers(config, len(tensors), folder)
    setup = _read_setup(published, family, config, folder)
    apart = {name.removeprefix(f"{OURS}.") for name in tensors if name.startswith(f"{OURS}.")}
    names = [n for n in _names(config, family, setup) if n.ours not in apart] + _own_names(apart)
    with no_weights():
        backbone = kind(config)
        heads = {} if setup else _find_objectives(names, tensors, published, family)
        learner = setup.make_learner(backbone) if setup else _assemble(backbone, heads, folder)
    try:
        ours = from_published(tensors, names, folder / "model.safetensors")
    except RuntimeError as error:  # parts that do not fit together
        reason = " ".join(str(error).split())[:REASON]
        raise UserError(f"{folder}: its tensors do not fit together ({reason}); restore it from a copy") from None
    if name := first_not_finite(ours):
        raise UserError(f"{folder}: tensor '{name}' has values that are not numbers (NaN or infinite)")
    _check_against(learner, ours, names, folder)
    learner.load_state_dict(ours, assign=True)
    tokenizer = open_tokenizer(folder)
    if tokenizer.size > config.vocabulary:
        raise UserError(f"{folder}: the tokenizer has {tokenizer.size} tokens, the model only {config.vocabulary}")
    tokenizer.open = bool(config.characters_read)  # out-of-vocabulary words keep their spelling
    return LoadedModel(learner.eval(), tokenizer, folder, setup)


def check_kind(folder: Path, shown: str) -> str:
    """Raises unless Keel has this kind of model, as far as its config.json tells; returns its `model_type`. Errors call
    the folder `shown`."""
    published = _read_config(folder)
    family = family_of(backbone_for(published, Path(shown)))
    _read_shape(family, upgrade_config(published, folder), set(), Path(shown))
    return str(published["model_type"])


def _read_tensors(files: SealedFiles, family: Family, published: dict[str, Any], pickle: bool) -> dict[str, Tensor]:
    tensors = family.tidy(upgrade_tensors(_as_floats(read_tensors(files, pickle=pickle), files.folder), published))
    if files.find(f"{OURS}.safetensors"):
        tensors |= upgrade_tensors(_as_floats(read_tensors(files, OURS), files.folder), published)
    return tensors


def _without_unused(tensors: dict[str, Tensor], prefixes: tuple[str, ...], folder: Path) -> dict[str, Tensor]:
    left = [name for name in tensors if prefixes and name.startswith(prefixes)]
    if left:
        say(f"keel: {folder}: {len(left)} tensors that its layers do not use are not read, the first of them {left[0]}")
    return {name: tensor for name, tensor in tensors.items() if name not in left}


def _as_floats(tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Weights may be stored in bf16, fp16 or fp64. Quantised ones need scales, which Keel does not read."""
    for name, tensor in tensors.items():
        if tensor.dtype not in WEIGHTS + COUNTS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{folder}: tensor {brief(name)} is stored as {kind}; convert the model to float32")
    return {name: tensor.float() if tensor.dtype in WEIGHTS else tensor for name, tensor in tensors.items()}


def _check_layers(config: Any, tensors: int, folder: Path) -> None:
    """Refuses a config with more layers than there are tensors, before as many layers are built."""
    if config.stored_layers > tensors:
        raise UserError(
            f"{folder / 'config.json'}: {config.layers} layers, but the folder has {tensors} tensors in all; "
            "restore it from a copy"
        )


def _assemble(backbone: Backbone, heads: dict[str, Any], folder: Path) -> Learner:
    try:
        return assemble(backbone, heads)
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"{folder / 'config.json'}: its '{OURS}' entry has invalid options for an objective") from None


def _names(config: Any, family: Family, setup: TaskSetup | None) -> list[Name]:
    """The family's tensor names, and those of a task's last layer."""
    if setup is None:
        return family.names(config, None)
    names = family.names(config, setup.kind)
    if _is_standard(config, family, setup):
        names += layer(f"objectives.{setup.kind}.out", family.heads[setup.kind][1])
    return names


def _is_standard(config: Any, family: Family, setup: TaskSetup) -> bool:
    """Whether a class of `transformers` computes the same (causal models are pooled from the last token here)."""
    task = setup.task.config.model_dump()
    same_head = not setup.encoder.frozen and task.get("pooling") in (None, "cls") and not task.get("crf")
    pooled_elsewhere = config.context == "left" and setup.kind not in ("tag", "answer")
    return setup.kind in family.heads and same_head and not pooled_elsewhere


def _own_names(ours: set[str]) -> list[Name]:
    """Names of tensors that no class of `transformers` has."""
    return [Name(name, f"{OURS}.{name}") for name in sorted(ours)]


def _class_for(learner: Learner, family: Family, setup: TaskSetup | None) -> tuple[str, set[str]]:
    """The class of `transformers` that opens the model, and the parts that it has."""
    pooler = {"pooler"} if learner.backbone.pooler is not None else set()
    if setup and _is_standard(learner.backbone.config, family, setup):
        return family.heads[setup.kind][0], {"encoder", setup.kind} | pooler
    architecture, parts = family.best_class(pooler | (set() if setup else set(learner.objectives)))
    return architecture, {"encoder"} | parts


def _part(name: str) -> str:
    """The part that a tensor belongs to: an objective, the pooler, or the encoder."""
    room, part = name.split(".")[:2]
    return part if room == "objectives" or part == "pooler" else "encoder"


def _own_entries(learner: Learner, family: Family, setup: TaskSetup | None) -> dict[str, Any]:
    """Settings without a key in config.json: the backbone's deviations from the published one, and the objectives'
    options."""
    config = learner.backbone.config
    usual = {key: type(config).model_fields[key].get_default() for key in family.own_keys}
    dumped = config.model_dump()
    changed = {key for key in family.own_keys if key in config.model_fields_set and dumped[key] != _plain(usual[key])}
    entries = {"backbone": config.model_dump(mode="json", include=changed)} if changed else {}
    if setup is None and learner.objectives:
        entries["objectives"] = {
            name: objective.config.model_dump(mode="json") for name, objective in learner.objectives.items()
        }
    return entries


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _read_shape(family: Family, published: dict[str, Any], tensors: set[str], folder: Path) -> Any:
    own = published[OURS] if isinstance(published.get(OURS), dict) else {}
    try:
        config = family.config_from(published, tensors)
        if any(name.startswith(f"{OURS}.backbone.pooler.") for name in tensors):
            config = config.model_copy(update={"pooler": True})
        return type(config)(**{**config.model_dump(), **own["backbone"]}) if own.get("backbone") else config
    except KeyError as error:
        raise UserError(f"{folder / 'config.json'}: the key {error} is missing") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = " ".join((" ".join(str(error).split("\n")[1:3]) or str(error)).split())[:REASON]
        raise UserError(f"{folder / 'config.json'}: not a configuration Keel can use ({reason})") from None


def _find_objectives(
    names: list[Name], tensors: dict[str, Tensor], published: dict[str, Any], family: Family
) -> dict[str, Any]:
    """The heads that have tensors (or are listed by the class and need none), with their training options if known."""
    heads = [name for name in names if name.ours.startswith("objectives.")]
    found = {name.ours.split(".")[1] for name in heads if name.theirs in tensors}
    named = {name.ours.split(".")[1] for name in heads}
    for architecture, parts in family.classes:
        if architecture in (published.get("architectures") or []):
            found |= parts - named - {"pooler"}
    own = published.get(OURS)
    listed = own.get("objectives") if isinstance(own, dict) else None
    options = listed if isinstance(listed, dict) else {}
    return {name: options.get(name, HEADS_AS_PUBLISHED.get(name, {})) for name in sorted(found)}


def _read_setup(published: dict[str, Any], family: Family, config: Any, folder: Path) -> TaskSetup | None:
    """The task of a folder: as Keel wrote it, or derived from the config of `transformers`."""
    try:
        if isinstance(published.get(OURS), dict) and isinstance(published[OURS].get("task"), dict):
            return read_setup(published[OURS], folder / "config.json")
        return setup_from(published, family, config, folder)
    except (TypeError, AttributeError, OverflowError, RecursionError):
        raise UserError(f"{folder / 'config.json'}: the settings of its task are damaged; restore it") from None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not folder.is_dir():
        beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if folder.parent.is_dir() else []
        raise UserError(f"{folder}: no such model folder.{near(folder.name, beside)}{how_to_fetch(folder)}")
    if not path.is_file():
        checkpoints = sorted(folder.glob("checkpoints/step-*"))
        if checkpoints:
            raise UserError(f"{folder}: this run is not finished; its newest checkpoint is {checkpoints[-1]}")
        raise UserError(f"{folder}: there is no config.json, so this is not a model folder")
    published = read_json(path)
    if not isinstance(published, dict):
        raise UserError(f"{path}: not a model configuration")
    # Folders from before 2019 have no model_type; their keys are BERT's.
    published.setdefault("model_type", "bert" if "type_vocab_size" in published else None)
    classes = published.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise UserError(f"{path}: 'architectures' is not a list of names, found {brief(classes)}; restore it")
    return published


def _check_against(learner: Learner, given: dict[str, Tensor], names: list[Name], folder: Path) -> None:
    theirs = {name.ours: name.theirs for name in names}
    for name, tensor in learner.state_dict().items():
        if name not in given:
            raise UserError(
                f"{folder}: tensor '{theirs.get(name, name)}' is missing; Keel does not fill it with random values"
            )
        if given[name].dtype != tensor.dtype:
            kind = str(given[name].dtype).removeprefix("torch.")
            raise UserError(f"{folder}: tensor '{theirs.get(name, name)}' is stored as {kind}; restore it from a copy")
        if given[name].shape != tensor.shape:
            found, wanted = tuple(given[name].shape), tuple(tensor.shape)
            raise UserError(
                f"{folder}: tensor '{theirs.get(name, name)}' has shape {found}, config.json needs {wanted}"
            )
    extra = sorted(set(given) - set(learner.state_dict()))
    if extra:
        raise UserError(
            f"{folder}: unexpected tensor '{theirs.get(extra[0], extra[0])}' for the layers that config.json defines"
        )
