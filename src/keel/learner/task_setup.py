"""A task and its encoder settings: everything a fine-tuned model needs besides weights and tokenizer.

In: a task and the recipe's `encoder` section, or both as plain data from a folder. Out: a learner for a backbone, and
the entries of config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel import catalog
from keel.errors import UserError
from keel.interfaces import Backbone, Task
from keel.learner.frozen_encoder import EncoderSettings, FrozenEncoder
from keel.learner.learner import Learner
from keel.text.labelled import LabelledData


@dataclass(frozen=True)
class TaskSetup:
    task: Task
    encoder: EncoderSettings

    @property
    def kind(self) -> str:
        return str(self.task.config.kind)

    def make_learner(self, backbone: Backbone) -> Learner:
        """With a fresh head."""
        frozen = FrozenEncoder(backbone, self.encoder) if self.encoder.frozen else None
        return Learner(backbone, {self.kind: self.task.objective(frozen or backbone)}, frozen)

    def sections(self) -> dict[str, Any]:
        """As plain data, for `read_setup`."""
        parts = {"task": self.task.config, "data": self.task.data, "encoder": self.encoder}
        return {name: part.model_dump(mode="json") for name, part in parts.items()}


def read_setup(sections: Mapping[str, Any], where: Path | str) -> TaskSetup:
    """From plain data: `task`, and optionally `data` and `encoder`."""
    name = str(sections["task"].get("kind"))
    if catalog.is_path(name):  # a model folder may be untrusted: it must not choose code to run
        raise UserError(f"{where}: its task is a path ({name}), which Keel does not load; add --plugin FILE instead")
    kind = catalog.find("tasks", name)
    try:
        task = kind(kind.Config(**sections["task"]), LabelledData(**sections.get("data", {})))
        return TaskSetup(task, EncoderSettings(**sections.get("encoder", {})))
    except ValueError as error:
        raise UserError(f"{where}: its 'keel' entry cannot be used ({str(error).splitlines()[0]})") from None
