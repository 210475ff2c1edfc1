"""A recipe: everything one run needs, as a frozen, validated value that is saved with every result.

In: the name of a recipe in `recipes/`, or a YAML file, plus `a.b=c` overrides. Out: a `Recipe`, or a one-line
error that names the invalid key.

Notable choices
- A recipe file contains only what differs from its parent (`extends`), so the recipes folder reads as a family tree;
  the recipe saved with a result is always complete, so later changes to a parent do not affect it.
- Backbone, objective and task sections are validated by the file they configure: no list of known models is kept here.
- A recipe with a `task` is for fine-tuning: it has no backbone, which comes from the pretrained model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, field_validator

from keel import catalog
from keel.configs import ANY_LENGTH, BackboneConfig, ObjectiveConfig, Options, TaskConfig, brief
from keel.errors import UserError, suggest
from keel.files.yaml import load_yaml, read_yaml
from keel.learner.frozen_encoder import EncoderSettings
from keel.renamed_keys import MEMBERS, RECIPES, new_name
from keel.text.labelled import LabelledData
from keel.training.settings import FinetuneSettings, TrainingSettings

MESSAGE = 300  # characters of a validation error


class ModelSection(Options):
    backbone: SerializeAsAny[BackboneConfig]
    objectives: dict[str, SerializeAsAny[ObjectiveConfig]]


class LongPhase(Options):
    length: int = Field(512, ge=8, le=ANY_LENGTH)
    fraction: float = Field(0.1, gt=0, lt=1, description="fraction of the run, at its end, that uses the longer rows")


class DataSection(Options):
    length: int = Field(128, ge=8, le=ANY_LENGTH, description="tokens in a full row")
    packing: str = Field(
        "pairs",
        description="how sentences become rows: pairs (for next_sentence), order (for sentence_order), full-sentences, "
        "doc-sentences, single-sentences",
    )
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="fraction of rows with a random shorter target length")
    random_next_prob: float = Field(
        0.5, ge=0, le=1, description="fraction of pairs whose second segment is from another document"
    )
    static_masks: int | None = Field(
        None, ge=1, description="static masking with this many masked copies of the rows; null: dynamic masking"
    )
    long_phase: LongPhase | None = None
    eval_recipe: str | None = Field(
        None, description="the recipe whose rows and masks held-out losses are computed with; null: this one"
    )

    @field_validator("packing")
    @classmethod
    def _packing_exists(cls, name: str) -> str:
        if not catalog.known("packers", name):
            listed = [known.replace("_", "-") for known in catalog.names("packers")]
            raise ValueError(f"there is no packing called {brief(name)}.{suggest(name[:MESSAGE], listed)}")
        return name


class Named(Options):
    name: str
    description: str = ""
    plugins: list[str] = Field(default_factory=list, description="Python files whose members the recipe uses")

    @field_validator("name")
    @classmethod
    def _name_is_plain(cls, name: str) -> str:
        if not name or "/" in name:
            raise ValueError("a recipe's name must not be empty or contain '/'")
        return name

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


class TaskRecipe(Named):
    """For `keel finetune`."""

    task: SerializeAsAny[TaskConfig]
    encoder: EncoderSettings = EncoderSettings()
    data: LabelledData = LabelledData()
    training: FinetuneSettings = FinetuneSettings()


class Recipe(Named):
    """For `keel pretrain`."""

    model: ModelSection
    data: DataSection = DataSection()
    training: TrainingSettings = TrainingSettings()

    def with_backbone(self, backbone: Any, where: str) -> Recipe:
        """The same recipe with the backbone of an existing model, and a pooler if an objective needs one."""
        pooled = any(catalog.find("objectives", name).needs.vectors == "rows" for name in self.model.objectives)
        if type(backbone).model_fields["pooler"].annotation is bool:
            backbone = backbone.model_copy(update={"pooler": backbone.pooler or pooled})
        recipe = self.model_copy(update={"model": self.model.model_copy(update={"backbone": backbone})})
        _check_lengths(recipe, where)
        return recipe

    def for_tokenizer(self, size: int, padding: int) -> Recipe:
        """The same recipe with the vocabulary size filled in; an error if the recipe sets another size."""
        wanted = self.model.backbone.vocabulary
        if wanted not in (None, size):
            raise UserError(
                f"recipe {self.name}: model.backbone.vocabulary is {wanted}, but the corpus' tokenizer has {size} "
                "tokens; use a corpus built with a tokenizer of that size, or --set model.backbone.vocabulary=null"
            )
        filled_in = {"vocabulary": size, "padding": padding}
        known = type(self.model.backbone).model_fields
        backbone = self.model.backbone.model_copy(update={k: v for k, v in filled_in.items() if k in known})
        return self.model_copy(update={"model": self.model.model_copy(update={"backbone": backbone})})


def listing() -> list[dict[str, str]]:
    """Name, parent and description of every recipe that comes with Keel."""
    rows = []
    for name in catalog.names("recipes"):
        data = read_yaml(catalog.find("recipes", name))
        rows.append({"name": name, "extends": data.get("extends", ""), "description": data.get("description", "")})
    return rows


def load(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """A pretraining recipe by name or file, with `a.b=c` overrides applied last."""
    recipe = load_any(name_or_path, overrides)
    if not isinstance(recipe, Recipe):
        raise UserError(f"{name_or_path} is a recipe for fine-tuning; use it with `keel finetune`")
    return recipe


def load_task(name_or_path: str, overrides: Sequence[str] = ()) -> TaskRecipe:
    """The same for a fine-tuning recipe."""
    keys = {override.partition("=")[0].strip() for override in overrides}
    if (
        "training.steps" in keys and "training.epochs" not in keys
    ):  # steps given by the user replace the recipe's epochs
        overrides = [*overrides, "training.epochs=null"]
    recipe = load_any(name_or_path, overrides)
    if not isinstance(recipe, TaskRecipe):
        raise UserError(f"{name_or_path} is a recipe for pretraining; tasks are {', '.join(catalog.names('tasks'))}")
    return recipe


def load_any(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe | TaskRecipe:
    data = _of_task(name_or_path) or _inherit(name_or_path)
    for override in overrides:
        _apply(data, override)
    return parse_task(data, name_or_path) if "task" in data else parse(data, name_or_path)


def _of_task(name: str) -> dict[str, Any] | None:
    """The base fine-tuning recipe with this task, for tasks of plug-ins, which need no recipe of their own."""
    if catalog.known("recipes", name) or not (catalog.is_path(name) or catalog.known("tasks", name)):
        return None
    return {**_inherit("finetune"), "name": catalog.name_of(name), "description": "", "task": {"kind": name}}


def parse_task(data: dict[str, Any], where: str) -> TaskRecipe:
    """A fine-tuning recipe from plain data; the error names the key."""
    section = data["task"]
    if not isinstance(section, dict) or "kind" not in section:
        raise UserError(f"{where}: 'task' must be a section with a kind, such as {{kind: classify}}")
    data = dict(data)
    section = _by_own_name(data, "tasks", section)
    config = _find("tasks", section["kind"], where).Config
    recipe: TaskRecipe = _validate(TaskRecipe, {**data, "task": _validate(config, section, "task", where)}, "", where)
    return recipe


def parse(data: dict[str, Any], where: str) -> Recipe:
    """A pretraining recipe from plain data; the error names the key."""
    data = dict(data)
    model = data.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("backbone"), dict):
        raise UserError(f"{where}: a recipe needs model.backbone; `keel recipe show bert-mini` prints a complete one")
    unknown = {str(key) for key in model} - {"backbone", "objectives"}
    if unknown:
        key = min(unknown)[:MESSAGE]
        raise UserError(f"{where}: unknown key {brief('model.' + key)}.{suggest(key, ['backbone', 'objectives'])}")
    backbone = _by_own_name(data, "backbones", model["backbone"])
    config = _find("backbones", backbone.get("kind", "bert"), where).Config
    objectives = {}
    named = model.get("objectives") or {}
    if not isinstance(named, dict):
        raise UserError(f"{where}: 'model.objectives' must be a section with keys, found {brief(named)}")
    for name, options in named.items():
        if options is None:
            continue
        if str(name) in MEMBERS:
            raise UserError(f"{where}: the objective '{name}' is now called '{MEMBERS[name]}'; change the recipe")
        name = _by_own_name(data, "objectives", {"kind": str(name)})["kind"]
        objective = _find("objectives", name, where).Config
        objectives[name] = _validate(objective, options, f"model.objectives.{name}", where)
    if not objectives:
        raise UserError(f"{where}: model.objectives is empty; name at least one, such as masked_lm: {{}}")
    data["model"] = {
        "backbone": _validate(config, backbone, "model.backbone", where),
        "objectives": objectives,
    }
    recipe: Recipe = _validate(Recipe, data, "", where)
    _check_lengths(recipe, where)
    _check_packing(recipe, where)
    return recipe


def _check_packing(recipe: Recipe, where: str) -> None:
    for name in recipe.model.objectives:
        wanted = catalog.find("objectives", name).needs.packing
        if wanted not in (None, recipe.data.packing):
            raise UserError(
                f"{where}: {name} needs data.packing={wanted}, found {recipe.data.packing}; change it, or set "
                f"model.objectives.{name}=null"
            )


def _check_lengths(recipe: Recipe, where: str) -> None:
    phase = recipe.data.long_phase
    longest = max(recipe.data.length, phase.length if phase else 0)
    backbone = recipe.model.backbone
    if longest > backbone.max_length:
        key = "data.length" if longest == recipe.data.length else "data.long_phase.length"
        if "positions" in type(backbone).model_fields:
            limit, advice = f"model.backbone.positions {backbone.max_length}", "lower one or raise the other"
        else:
            limit, advice = f"the longest row of {backbone.kind}, {backbone.max_length}", "lower it"
        raise UserError(f"{where}: {key} {longest} exceeds {limit}; {advice}")
    micro_batch = recipe.training.batch_tokens // recipe.training.micro_batches
    if micro_batch < longest:
        raise UserError(
            f"{where}: training.batch_tokens / training.micro_batches = {micro_batch} tokens, less than one row of "
            f"{longest}; raise batch_tokens or lower micro_batches"
        )


def _validate(model: Any, data: Any, prefix: str, where: str) -> Any:
    if not isinstance(data, dict):
        raise UserError(f"{where}: '{prefix}' must be a section with keys, found {brief(data)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(p)[:MESSAGE] for p in first["loc"]]
        key = ".".join([p for p in [prefix, *place] if p])
        shown = brief(key)
        if first["type"] == "extra_forbidden":
            if renamed := new_name(key):
                raise UserError(f"{where}: the key {shown} is now {renamed!r}{_new_value(key)}; change it") from None
            known = _known_keys(model, place[:-1])
            raise UserError(f"{where}: unknown key {shown}.{suggest(place[-1], known)}") from None
        found = (
            "" if first["type"] == "missing" or isinstance(first["input"], dict) else f", found {brief(first['input'])}"
        )
        message = " ".join(first["msg"].removeprefix("Value error, ").split())[:MESSAGE]
        raise UserError(f"{where}: {shown if key else repr('recipe')}: {message}{found if key else ''}") from None


def _find(room: str, name: Any, where: str) -> Any:
    """A member of the catalog that a recipe names."""
    if not _is_plain(name):
        raise UserError(f"{where}: {brief(name)} is not the name of a member of {room}; `keel recipe show` prints one")
    return catalog.find(room, name)


def _is_plain(name: Any) -> bool:
    """Whether a value can be a name or a path."""
    plain = isinstance(name, str) and name.isprintable() and len(name) < 4000
    return plain and all(len(part) < 250 for part in name.split("/"))


def _known_keys(model: Any, path: list[str]) -> list[str]:
    for part in path:
        inner = model.model_fields[part].annotation
        options = [
            t for t in (inner, *getattr(inner, "__args__", ())) if isinstance(t, type) and issubclass(t, BaseModel)
        ]
        if not options:
            return []
        model = options[0]
    return list(model.model_fields)


def _inherit(name_or_path: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    path = _locate(name_or_path)
    if str(path) in seen:
        raise UserError(f"{path}: a recipe cannot extend itself ({' -> '.join(seen)})")
    data = read_yaml(path)
    data.setdefault("name", path.stem)
    if isinstance(data.get("plugins"), list):
        if odd := [plugin for plugin in data["plugins"] if not _is_plain(plugin)]:
            raise UserError(f"{path}: 'plugins' must be a list of Python files, found {brief(odd[0])}")
        data["plugins"] = [str(_beside(path, str(plugin))) for plugin in data["plugins"]]
        for plugin in data["plugins"]:
            catalog.add_plugin(plugin)
    parent = data.pop("extends", None)
    if not parent:
        return data
    if not _is_plain(parent):
        raise UserError(f"{path}: 'extends' must be the name or the file of a recipe, found {brief(parent)}")
    beside = path.parent / str(parent)  # a parent file is found beside its child, whatever the working directory
    return _merge(_inherit(str(beside if beside.is_file() else parent), (*seen, str(path))), data)


def _locate(name_or_path: str) -> Path:
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise UserError(f"{path}: no such recipe file")
        return path
    if name_or_path in RECIPES:
        raise UserError(f"the recipe '{name_or_path}' is now called '{RECIPES[name_or_path]}'")
    file: Path = catalog.find("recipes", name_or_path)
    return file


def _beside(recipe: Path, plugin: str) -> Path:
    """The path of a plug-in, which is relative to its recipe, or else to the working directory."""
    near = recipe.parent / plugin
    return (near if near.is_file() else Path(plugin)).resolve()


def _by_own_name(data: dict[str, Any], room: str, section: dict[str, Any]) -> dict[str, Any]:
    """A section whose `kind` may be the path of a plug-in: loads the plug-in and replaces the path by its name."""
    kind = str(section.get("kind", ""))
    if not catalog.is_path(kind):
        return section
    file = str(Path(f"{kind.rpartition('.py')[0]}.py").resolve())
    names = [name for added, name in catalog.add_plugin(file) if added == room]
    if len(names) != 1:
        raise UserError(f"{file}: defines {len(names)} {room}, but exactly one is needed")
    plugins = data.get("plugins") or []
    data["plugins"] = plugins if file in plugins else [*plugins, file]
    return {**section, "kind": names[0]}


def _new_value(key: str) -> str:
    """How the value of a renamed key changed."""
    changed = {"encoder.use": " (true or false)", "model.backbone.attention.look": " (true or false)"}
    return changed.get(key, "")


def _merge(parent: dict[str, Any], child: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {brief(override)}: expected key=value, such as training.learning_rate=1e-3")
    place = data
    *path, last = key.strip().split(".")
    for part in path:
        if not isinstance(place.get(part), dict):
            place[part] = {}
        place = place[part]
    try:
        value = load_yaml(text)
    except yaml.YAMLError:
        raise UserError(f"--set {brief(override)}: the value is not valid YAML") from None
    if isinstance(value, str) and text.strip()[:1] not in "\"'":  # YAML 1.1 reads 1e-3 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    place[last] = value
