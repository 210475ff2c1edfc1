"""Base classes of the recipe sections that configure a backbone, an objective or a task.

In: a section of a recipe, as plain data. Out: a validated, frozen config.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ANY_LENGTH = 1 << 20
MOST_TOKENS = 1 << 31
SHOWN = 80  # characters of a value in an error


def brief(value: Any) -> str:
    """A value for an error: on one line, and shortened, because it may come from a hostile file."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return "a number of more than 80 digits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


class Options(BaseModel):
    """A section of a recipe: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BackboneConfig(Options):
    """The keys of every backbone's config; each backbone adds its own."""

    kind: str
    vocabulary: int | None = Field(
        None, ge=6, le=MOST_TOKENS, description="number of tokens; null: that of the tokenizer"
    )
    layers: int
    width: int
    init_std: float = Field(0.02, gt=0, description="standard deviation of initial weights")
    pooler: bool = False

    @property
    def stored_layers(self) -> int:
        """Layers with weights of their own."""
        return self.layers

    @property
    def context(self) -> Literal["both", "left", "none"]:
        """The context that a token's vector depends on: both sides, the tokens before it, or only the token itself."""
        return "both"

    @property
    def max_length(self) -> int:
        """The maximum length of a row."""
        return ANY_LENGTH

    @property
    def characters_read(self) -> int:
        """Bytes read of a word's spelling, so that out-of-vocabulary words have vectors too; 0: reads ids only."""
        return 0


class ObjectiveConfig(Options):
    weight: float = Field(1.0, gt=0, description="of this loss in the total loss")


class TaskConfig(Options):
    kind: str
