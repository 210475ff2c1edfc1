"""What `keel compare lineage` is to do: its members, the ways they are used, the tasks.

In: what the user gave. Out: a value that is written beside the results, and that a resumed comparison must have too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from keel import recipe as recipes
from keel.comparing.tasks import LabelledTask, is_name, settings_for
from keel.errors import UserError
from keel.hugging_face.folder import load_model

FEATURES = (
    "encoder.frozen=true",
    "encoder.layers=mix",
    "encoder.bilstm={cells: 128}",
    "encoder.dropout=null",
    "training.learning_rate=1e-3",
    "training.epochs=8",  # a BiLSTM starts from nothing
)
WAYS = {"features": FEATURES, "tuned": ()}


@dataclass(frozen=True)
class Member:
    """`NAME=FOLDER`: a model that is there; or the name of a recipe, or its file: one to be trained here."""

    name: str
    folder: str | None = None
    recipe: str | None = None

    @staticmethod
    def parse(given: str) -> Member:
        name, equals, folder = given.partition("=")
        if equals:
            if not is_name(name) or not folder:
                raise UserError(f"{given}: expected NAME=FOLDER, or the name of a recipe")
            return Member(name, folder=folder)
        return Member(Path(given).stem, recipe=given)

    @property
    def reads_words(self) -> bool:
        """Whether it is made for whole words."""
        if self.folder:
            config = load_model(self.folder).learner.backbone.config
        else:
            assert self.recipe is not None
            config = recipes.load(self.recipe).model.backbone
        return bool(config.context == "none" or config.characters_read)


@dataclass(frozen=True)
class LineagePlan:
    members: list[Member]
    corpus: str | None
    words_corpus: str | None
    budget: str | None
    ways: list[str]
    task_seeds: int
    sizes: list[int] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    tasks: list[LabelledTask] = field(default_factory=list)
    settings: dict[str, list[str]] = field(default_factory=dict)  # by way
    seeds_of: dict[str, int] = field(default_factory=dict)  # by member, where not `task_seeds`
    at_once: int = 1  # several share the machine

    def seeds(self, member: str) -> int:
        return self.seeds_of.get(member, self.task_seeds)

    def task(self, task: LabelledTask, way: str, member: str) -> LabelledTask:
        """As this member does it in this way: what is said of the task stands above what the way brings along."""
        mine = settings_for(member, self.settings.get(way, []))
        return replace(task, overrides=(*WAYS[way], *task.overrides, *mine))
