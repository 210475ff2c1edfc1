"""Training progress: a bar on a terminal, a line that changes in a notebook, lines at growing intervals in a log.

In: one dictionary per step (the log line's keys plus `remaining` seconds). Out: loss, tokens/s, padding, time left.
"""

from __future__ import annotations

import time
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from keel.console import Stderr, clean, notebook_line, say


class TrainingProgress:
    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.last = 0.0
        self.pause = 2.0  # seconds between lines in a log; grows to a minute
        self.bar: Progress | None = None
        self.line = None if quiet else notebook_line()
        stderr = Stderr()
        if not quiet and not self.line and stderr.isatty():
            columns = (
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.description}"),
            )
            self.bar = Progress(*columns, console=Console(file=cast(IO[str], stderr)), refresh_per_second=4)
            self.task = self.bar.add_task("starting", total=1.0)
            self.bar.start()

    def show(self, step: dict[str, Any]) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        if self.bar:
            if now - self.last > 0.25:
                self.bar.update(self.task, completed=step["progress"], description=describe(step))
                self.last = now
        elif self.line:
            self.line.show(f"{drawn(step['progress'])} {100 * step['progress']:3.0f}%  {describe(step)}")
        elif now - self.last > self.pause:
            say(f"{100 * step['progress']:5.1f}%  {describe(step)}")
            self.last, self.pause = now, min(60.0, self.pause * 1.5)

    def note(self, text: str) -> None:
        """Prints a line above the bar, or below the line of a notebook."""
        if self.bar:
            self.bar.console.print(clean(text), highlight=False, markup=False)
        elif self.line:
            self.line.note(text)
        elif not self.quiet:
            say(text)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
        if self.line:
            self.line.flush()


def drawn(progress: float, width: int = 24) -> str:
    """A bar of characters."""
    done = round(width * progress)
    return "\u2588" * done + "\u2591" * (width - done)


def describe(step: dict[str, Any]) -> str:
    parts = [f"step {step['step']:,}"]
    losses = [(k.removesuffix(".loss"), v) for k, v in step.items() if k.endswith(".loss")]
    for name, loss in losses:
        right = step.get(f"{name}.accuracy")
        parts.append(f"{name} {loss:.3f}" + ("" if right is None else f" ({100 * right:.1f}%)"))
    parts.append(f"{step['tokens_per_second']:,.0f} tokens/s")
    parts.append(f"padding {100 * step.get('padding', 0.0):.1f}%")
    parts.append(f"{clock(step['remaining'])} left")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
