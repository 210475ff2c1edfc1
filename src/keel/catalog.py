"""The folder is the registry: a file in `backbones/`, `objectives/` or `recipes/` is a member by existing.

In: a room ("backbones") and a name ("bert"). Out: the class in that file, or the file itself.
Names on the command line use dashes, file names underscores; both are accepted.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from keel.errors import UserError, suggest

HERE = Path(__file__).parent


def names(room: str, suffix: str = ".py") -> list[str]:
    """The members of a room, by file name."""
    return sorted(p.stem for p in (HERE / room).glob(f"*{suffix}") if not p.stem.startswith("_"))


def find(room: str, name: str) -> Any:
    """The class that `room/name.py` is about: the one class defined there that carries a `Config`."""
    known = names(room)
    file = name.replace("-", "_")
    if file not in known:
        raise UserError(f"there is no {room.removesuffix('s')} called '{name}'.{suggest(name, known)}")
    module = importlib.import_module(f"keel.{room}.{file}")
    members = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
    (found,) = [c for c in members if "Config" in vars(c)]
    return found
