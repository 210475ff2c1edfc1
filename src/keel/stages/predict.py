"""`keel predict --file`: the answers of a fine-tuned model for the rows of a file.

In: a model folder and a file. Out: the answers, group by group; or, for any number of rows, a table with the file's own
columns and the answers (`predict_file`).

Notable choices
- Answers without a table must stay aligned with the rows, so a row that cannot be used is an error before the first
  answer. A table has a column for it: the row is kept, with the reason under `error`, and the file is read only once
  before it is answered.
- Answers are kept as JSON lines while the work lasts (`files/growing.py`) and joined with the rows at the end, when all
  columns are known: one way to resume for all formats, and for csv and parquet no header before the first answer.
- Groups are a function of the rows alone, and a resumed run begins with a whole group and keeps the number of threads:
  so it gives the same bytes. (A row's last digits may depend on the rows that are computed together with it.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from keel.batching import groups
from keel.errors import Rejected, UserError
from keel.files.folders import fingerprint
from keel.files.growing import Growing, Source, check_growing, growing
from keel.files.tables import check_kind, write_table
from keel.inference.answer_table import AnswerTable, line_of, read_entries, to_lines
from keel.inference.model import EXAMPLE_SIZE, GROUP_SIZE, Model, in_bounded_memory, size_of
from keel.inference.progress import row_progress, skip
from keel.inference.tasks import (
    SHOWN_ROWS,
    answer_groups,
    describe_truncation,
    open_examples,
    open_task,
    survey,
    usable,
)
from keel.inference.whole_rows import scan
from keel.text.parallel import two_files
from keel.text.tables import kind_of
from keel.values import ExampleFile, Truncation

TABLE = "table"  # the complete output, until it has its name
Report = Callable[[Any], None]


def predict(model: str, data: str, **options: Any) -> list[dict[str, Any]]:
    """The answers for the rows of a file, in order; the options are those of `predict_groups`."""
    return [answer for group in predict_groups(model, data, **options) for answer in group]


def predict_groups(
    model: str,
    data: str,
    *,
    columns: dict[str, Any] | None = None,
    with_input: bool = False,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """The same, group by group. An unreadable row is an error before the first answer, so that answers stay aligned.
    `with_input`: each answer after the columns of its row."""
    loaded = open_task(model, columns, allow_pickle, device)
    file = open_examples(loaded, data, labelled=False)
    found = survey(file)
    if found.rejected:
        raise UserError(f"{found.first_rejected[0]} ({found.rejected} such rows in all)")
    if not with_input:
        yield from answer_groups(loaded, [usable(file, _unexpected)], report)
        return
    table = AnswerTable(data, file.data)
    rows = table.table_rows()
    given = list[Any]()

    def remembered() -> Iterator[Any]:
        for example in usable(file, _unexpected):
            given.append(example)
            yield example

    for answers in answer_groups(loaded, [remembered()], report):
        entries = [table.entry(example, answer) for example, answer in zip(given, answers, strict=False)]
        del given[: len(answers)]  # the next group's first example has been read already
        yield [table.join(next(rows) if rows else None, entry) for entry in entries]


def predict_file(
    model: str,
    file: str,
    out: str,
    *,
    columns: dict[str, Any] | None = None,
    resume: bool = False,
    strict: bool = False,
    threads: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Writes the rows of a file with their answers to `out`, a new .csv, .jsonl (also .gz) or .parquet; the counts.

    `resume` continues after the last answer that was kept, or begins if there is none. `strict` raises for a row that
    cannot be used, before anything is computed. `report` gets lines of text and `RowProgress` values.
    """
    began = time.monotonic()
    check_kind(Path(out))
    check_growing(Path(out), resume)
    loaded = open_task(model, columns, allow_pickle, device)
    opened = open_examples(loaded, file, labelled=False)
    if strict and (found := survey(opened)).rejected:
        raise UserError(f"{found.first_rejected[0]} (--strict; {found.rejected} such rows in all)")
    say = report or (lambda update: None)
    sources, lines = _sources(model, loaded, file)
    with growing(Path(out), sources, resume) as target:
        before = target.state.get("rows", 0)
        if not target.complete:
            if before:
                say(f"{before:,} rows are answered already")
            table = AnswerTable(file, opened.data)
            try:
                _answer(loaded, opened, table, target, threads, lines, say)
                _write(table, file, target, say)
            except KeyboardInterrupt:
                if target.state and not target.complete:
                    say(f"{target.state['rows']:,} rows are answered and kept; add --resume to continue")
                raise
        state = target.state
    _say_what_is_missing(state, loaded, say)
    seconds = time.monotonic() - began
    return {
        "out": out,
        "rows": state["rows"],
        "answered": state["answered"],
        "errors": state["rows"] - state["answered"],
        "truncated_texts": Truncation(*state["truncation"]).truncated_texts,
        "resumed_after": before,
        "seconds": seconds,
        "rows_per_second": (state["rows"] - before) / seconds,
    }


