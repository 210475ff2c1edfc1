"""The models of a server, each by name, and what they can do. In: `DIR` or `NAME=DIR`. Out: loaded models."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from keel.errors import UserError, suggest
from keel.inference.model import Model

NAME = re.compile(r"[\w.-]+", re.ASCII)
EXPLAINED = "explain"


class NotServed(UserError):
    """No model of this server has this name, or does this."""


@dataclass(frozen=True)
class ServedModel:
    name: str
    model: Model

    @cached_property
    def apart(self) -> Model:
        """The same model for another thread: the same tensors, but modules of its own, which hold the state of a text
        that is being written."""
        learner = self.model.learner
        shared = {id(tensor): tensor for tensor in (*learner.parameters(), *learner.buffers())}
        twin = copy.copy(self.model)
        twin.learner = copy.deepcopy(learner, shared)
        return twin

    @cached_property
    def task(self) -> str | None:
        return None if self.model.task is None else str(self.model.task.config.kind)

    @cached_property
    def abilities(self) -> tuple[str, ...]:
        heads = self.model.learner.objectives
        found = ["embed"] if self.task != "translate" else []
        found += ["fill"] if "masked_lm" in heads else []
        found += ["generate"] if "causal_lm" in heads else []
        found += ["translate" if self.task == "translate" else "predict"] if self.task else []
        return tuple(found)

    def describe(self) -> dict[str, Any]:
        """What a client may want to know."""
        model = self.model
        config = model.learner.backbone.config
        return {
            "name": self.name,
            "kind": config.kind,
            "layers": config.layers,
            "width": config.width,
            "heads": config.model_dump().get("heads"),
            "max_length": model.learner.backbone.max_length,
            "vocabulary": model.tokenizer.size,
            "parameters": sum(parameter.numel() for parameter in model.learner.parameters()),
            "task": self.task,
            "labels": None if model.task is None else model.task.config.model_dump().get("labels"),
            "several_texts": model.task is not None and model.task.usage.several_texts,
            "pair": model.task is not None and bool(model.task.data.model_dump().get("pair")),
            "abilities": list(self.abilities),
            "mask": None if model.tokenizer.mask < 0 else model.tokenizer.token(model.tokenizer.mask),
            "prompts": sorted(model.sentence_encoder.prompts),
        }

    def listed(self) -> dict[str, Any]:
        """The same as an entry of OpenAI's list."""
        return {"id": self.name, "object": "model", "created": 0, "owned_by": "keel", **self.describe()}


class Models:
    def __init__(self, served: Sequence[ServedModel]) -> None:
        self.by_name = {one.name: one for one in served}

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def find(self, name: str | None, *abilities: str) -> ServedModel:
        """The model with this name, or the first that has one of these abilities."""
        if name is not None:
            found = self.by_name.get(name)
            if found is None:
                raise NotServed(f"there is no model '{name[:100]}'.{suggest(name[:100], self.by_name)}")
            if abilities and not set(abilities) & set(found.abilities):
                raise NotServed(f"the model '{name}' cannot {abilities[0]}; it can {', '.join(found.abilities)}")
            return found
        for one in self.by_name.values():
            if not abilities or set(abilities) & set(one.abilities):
                return one
        raise NotServed(f"no model of this server can {abilities[0]}")


def parse_models(given: Sequence[str]) -> dict[str, str]:
    """Names and folders."""
    found = dict[str, str]()
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or not NAME.fullmatch(name):
            path = Path(one)  # a link has its own name, not its target's
            last = (path.resolve() if path.name == ".." else path.absolute()).name
            name, folder = re.sub(r"[^\w.-]+", "-", last, flags=re.ASCII).strip("-") or "model", one
        if name in found:
            raise UserError(f"two models are called '{name}': {found[name]} and {folder}; name one with NAME={folder}")
        found[name] = folder
    return found


def load_models(folders: dict[str, str], device: str, allow_pickle: bool) -> Models:
    return Models([ServedModel(name, Model.load(path, allow_pickle, device)) for name, path in folders.items()])
