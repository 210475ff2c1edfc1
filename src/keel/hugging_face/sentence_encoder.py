"""How a sentence-transformers folder makes one vector per text: its pooling, its normalisation, its prompts, and how
long a text is read.

In: a model folder. Out: the settings in its modules.json; the defaults for any other folder.

Notable choice: a step that Keel does not compute (a dense layer, weighted pooling) is an error that names it, because
the vectors would be others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keel.configs import brief
from keel.errors import UserError
from keel.files.folders import SealedFiles, read_json

POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
LEAST_LENGTH = 3  # [CLS], a token, [SEP]


@dataclass(frozen=True)
class SentenceEncoder:
    pooling: str = "mean"
    normalize: bool = False  # vectors have length 1
    prompts: dict[str, str] = field(default_factory=dict)  # texts to put before a query, a passage, ...
    pooled: bool = False  # whether the folder says that it makes one vector per text
    default_prompt: str | None = None  # the name of the one that is used unless another is given
    max_length: int | None = None  # tokens that a truncated text keeps, if fewer than the model's positions


def read_sentence_encoder(folder: Path) -> SentenceEncoder:
    files = SealedFiles(folder, lambda name: name.endswith(".json"))
    modules = files.find("modules.json")
    if modules is None:
        return SentenceEncoder()
    pooling, normalize = "mean", False
    for module in _listed(read_json(modules), modules):
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(files, f"{module.get('path', '')}/config.json", folder)
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise UserError(f"{modules}: the step {brief(kind)} is not supported, so its vectors cannot be computed")
    prompts, default = _prompts(files)
    return SentenceEncoder(pooling, normalize, prompts, True, default, _max_length(files))


def copy_sentence_encoder(source: Path, target: Path) -> None:
    """Copies these settings into another model folder; nothing if the source has none."""
    files = SealedFiles(source, lambda name: name.endswith(".json"))
    modules = files.find("modules.json")
    if modules is None:
        return
    own = [f"{module.get('path', '')}/config.json" for module in _listed(read_json(modules), modules)]
    general = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
    for name in (*general, *(name for name in own if name[0] != "/")):
        if found := files.find(name) if ".." not in Path(name).parts else None:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(found.read_bytes())


def _listed(modules: Any, path: Path) -> list[dict[str, Any]]:
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise UserError(f"{path}: not a list of steps; restore it from a copy")
    return modules


def _pooling(files: SealedFiles, name: str, folder: Path) -> str:
    path = files.find(name) if ".." not in Path(name).parts and not Path(name).is_absolute() else None
    if path is None:
        raise UserError(f"{folder}: {name} is missing, which says how vectors are pooled; restore it from a copy")
    config = read_json(path)
    if isinstance(config, dict) and isinstance(config.get("pooling_mode"), str):  # since version 5
        chosen = {config["pooling_mode"]}
    elif isinstance(config, dict):
        on = {key for key, value in config.items() if key.startswith("pooling_mode_") and value is True}
        chosen = {POOLINGS.get(key, key) for key in on}
    else:
        chosen = set()
    if len(chosen) != 1 or not chosen <= set(POOLINGS.values()):
        found = ", ".join(sorted(chosen)) or "nothing"
        raise UserError(f"{path}: pooling by {brief(found)} is not supported; known: mean, cls, max")
    return chosen.pop()


def _max_length(files: SealedFiles) -> int | None:
    path = files.find("sentence_bert_config.json")
    config = read_json(path) if path else {}
    length = config.get("max_seq_length") if isinstance(config, dict) else None
    if length is None:
        return None
    if type(length) is not int or length < LEAST_LENGTH:
        raise UserError(f"{path}: max_seq_length is {brief(length)}, not a number of tokens; restore it from a copy")
    return length


def _prompts(files: SealedFiles) -> tuple[dict[str, str], str | None]:
    path = files.find("config_sentence_transformers.json")
    config = read_json(path) if path else {}
    config = config if isinstance(config, dict) else {}
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise UserError(f"{path}: 'prompts' is not a table of texts; restore it from a copy")
    default = config.get("default_prompt_name")
    return prompts, default if default in prompts else None
