"""The `training` section of a recipe: duration, batch size, optimizer, learning-rate schedule, checkpoints."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from keel import catalog
from keel.configs import Options, brief
from keel.errors import UserError, suggest

AUTO: Final = "auto"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class TrainingSettings(Options):
    steps: int = Field(10_000, ge=1, le=10**12)
    budget: str | None = Field(None, description="wall-clock time such as 45m; replaces steps")
    batch_tokens: int = Field(4096, ge=8, le=10**12, description="tokens per step, over all micro-batches")
    micro_batches: int = Field(
        1, ge=1, le=10**6, description="micro-batches per step (gradient accumulation); affects the results"
    )
    parallel_micro_batches: int = Field(
        1, ge=1, le=10**4, description="micro-batches computed in parallel on a CPU; they share its threads and memory"
    )
    optimizer: str = Field("adamw", description="adamw, or muon: orthogonalised updates for the layers' matrices")
    learning_rate: float = Field(1e-3, gt=0)
    warmup: float = Field(0.06, ge=0, description="fraction of the run if below 1, else steps")
    decay: Literal["linear", "cosine", "constant", "inverse-sqrt"] = "linear"
    weight_decay: float = Field(0.01, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    epsilon: float = Field(1e-6, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    seed: int = Field(1, ge=0, lt=1 << 63)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    log_steps: int = Field(20, ge=1)
    evaluate_steps: int | None = Field(
        None, ge=1, description="steps between evaluations; null: ten in the run (fine-tuning: after each epoch)"
    )
    evaluation_tokens: int = Field(65_536, ge=256, le=10**12)
    checkpoint_steps: int = Field(1000, ge=1)
    checkpoint_minutes: float = Field(10.0, gt=0)
    keep_checkpoints: int = Field(2, ge=1, description="number of newest checkpoints to keep")

    @field_validator("optimizer")
    @classmethod
    def _optimizer_exists(cls, name: str) -> str:
        if not catalog.known("optimizers", name):
            raise ValueError(f"there is no optimizer called '{name}'.{suggest(name, catalog.names('optimizers'))}")
        return name

    @field_validator("budget")
    @classmethod
    def _budget_is_a_time(cls, budget: str | None) -> str | None:
        if budget is not None:
            seconds(budget)
        return budget

    @model_validator(mode="after")
    def _warmup_fits(self) -> TrainingSettings:
        if self.warmup >= 1 and self.budget:
            raise ValueError(
                f"training.warmup is {self.warmup} steps, but a budget sets no number of steps: give a fraction below 1"
            )
        if self.warmup >= 1 and self.warmup >= self.steps:
            raise ValueError(
                f"training.warmup ({self.warmup:g} steps) must be shorter than training.steps ({self.steps})"
            )
        return self


class FinetuneSettings(TrainingSettings):
    """The same keys, but the duration is given in epochs, and the batch size in examples."""

    epochs: Annotated[float, Field(gt=0)] | Literal["auto"] | None = Field(
        AUTO, description="passes over the training examples; auto: by their number; null: training.steps"
    )
    examples: int | None = Field(None, ge=1, description="train on a subset of this many examples; null: all")
    batch_size: int = Field(16, ge=1, le=10**9, description="examples per step, over all micro-batches")
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(  # type: ignore[assignment]  # until the run
        AUTO, description="auto: by the size of the encoder"
    )
    warmup: float = Field(0.1, ge=0, description="fraction of the run if below 1, else steps")
    beta2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-8, gt=0)
    keep_best: bool = Field(True, description="the result is the evaluated model with the best score, not the last")
    patience: int | None = Field(
        None, ge=1, description="end after this many evaluations without a better score; needs keep_best"
    )

    @model_validator(mode="after")
    def _patience_has_a_score(self) -> FinetuneSettings:
        if self.patience is not None and not self.keep_best:
            raise ValueError("training.patience waits for a better score, which needs training.keep_best=true")
        return self

    def for_rows(self, examples: int) -> FinetuneSettings:
        """With the number of steps for this many examples, and an evaluation after each epoch."""
        assert not isinstance(self.epochs, str), "`auto` is replaced before"
        a_pass = max(1, -(-examples // self.batch_size))
        steps = self.steps if self.epochs is None else max(1, round(self.epochs * a_pass))
        if 1 <= self.warmup >= steps:
            raise UserError(
                f"training.warmup is {self.warmup:g} steps, but {examples:,} examples make only {steps:,}; "
                "give a fraction below 1"
            )
        return self.model_copy(update={"steps": steps, "evaluate_steps": self.evaluate_steps or a_pass})


def seconds(budget: str) -> float:
    """'90s', '45m', '2h', '1h30m' -> seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", budget)
    if len(budget) > 40 or not parts or "".join(n + u for n, u in parts) != budget.replace(" ", ""):
        raise ValueError(f"{brief(budget)} is not a time: write 90s, 45m, 2h or 1h30m")
    total = sum(float(n) * UNITS[u] for n, u in parts)
    if total <= 0:
        raise ValueError(f"'{budget}' is zero: give a longer time")
    return total
