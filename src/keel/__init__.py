"""Keel: from your own text to language encoders that work.

`keel.load(path)` opens a model folder; everything else is reached through the command line or `keel.stages`.
`keel.add_plugin(file)` registers backbones, tasks, ... of your own.
Importing this package has no side effects: torch is imported by the first call that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keel.inference.model import Model

__version__ = "0.1.0"
__all__ = ["__version__", "add_plugin", "load"]


def load(path: str, **options: Any) -> Model:
    """Opens a Keel or Hugging Face model folder: `keel.load("my-model").fill("Paris is [MASK].")`."""
    from keel.inference.model import Model

    return Model.load(path, **options)


def add_plugin(file: str) -> list[tuple[str, str]]:
    """Registers the members that a Python file defines (backbones, tasks, ...) in this process."""
    from keel import catalog

    return catalog.add_plugin(file)
