"""How labelled files become a task's rows: which columns hold what, how long a row is, what happens to long texts.

In: the `data` section of a fine-tuning recipe. Out: tables with their columns found, or one line that lists them.

Notable choice: columns that are not named are guessed from the usual names, and what was guessed is written into the
recipe beside the result, so that no run depends on a guess twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from keel.errors import UserError
from keel.text.long_text import LongText
from keel.text.tables import Record, Rejected, column_names, kind_of, read_table

USUAL = {
    "text": ("text", "sentence", "sentence1", "text_a", "question1", "premise", "#1 String", "content", "review"),
    "pair": ("pair", "text_pair", "sentence2", "text_b", "question2", "hypothesis", "#2 String"),
    "label": ("label", "labels", "class", "category", "score", "similarity", "gold_label", "Quality"),
}


class LabelledData(BaseModel):
    # A column's number may be written as a number.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    length: int = Field(128, ge=8, description="tokens in a row at most")
    long: LongText = LongText()
    text: str | None = Field(None, description="column of the text: a name, or a number in a file without header")
    pair: str | None = Field(None, description="column of the second text, if there are two")
    label: str | None = Field(None, description="column of the answer")
    choices: list[str] | None = Field(None, description="columns of the choices, for multiple choice")


def as_text(value: Any) -> str | None:
    """A field as text; None: it holds none (null, a list, an object)."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else None


def find_columns(path: str, data: LabelledData, roles: Sequence[str]) -> LabelledData:
    """The data section with every column named that can be; `pair` may stay absent."""
    wanted = {role: getattr(data, role) for role in roles}
    numbered = any(str(name or "").isdecimal() for name in wanted.values())
    if all(wanted.values()) or numbered or kind_of(Path(path)) == ".txt":
        return data
    known = column_names(path)
    # A second text is guessed only together with the first: whoever names one column has chosen.
    open_roles = [r for r in roles if not wanted[r] and not (r == "pair" and wanted.get("text"))]
    found = {r: next((name for name in USUAL[r] if name in known), None) for r in open_roles}
    return data.model_copy(update={r: name for r, name in found.items() if name})


def read_examples(path: str, data: LabelledData, roles: Sequence[str]) -> tuple[list[Record], list[Rejected]]:
    """The rows of a file with the fields of these roles; `text` and, if asked for, `label` must be known columns."""
    columns: dict[str, Any] = {role: getattr(data, role) for role in roles}
    if kind_of(Path(path)) == ".txt":  # which has texts and nothing else; who wants more is told so
        columns = {"text": "text"} | {role: role for role in roles if columns[role] or role == "label"}
    for role, name in columns.items():
        if name is None and role != "pair":
            listed = ", ".join(f"'{n}'" for n in column_names(path)[:12])
            raise UserError(f"{path}: which column holds the {role}? It has {listed}; choose with --{role}")
    return read_table(path, columns)
