"""The learning rate as a function of progress (0 at the start of the run, 1 at its end).

Progress is step / steps, or elapsed / budget for runs planned by wall-clock: one schedule serves both.
"""

from __future__ import annotations

import math

from keel.training.settings import TrainingSettings


def learning_rate(settings: TrainingSettings, progress: float) -> float:
    """Linear warm-up, then decay: to zero (linear, cosine), with the inverse square root of progress, or none.

    Without warm-up, inverse-sqrt begins to decay after the first 1 % of the run."""
    warmup = settings.warmup if settings.warmup < 1 else settings.warmup / settings.steps
    if progress < warmup:
        return settings.learning_rate * progress / warmup
    left = (1.0 - progress) / (1.0 - warmup)
    shape = {
        "linear": left,
        "cosine": 0.5 * (1 - math.cos(math.pi * left)),
        "constant": 1.0,
        "inverse-sqrt": min(1.0, math.sqrt((warmup or 0.01) / max(progress, 1e-9))),
    }[settings.decay]
    return settings.learning_rate * max(0.0, shape)
