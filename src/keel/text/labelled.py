"""The `data` section of a fine-tuning recipe: columns, the length of rows, and the treatment of long texts.

In: the section and a labelled file. Out: the records of the file, or an error that lists its columns.

Notable choice: columns that are not named are guessed from common names, and the guess is written into the recipe that
is saved with the result, so that no run depends on the same guess twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ConfigDict, Field

from keel.configs import Options
from keel.errors import Rejected, UserError
from keel.in_memory import Source
from keel.text.long_text import LongText
from keel.text.records import listed
from keel.text.tables import OBJECTS, Record, choose, column_names, kind_of, looks_like_data, read_table

COMMON_NAMES = {
    "text": ("text", "sentence", "sentence1", "text_a", "question1", "premise", "#1 String", "content", "review"),
    "pair": ("pair", "text_pair", "sentence2", "text_b", "question2", "hypothesis", "#2 String"),
    "label": ("label", "labels", "class", "category", "score", "similarity", "gold_label", "Quality"),
}


class LabelledData(Options):
    # Numbers are coerced, so that a column can be given as 1 instead of "1".
    model_config = ConfigDict(coerce_numbers_to_str=True)

    length: int = Field(128, ge=8, description="maximum number of tokens in a row")
    long: LongText = LongText()
    text: str | None = Field(None, description="column of the text: a name, or a number in a file without header")
    pair: str | None = Field(None, description="column of the second text, if there are two")
    label: str | None = Field(None, description="column of the label")
    choices: list[str] | None = Field(None, description="columns of the choices, for multiple choice")


def as_text(value: Any) -> str | None:
    """A field as text; None if it has none (null, a list, an object)."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else None


def _numbers(roles: Sequence[str]) -> str:
    return " ".join(f"--{role} {number}" for number, role in enumerate((r for r in roles if r != "pair"), 1))


def find_columns(path: Source, data: LabelledData, roles: Sequence[str]) -> LabelledData:
    """The data section with the columns of these roles filled in, as far as they can be guessed."""
    named = data.model_dump()
    wanted = {role: named[role] for role in roles}
    numbered = any(str(name or "").isdecimal() for name in wanted.values())
    if all(wanted.values()) or numbered or kind_of(path) == ".txt":
        return data
    known = column_names(path)
    # A second text is guessed only together with the first: a user who names the text column has chosen.
    open_roles = [r for r in roles if not wanted[r] and not (r == "pair" and wanted.get("text"))]
    guesses = {r: next((name for name in COMMON_NAMES[r] if name in known), None) for r in open_roles}
    return data.model_copy(update={r: name for r, name in guesses.items() if name})


def read_examples(path: Source, data: LabelledData, roles: Sequence[str]) -> Iterator[Record | Rejected]:
    """The records of a file with a field for each role. Only the column of `pair` may be unknown."""
    named = data.model_dump()
    columns: dict[str, Any] = {role: named[role] for role in roles}
    if kind_of(path) == ".txt":  # it has only texts; `read_table` raises if more is wanted
        columns = {"text": "text"} | {role: role for role in roles if columns[role] or role == "label"}
    for role, name in columns.items():
        if name is None and role != "pair":
            names = column_names(path)
            if kind_of(path) not in OBJECTS and looks_like_data(names):
                raise UserError(
                    f"{path}: its first line looks like data, not like a header. Number the columns from 1, as in "
                    f"{_numbers(roles)}; the file has {len(names)}"
                )
            raise UserError(f"{path}: which column holds the {role}? It has {listed(names)}{choose(path, role)}")
    return read_table(path, columns)
