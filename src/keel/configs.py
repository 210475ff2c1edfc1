"""What the sections of a recipe that configure a backbone, an objective or a task have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

ANY_LENGTH = 1 << 20


class Options(BaseModel):
    """A section of a recipe: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BackboneConfig(Options):
    """What every backbone's config has; each family adds its own keys."""

    kind: str
    vocabulary: int | None = Field(None, ge=6, description="tokens; null: as many as the tokenizer has")
    layers: int
    width: int
    init_std: float = Field(0.02, gt=0, description="standard deviation of fresh weights")
    pooler: bool = False

    @property
    def context(self) -> Literal["both", "left", "none"]:
        """What a token's vector has seen of its row: both sides, what came before it, or only the token itself."""
        return "both"

    @property
    def max_length(self) -> int:
        """The longest row it can read."""
        return ANY_LENGTH

    @property
    def characters_read(self) -> int:
        """Bytes of a word's spelling that it reads, so that words without an entry have vectors too; 0: ids only."""
        return 0


class ObjectiveConfig(Options):
    weight: float = Field(1.0, gt=0, description="of this loss in the sum that is minimised")


class TaskConfig(Options):
    kind: str
