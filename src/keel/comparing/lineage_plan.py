"""The plan of `keel compare lineage`: its members, the ways they are used, the tasks.

In: the user's arguments. Out: a value that is saved with the results; a resumed comparison must have the same.
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
    "training.epochs=8",  # the BiLSTM starts from fresh weights
)
TIMED_EXAMPLES = 64  # that the model whose predictions are timed is fine-tuned on
WAYS = {"features": FEATURES, "tuned": ()}


@dataclass(frozen=True)
class Member:
    """`NAME=FOLDER`, a trained model; or the name or file of a recipe to train."""

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
        """Whether its vocabulary consists of words, not of word pieces."""
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
    at_once: int = 1  # parallel runs, which share the threads

    def seeds(self, member: str) -> int:
        return self.seeds_of.get(member, self.task_seeds)

    def task(self, task: LabelledTask, way: str, member: str) -> LabelledTask:
        """The task with the settings for this way and member; the task's own override the defaults of the way."""
        mine = settings_for(member, self.settings.get(way, []))
        return replace(task, overrides=(*WAYS[way], *task.overrides, *mine))
