"""What every verb shares: its common options, how results are printed, how progress is shown.

In: dictionaries from the stages. Out: results on stdout (tables, or one JSON object with --json), progress on stderr.

Notable choices
- rich is imported by the first table or progress bar, not at the top: `--help` must answer at once.
- Text from documents and vocabularies is printed with control characters escaped and without markup: a corpus must not
  be able to recolour, clear or rename somebody's terminal.
- A progress bar is drawn on terminals only; a log file gets one plain line every LINE_SECONDS.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from keel.errors import UserError, suggest

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 10.0
PLAIN_WIDTH = 120

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Texts = Annotated[
    list[str], typer.Argument(metavar="TEXT", help="Files, folders or globs: .txt .jsonl .csv .tsv (.gz)")
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="The folder to write.")]
Documents = Annotated[
    str,
    typer.Option(metavar="auto|file|line|paragraph", help="What a document is in a .txt file; auto: the whole file."),
]
Column = Annotated[str, typer.Option(metavar="NAME", help="The field that holds the text in .jsonl, .csv, .tsv.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the recipe; repeatable.")
]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Also open pytorch_model.bin, which is a pickle. Only if you trust it.")
]

ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, Keel's or Hugging Face's.")]
TextColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of the text: a name, or a number if there is no header.")
]
PairColumn = Annotated[str | None, typer.Option(metavar="COL", help="Column of the second text, if there are two.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="COL", help="Column of the answer.")]
ChoiceColumns = Annotated[
    list[str] | None, typer.Option("--choice", metavar="COL", help="Column of a choice; once for each (choose).")
]
Long = Annotated[
    str | None, typer.Option(metavar="head|tail|head-tail|windows", help="What to do with texts longer than a row.")
]
Strict = Annotated[bool, typer.Option("--strict", help="A row that cannot be used is an error.")]

Report = Callable[[Any], None]


def verb(context: Any) -> str:
    """How a message names the place on the command line: `corpus build`, and `keel` itself for the root."""
    return str(context.command_path).removeprefix("keel ")


class Group(typer.core.TyperGroup):
    """A group of verbs, in the order they are used, that answers a misspelt one in a single line."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            raise UserError(f"{verb(ctx)} has no verb '{clean(args[0])}'.{suggest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def example(*lines: str) -> str:
    """The end of a verb's help: commands that can be copied. \\b keeps the line breaks."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def clean(text: object) -> str:
    """Text made safe for a terminal: control characters are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def number(value: object) -> str:
    """A value as a person reads it: 1,234,567 or 0.0123 or yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return clean(value)
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def share(value: float) -> str:
    return f"{100 * value:.2f} %"


def lines_or_arguments(arguments: Iterable[str], blank: bool = False) -> Iterator[str]:
    """The texts of a command line; - stands for the lines of stdin, blank ones too if they are to be answered."""
    for argument in arguments:
        if argument == "-":
            yield from (line.rstrip("\r\n") for line in sys.stdin if blank or line.strip())
        else:
            yield argument


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """JSON's own types: paths as text, numpy scalars as numbers, infinities and NaN as null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def console() -> Console:
    """stdout, through rich: no markup, no guessing at numbers, wide enough in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()
) -> None:
    """A table; the columns whose places are in `right` hold figures."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if title:
        screen.print(Text(clean(title), style="bold"), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    figures = set(right)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place in figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(number(cell)) for cell in row))
    screen.print(table)
    screen.print()


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """Names and values below each other; nested values are named `outer.inner`, lists of records are left to --json."""
    rows = list(_flat(facts))
    print_table(title, ("what", "value"), rows)


def print_result(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """What a training run found; filled blanks and tasks as tables of their own."""
    if as_json:
        print_json(result)
        return
    print_facts(title, {name: value for name, value in result.items() if name not in ("fills", "tasks")})
    rows = [(f["text"], ", ".join(f["before"]), ", ".join(f["after"])) for f in result.get("fills", ())]
    if rows:
        print_table("filled masks", ("text", "untrained", "trained"), rows)
    tasks = result.get("tasks", ())
    if tasks:
        print_table("tasks", list(tasks[0]), [list(task.values()) for task in tasks], right=range(2, len(tasks[0])))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            if value and not any(isinstance(v, Mapping | list | tuple) for v in value):
                yield prefix + str(name), ", ".join(number(v) for v in value)
        elif value is not None and value != "":
            yield prefix + str(name), str(value) if isinstance(value, Path) else value


def say(line: str) -> None:
    """One line of progress."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def progress(title: str, quiet: bool) -> Iterator[Report | None]:
    """Yields what a stage calls to tell how far it is: with a line of text, or a value that has `done` and `total`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    else:
        yield _Lines(title)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(title, total=None, detail="")

        def report(update: Any) -> None:
            if isinstance(update, str):
                bar.console.print(clean(update))
            else:
                bar.update(task, completed=update.done, total=update.total or None, detail=_detail(update))

        yield report


class _Lines:
    """Progress for log files: a line now and then."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.clock, self.next = title, clock, clock() + LINE_SECONDS

    def __call__(self, update: Any) -> None:
        if isinstance(update, str):
            say(f"{self.title}: {update}")
        elif self.clock() >= self.next:
            self.next = self.clock() + LINE_SECONDS
            part = f"{100 * update.done / update.total:.0f} %" if update.total else number(update.done)
            say(f"{self.title}: {part} {_detail(update)}".rstrip())


def _detail(update: Any) -> str:
    """The other figures of a progress value: `documents 1,234  tokens 5,678`."""
    names = [n for n in getattr(update, "__dataclass_fields__", {}) if n not in ("done", "total")]
    return "  ".join(
        f"{n} {number(getattr(update, n))}" for n in names if isinstance(getattr(update, n), int | float | str)
    )
