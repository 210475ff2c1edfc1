"""Which part of the attention is shown: of one layer, one head, from one word, to one word.

In: what a person chose; None: all. Out: `View`, which tables, pictures and pages follow.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class View(NamedTuple):
    layer: int | None = None  # counted from 1
    head: int | None = None
    start: str | None = None  # the word that looks
    to: str | None = None  # the word that it looks at; only with `start`

    def given(self) -> dict[str, Any]:
        """By the names of the command's options."""
        return {"layer": self.layer, "head": self.head, "from": self.start, "to": self.to}

    @property
    def layers(self) -> list[int] | None:
        return None if self.layer is None else [self.layer]

    @property
    def heads(self) -> list[int] | None:
        return None if self.head is None else [self.head]


ALL = View()
