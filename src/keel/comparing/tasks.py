"""The tasks of a comparison, as given on the command line.

In: `NAME=KIND:TRAIN:DEV`, and settings for all or for one. Out: tasks whose settings and files are checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from keel import recipe as recipes
from keel.errors import UserError
from keel.finetuning.labelled import read_labelled

FORM = "NAME=KIND:TRAIN:DEV, such as sst2=classify:train.tsv:dev.tsv"


@dataclass(frozen=True)
class LabelledTask:
    name: str
    kind: str
    train: str
    dev: str
    overrides: tuple[str, ...] = ()

    @staticmethod
    def parse(given: str, settings: Sequence[str] = ()) -> LabelledTask:
        """From `NAME=KIND:TRAIN:DEV`; settings are `key=value` for all tasks, or `NAME:key=value` for one."""
        name, equals, rest = given.partition("=")
        parts = rest.split(":")
        if not is_name(name) or not equals or len(parts) != 3 or not all(parts):
            raise UserError(f"--task {given}: expected {FORM}")
        kind, train, dev = parts
        return LabelledTask(name, kind, train, dev, tuple(settings_for(name, settings)))


def is_name(name: str) -> bool:
    """Whether this can be a name, also of a folder."""
    return bool(re.fullmatch(r"\w[\w.-]*", name))


def owner_of(setting: str) -> str | None:
    """NAME of `NAME:key=value`; None: it is `key=value`, for all."""
    owner, colon, _ = setting.partition(":")
    return owner if colon and "=" not in owner else None


def settings_for(name: str, settings: Sequence[str]) -> list[str]:
    """The settings for all, followed by those for this one, which override them."""
    mine = [s.removeprefix(f"{name}:") for s in settings if owner_of(s) == name]
    return [s for s in settings if owner_of(s) is None] + mine


def check_tasks(tasks: Sequence[LabelledTask], same: bool = False) -> None:
    """Checks that settings are valid and files can be read. `same`: checks the settings only."""
    if not same and len({task.name for task in tasks}) < len(tasks):
        raise UserError("two tasks have the same name")
    for task in tasks:
        recipe = recipes.load_task(task.kind, task.overrides)
        if same:
            continue
        try:
            read_labelled(recipe, task.train, task.dev)  # report problems in a file now, not after hours of training
        except UserError as error:
            raise UserError(f"--task {task.name}: {error}") from None