def _sources(model: str, loaded: Model, file: str) -> tuple[list[Source], int]:
    """What the answers depend on, and the number of lines of the file."""
    files = [scan(name) for name in two_files(file) or [file]]
    settings = loaded.need_task().data.model_dump_json()
    sources = [
        Source("data", file, " ".join(found.fingerprint for found in files)),
        Source("weights", model, fingerprint(loaded.path)),
        Source("columns or lengths", settings, settings),
    ]
    return sources, 0 if kind_of(Path(file)) == ".json" else files[0].lines


def _answer(
    loaded: Model,
    file: ExampleFile,
    table: AnswerTable,
    target: Growing,
    threads: int | None,
    total: int,
    say: Report,
) -> None:
    """Answers the rows that follow those in `target`, and adds them group by group."""
    state = target.state or {
        "rows": 0,
        "answered": 0,
        "keys": [],
        "first_errors": [],
        "truncation": [0, 0, 0, 0],
        "threads": threads or torch.get_num_threads(),
    }
    if threads not in (None, state["threads"]):
        say(f"begun with {state['threads']} threads; {threads} may change the last digits of the answers")
    torch.set_num_threads(threads or state["threads"])
    rows = skip(file.rows(), state["rows"])
    tell = row_progress(say, total, state["rows"])
    planned = groups(rows, lambda row: EXAMPLE_SIZE if isinstance(row, Rejected) else size_of(row), GROUP_SIZE)
    for group in in_bounded_memory(planned):
        examples = [row for row in group if not isinstance(row, Rejected)]
        found = loaded.answer_group(examples) if examples else None
        answers = iter(found.answers if found else ())
        entries = [table.entry(row, None if isinstance(row, Rejected) else next(answers)) for row in group]
        truncation = found.truncation if found else Truncation()
        state = _after(state, entries, truncation)
        target.append(to_lines(entries), state)
        tell(state["rows"], line_of(group[-1]))
    if not target.state:
        target.append(b"", state)


def _write(table: AnswerTable, file: str, target: Growing, say: Report) -> None:
    """Joins the rows with their answers and gives the result its name."""
    state = target.state
    if not state["answered"]:
        target.discard()
        raise UserError(f"{file}: no row can be used: {', '.join(state['first_errors'][:1])}")
    target.save()
    say(f"writing {target.out}")
    written, names = target.folder / TABLE, table.all_columns(state["keys"])
    write_table(written, target.out, names, lambda: table.rows(read_entries(target.data), state["keys"]))
    target.publish(written)


def _after(state: dict[str, Any], entries: list[dict[str, Any]], truncation: Truncation) -> dict[str, Any]:
    """The state after a group."""
    keys = dict.fromkeys([*state["keys"], *(key for entry in entries for key in entry.get("answer", ()))])
    errors = [entry["error"] for entry in entries if "error" in entry]
    total = Truncation(*state["truncation"]) + truncation
    return state | {
        "rows": state["rows"] + len(entries),
        "answered": state["answered"] + len(entries) - len(errors),
        "keys": list(keys),
        "first_errors": [*state["first_errors"], *errors][:SHOWN_ROWS],
        "truncation": [total.texts, total.truncated_texts, total.tokens, total.truncated_tokens],
    }


def _say_what_is_missing(state: dict[str, Any], loaded: Model, say: Report) -> None:
    """Rows without an answer, and texts that were cut."""
    for error in state["first_errors"]:
        say(f"no answer: {error}")
    missing = state["rows"] - state["answered"]
    if missing > len(state["first_errors"]):
        say(f"no answer: {missing:,} rows in all; the column error says why")
    truncation = Truncation(*state["truncation"])
    if truncation.truncated_texts:
        say(describe_truncation(truncation, loaded.need_task().data))


def _unexpected(row: Rejected) -> None:
    raise UserError(f"{row} (it could be read a moment ago: the file was changed)")
