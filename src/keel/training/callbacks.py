"""Callbacks: functions of a Python caller that a run calls after every step and every evaluation.

In: the entries of `metrics.jsonl`, each as a dictionary of its own. Out: whether the run goes on.

Notable choices
- A callback that returns False (not None or 0) ends the run as if its last step were done: it is evaluated and saved,
  and the folder is finished. Such a run can be resumed to its planned end.
- An exception is kept until the run is saved, then raised as it was. A resumed run continues after the step.
- A callback gets a copy and no weights, and all random numbers are functions of what they are for, so callbacks do not
  change what a run computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keel.errors import UserError

Callback = Callable[[dict[str, Any]], object]


class Callbacks:
    """The callbacks of one run, and what they asked for."""

    def __init__(self, on_step: Callback | None = None, on_evaluate: Callback | None = None) -> None:
        for name, given in (("on_step", on_step), ("on_evaluate", on_evaluate)):
            if given is not None and not callable(given):
                raise UserError(f"{name} must be a function of one argument, found {type(given).__name__}")
        self.on_step, self.on_evaluate = on_step, on_evaluate
        self.more: Callable[[], dict[str, Any]] = dict  # what `on_evaluate` gets besides the entry
        self.ended = False  # one of them returned False
        self.error: BaseException | None = None

    @property
    def asked(self) -> bool:
        """Whether the run must not go on."""
        return self.ended or self.error is not None

    def after_step(self, entry: dict[str, Any]) -> None:
        self._call(self.on_step, entry)

    def after_evaluation(self, entry: dict[str, Any]) -> None:
        self._call(self.on_evaluate, entry | self.more())

    def _call(self, callback: Callback | None, entry: dict[str, Any]) -> None:
        if callback is None or self.error is not None:
            return
        try:
            self.ended |= callback(dict(entry)) is False
        except BaseException as error:  # also SystemExit: whatever it is, the run is saved first
            self.error = error

    def result(self) -> dict[str, Any]:
        """What the result of a run says about them."""
        return {"ended_by_callback": True} if self.ended else {}

    def raise_error(self) -> None:
        """Called when the run is saved."""
        if self.error is not None:
            raise self.error
