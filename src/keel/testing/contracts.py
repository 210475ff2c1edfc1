"""Checks that your own members fulfil the contracts of `interfaces.py`, as the built-in ones do. One call for each.

    keel.add_plugin("cnn.py")
    check_backbone("cnn")
    check_objective("cnn", "masked_lm")
    check_task("cnn", "classify")
    check_device("cnn", plugins=["cnn.py"])

In: names of the catalog: built in, added by `keel.add_plugin`, or installed. Out: nothing, or an AssertionError that
names the broken rule and what to do. Exceptions raised by a member are not caught.

The lists hold the individual checks, for a test that reports each by name:

    @pytest.mark.parametrize("check", BACKBONE_CHECKS)
    def test_cnn(check):
        check("cnn")
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from keel.testing.backbone_checks import BACKBONE_CHECKS
from keel.testing.objective_checks import OBJECTIVE_CHECKS
from keel.testing.packer_checks import PACKER_CHECKS, some_documents
from keel.testing.task_checks import TASK_CHECKS

__all__ = [
    "BACKBONE_CHECKS",
    "OBJECTIVE_CHECKS",
    "PACKER_CHECKS",
    "TASK_CHECKS",
    "check_backbone",
    "check_device",
    "check_objective",
    "check_packer",
    "check_task",
    "device_outcomes",
]
REGISTERS = "_setup_privateuseone_for_python_backend"  # a function that older versions of torch lack


def check_backbone(name: str, **options: Any) -> None:
    """`options`: for its config, if the small values that the checks choose do not suit it."""
    for check in BACKBONE_CHECKS:
        check(name, **options)


def check_objective(backbone: str, name: str, **options: Any) -> None:
    """On a compatible backbone; an objective must reject an incompatible one with a UserError."""
    for check in OBJECTIVE_CHECKS:
        check(backbone, {name: options})


def check_task(backbone: str, name: str, examples: Sequence[Any] = (), **options: Any) -> None:
    """`examples`: some with answers, such as `Examples.of(task.open(file)).examples`. Without them the scorer is not
    checked, and the loss only if examples without answers have one."""
    for check in TASK_CHECKS:
        check(backbone, name, options, examples)


def check_packer(name: str, corpus: Any = None) -> None:
    """`corpus`: your own; default: thirty generated documents."""
    for check in PACKER_CHECKS:
        check(name, some_documents() if corpus is None else corpus)


def check_device(*names: str, plugins: Sequence[str] = ()) -> None:
    """Runs training steps with these members on a device that is not the CPU (`fake_device.py`)."""
    outcomes = device_outcomes(plugins, names)
    wrong = {trial: outcome for trial, outcome in outcomes.items() if outcome != "ok"}
    assert outcomes, f"there are no trials with {', '.join(names)}"
    assert not wrong, (
        "on a device that is not the CPU:\n"
        + "\n".join(f"  {trial}: {outcome}" for trial, outcome in wrong.items())
        + "\nCreate tensors on the batch's device, and do not synchronise with it in a training step (.item(), bool)"
    )


class NoFakeDevice(RuntimeError):
    """This version of torch has no way to test for a device that is not there."""


def device_outcomes(plugins: Sequence[str] = (), only: Sequence[str] = ()) -> dict[str, str]:
    """For each trial "ok", or the error. Raises `NoFakeDevice` where torch cannot register one."""
    options = [part for file in plugins for part in ("--plugin", file)] + [part for n in only for part in ("--only", n)]
    command = [sys.executable, "-m", "keel.testing.fake_device", *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if REGISTERS in done.stderr and done.returncode:
        raise NoFakeDevice("this version of torch cannot register a device from Python")
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes
