"""What a function of `keel` has made: a folder, and figures about it.

Notable choice: a result can be given wherever a path is expected, so that one step's result is the next one's input.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.inference.model import Model

SHOWN = 3  # figures in a line
REPORT = "report.html"


class Result:
    """`out`: the folder; `metrics`: the figures that the command prints with --json."""

    def __init__(self, made_by: str, out: str | os.PathLike[str] | None, metrics: Mapping[str, Any]) -> None:
        self.made_by = made_by
        self.out = None if out is None else Path(out)
        self.metrics = dict(metrics)
        self._model: Model | None = None

    def __fspath__(self) -> str:
        if self.out is None:
            raise UserError(f"this result of keel.{self.made_by} has no folder; give out=... to write one")
        return str(self.out)

    def __getitem__(self, name: str) -> Any:
        return self.metrics[name]

    @property
    def model(self) -> Model:
        """The model in the folder, opened once."""
        if self._model is None:
            self._model = Model.load(self)
        return self._model

    @property
    def report(self) -> Path | None:
        """The report page, if there is one."""
        page = self.out / REPORT if self.out else None
        return page if page and page.is_file() else None

    def __repr__(self) -> str:
        primary = self.metrics.get("primary_metric")
        figures = [primary] if primary in self.metrics else []
        figures += [k for k, v in self.metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)]
        shown = ", ".join(f"{name} {self.metrics[name]:.4g}" for name in list(dict.fromkeys(figures))[:SHOWN])
        place = f" in {str(self.out)!r}" if self.out else ""
        return f"Result(keel.{self.made_by}{place}{': ' if shown else ''}{shown})"

    def _repr_html_(self) -> str:
        """The report page, inside a notebook; else a table of the figures."""
        if self.report:
            page = html.escape(self.report.read_text(encoding="utf-8"), quote=True)
            return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0" title="report"></iframe>'
        rows = [(k, v) for k, v in self.metrics.items() if isinstance(v, str | int | float) and v != ""]
        cells = "".join(f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in rows)
        return f"<table><caption>keel.{self.made_by}</caption>{cells}</table>"
