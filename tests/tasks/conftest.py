"""Models that were taught each kind of task, from the labelled files of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SETTINGS = (
    "data.length=48",
    "training.learning_rate=3e-3",
    "training.warmup=0.1",
    "training.epochs=6",
    "training.precision=fp32",
)


@pytest.fixture(scope="session")
def taught(
    finished_run: Path, labelled: Callable[[str, int, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """`taught("tag")`: a model of this kind and the figures of its training; each is made once."""
    from keel.stages.finetune import finetune

    made: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}

    def teach(kind: str, *overrides: str) -> tuple[Path, dict[str, Any]]:
        key = (kind, *overrides)
        if key not in made:
            out = tmp_path_factory.mktemp("taught") / kind
            figures = finetune(
                str(finished_run),
                kind,
                train=str(labelled(kind, 1, 240)),
                dev=str(labelled(kind, 2, 60)),
                out=str(out),
                overrides=[*SETTINGS, *overrides],
                quiet=True,
            )
            made[key] = out, figures
        return made[key]

    return teach
