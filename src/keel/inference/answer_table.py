"""The rows of a file with their answers: what bulk prediction writes.

In: the file that was answered, and one entry for each of its rows: the answer, or the reason why there is none. Out:
the columns, and one dictionary per row: the columns of the file in their order, those of the answer, and `error`.

Notable choices
- A table is read again and joined with its entries row by row; the line of each row is compared, so that no answer can
  end up beside another row.
- Of files that are no tables (.conll, SQuAD's .json, parallel texts) each entry has its place instead of a row, and the
  text before its answer, if it has one.
- A name that the file has already gets `_predicted` at its end: the file's own columns stay as they are. The `id` of an
  answer is left out if it only repeats the line of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from keel.errors import Rejected, UserError
from keel.files.plain_json import json_line
from keel.inference.whole_rows import WholeRow, WholeTable, free_name, open_whole
from keel.text.labelled import LabelledData
from keel.text.parallel import two_files
from keel.text.tables import TABLES, kind_of

ERROR = "error"
PREDICTED = "_predicted"


class AnswerTable:
    """`data`: the recipe's data section, with the columns that were found in the file."""

    def __init__(self, file: str, data: LabelledData) -> None:
        self.file = file
        self._files = list(two_files(file) or [file])
        self._table: WholeTable | None = None
        if len(self._files) == 1 and kind_of(Path(file)) in (*TABLES, ".parquet"):
            self._table = open_whole(file, header=not _numbered(data))
        self.columns = self._table.columns if self._table else ["where"]
        self._taken = set(self.columns)

    def entry(self, item: Any, answer: dict[str, Any] | None) -> dict[str, Any]:
        """What is kept of an example and its answer, or of a row that was rejected."""
        line = line_of(item)
        entry: dict[str, Any] = {"line": line}
        if isinstance(item, Rejected):
            entry[ERROR] = f"line {item.line}: {item.reason}" if item.line else item.reason
        else:
            repeats = self._table is not None and (answer or {}).get("id") == str(line)
            entry["answer"] = {key: value for key, value in (answer or {}).items() if not (repeats and key == "id")}
        if self._table is None:
            entry["input"] = {"where": self._place(item)}
            text = getattr(item, "text", None)
            if "answer" in entry and isinstance(text, str):
                entry["answer"] = {"text": text} | entry["answer"]
        return entry

    def all_columns(self, answer_keys: Iterable[str]) -> list[str]:
        """The columns of the rows, for these keys of answers."""
        return [*self.columns, *(self._name(key) for key in (*answer_keys, ERROR))]

    def rows(self, entries: Iterable[dict[str, Any]], answer_keys: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The rows of the file with their entries. Where there is no answer, its keys are null, and `error` is not."""
        error, nothing = self._name(ERROR), {self._name(key): None for key in answer_keys}
        of_table = self.table_rows()
        pairs = zip_longest(of_table, entries) if of_table else ((None, entry) for entry in entries)
        for row, entry in pairs:
            reason = (entry or {}).get(ERROR)
            yield {**self.join(row, entry), **(nothing if reason else {}), error: reason}

    def join(self, row: WholeRow | None, entry: dict[str, Any] | None) -> dict[str, Any]:
        """The columns of a row (None if the file is no table), and its answer."""
        if entry is None or (self._table and (row is None or entry["line"] not in (0, row.line))):
            line = row.line if row else entry["line"] if entry else 0
            raise UserError(
                f"{self.file}, line {line}: this row and the answers do not correspond; either the file was changed "
                "meanwhile, or the task does not read it row by row"
            )
        answer = {self._name(key): value for key, value in entry.get("answer", {}).items()}
        return {**(row.values if row else entry["input"]), **answer}

    def table_rows(self) -> Iterator[WholeRow] | None:
        """The rows of the table; None if the file is none."""
        return self._table.rows() if self._table else None

    def _name(self, key: str) -> str:
        return free_name(key + PREDICTED, self._taken) if key in self._taken else key

    def _place(self, item: Any) -> str:
        """Where an example or a rejected row is, without the name of the file."""
        if isinstance(item, Rejected):
            return f"line {item.line}" if item.line else ""
        place = str(item.where)
        for name in self._files:
            place = place.removeprefix(f"{name}, ")
        return place


def line_of(item: Any) -> int:
    """The line of an example or of a rejected row; 0 if it has none."""
    if isinstance(item, Rejected):
        return item.line
    last = str(item.where).rpartition(" ")[2]
    return int(last) if last.isdecimal() and len(last) < 19 else 0


def to_lines(entries: Sequence[dict[str, Any]]) -> bytes:
    """Entries as JSON lines."""
    return "".join(f"{json_line(entry)}\n" for entry in entries).encode("utf-8", "backslashreplace")


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _numbered(data: LabelledData) -> bool:
    """Whether columns are given by their numbers, so that the file has no header."""
    return any(str(name or "").isdecimal() for name in (data.text, data.pair, *(data.choices or ())))
