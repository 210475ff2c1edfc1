"""Shared by all verbs: the declaration of a verb, common options, printing of results and progress.

In: dictionaries from the stages. Out: results on stdout (tables, or one JSON object with --json), progress on stderr.

Notable choices
- rich is imported by the first table or progress bar, not at module level, so that `--help` is fast.
- Text from documents and vocabularies is printed with control characters escaped and without markup: a corpus must not
  be able to recolour, clear or rename somebody's terminal.
- A progress bar is drawn on terminals only; a log file gets one plain line every LINE_SECONDS.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer
import typer.core

from keel.console import Stderr, clean, say
from keel.errors import UserError, suggest
from keel.files.plain_json import plain

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 10.0
PLAIN_WIDTH = 120
GROUP_LINES = 256  # of stdin, answered together
BLOCK_BYTES = 1 << 16
LINE_BYTES = 32 << 20

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress on stderr.")]
Texts = Annotated[
    list[str], typer.Argument(metavar="TEXT", help="Files, folders or globs: .txt .jsonl .csv .tsv (.gz) .parquet.")
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")]
Documents = Annotated[
    str,
    typer.Option(metavar="auto|file|line|paragraph", help="What counts as a document in a .txt file; auto: the file."),
]
Column = Annotated[str, typer.Option(metavar="NAME", help="Field that holds the text in .jsonl, .csv, .tsv.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe; repeatable.")
]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Device to run on.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Also load pytorch_model.bin, a pickle. Only if you trust its source.")
]

ModelFolder = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a Keel or Hugging Face model, or a name in the local cache.")
]
TextColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Text column: its name, or its number in files without a header.")
]
PairColumn = Annotated[str | None, typer.Option(metavar="COL", help="Column of the second text, for text pairs.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="COL", help="Label column.")]
ChoiceColumns = Annotated[
    list[str] | None, typer.Option("--choice", metavar="COL", help="Column of a choice; repeat for each (choose).")
]
Long = Annotated[
    str | None, typer.Option(metavar="head|tail|head-tail|windows", help="How to handle texts longer than a row.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at rows that cannot be used, instead of skipping them.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")]
Track = Annotated[
    str | None, typer.Option(metavar="tensorboard", help="Also write the log for this program, into OUT/tensorboard.")
]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="CPU threads; default: all cores.")]

Report = Callable[[Any], None]


@dataclass(frozen=True)
class Command:
    """Declares a verb, as `COMMAND` of a file. The verb is named after the file, or after the entry point."""

    run: Callable[..., None] | typer.Typer  # a function whose parameters are the options; a Typer for a group of verbs
    help: str  # its line in `keel --help`
    examples: Sequence[str] = ()  # commands that can be copied
    order: int = 1000  # place in `keel --help`; plug-ins keep the default and come last

    def build(self, name: str) -> Any:
        """The command for the parser."""
        holder = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(self.run, typer.Typer):
            holder.add_typer(self.run, name=name, cls=Group, help=self.help, epilog=example(*self.examples))
        else:
            holder.command(name, short_help=self.help, epilog=example(*self.examples))(self.run)
        return typer.main.get_group(holder).commands[name]


def verb(context: Any) -> str:
    """A verb's name in messages, such as `corpus build`; `keel` for the root."""
    return str(context.command_path).removeprefix("keel ")


class Group(typer.core.TyperGroup):
    """A group of verbs, listed in the order of use. A misspelt verb is a one-line error with a suggestion."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            raise UserError(f"{verb(ctx)} has no verb '{clean(args[0])}'.{suggest(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def example(*lines: str) -> str:
    """The end of a verb's help: commands that can be copied. \\b keeps the line breaks."""
    if not lines:
        return ""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def use_threads(threads: int | None) -> None:
    """Imports torch and sets the number of CPU threads of this process; None: torch's default."""
    if threads is not None:
        from keel.machine import check_threads

        check_threads(threads)
    gc.disable()  # an import leaves no garbage; looking for it takes an eighth of torch's import
    try:
        import torch
    finally:
        gc.freeze()
        gc.enable()
    if threads is not None:
        torch.set_num_threads(threads)


def number(value: object) -> str:
    """A value formatted for people: 1,234,567 or 0.0123 or yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return clean(value)
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def lines_or_arguments(arguments: Iterable[str], blank: bool = False) -> Iterator[str]:
    """The texts of a command line; - means the lines of stdin, with the blank ones if `blank`."""
    return itertools.chain.from_iterable(text_groups(arguments, blank))


def text_groups(arguments: Iterable[str], blank: bool = False) -> Iterator[list[str]]:
    """The same in groups. The first line of stdin is a group by itself, so that it is answered at once; groups grow up
    to GROUP_LINES while lines are waiting, and no group waits for a line that is not there yet."""
    for argument in arguments:
        if argument != "-":
            yield [argument]
            continue
        limit = 1
        for lines in _waiting_lines():
            texts = [line for line in lines if blank or line.strip()]
            while texts:
                yield texts[:limit]
                texts, limit = texts[limit:], min(2 * limit, GROUP_LINES)


def _waiting_lines() -> Iterator[list[str]]:
    """The lines of stdin as they arrive: as many as one read returns, at least one."""
    from keel.text.tables import not_unicode

    if sys.stdin is None:
        raise UserError("stdin is closed, but - reads from it; give the texts as arguments or with a pipe")
    buffer = sys.stdin.buffer if isinstance(sys.stdin, io.TextIOWrapper) else None  # tests have other kinds
    read = buffer.read1 if isinstance(buffer, io.BufferedReader | io.BytesIO) else _whole_stdin().read1
    held, number, ended = bytearray(), 0, False
    while not ended:
        block = read(BLOCK_BYTES)
        ended = not block
        held += block
        if len(held) > LINE_BYTES:
            raise UserError(f"stdin, line {number + 1}: more than {LINE_BYTES >> 20} MB in one line; split it")
        if ended:
            whole = bytes(held)
        elif b"\n" in block:
            stop = held.rindex(b"\n") + 1
            whole = bytes(held[:stop])
            del held[:stop]
        else:
            continue
        lines = whole.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n") if whole else []
        for place, line in enumerate(lines):
            number += 1
            if reason := not_unicode(line):
                yield [one.removesuffix("\r") for one in lines[:place]]
                raise UserError(f"stdin, line {number}: {reason}")
        yield [line.removesuffix("\r") for line in lines]


def _whole_stdin() -> io.BytesIO:
    return io.BytesIO(sys.stdin.read().encode("utf-8", "surrogateescape"))


def print_json(value: Any) -> None:
    """One line of JSON; characters that stdout cannot encode, and bytes of file names that are not UTF-8, as \\u...."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain(value), allow_nan=False)
    sys.stdout.write(text + "\n")


def console() -> Console:
    """stdout through rich: no markup, no highlighting, a fixed width in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()
) -> None:
    """A table; the columns whose numbers are in `right` are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if title:
        screen.print(Text(clean(title), style="bold"), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    figures = set(right)
    for place, name in enumerate(columns):
        table.add_column(clean(name), justify="right" if place in figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(number(cell)) for cell in row))
    screen.print(table)
    screen.print()


def print_facts(title: str, facts: Mapping[str, Any]) -> None:
    """One name and value per line; nested values are named `outer.inner`, lists of records are shown by --json only."""
    print_table(title, ("what", "value"), list(_flat(facts)))


def print_result(title: str, result: Mapping[str, Any], as_json: bool) -> None:
    """The result of a run; filled masks and tasks as separate tables."""
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


@contextlib.contextmanager
def progress(title: str, quiet: bool) -> Iterator[Report | None]:
    """Yields a callback for progress: it takes a line of text, or a dataclass that has `done` and `total`."""
    if quiet:
        yield None
    elif Stderr().isatty():
        with _bar(title) as report:
            yield report
    else:
        yield _Lines(title)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(file=cast(IO[str], Stderr()), markup=False, highlight=False, emoji=False)
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
                bar.update(
                    task, completed=update.done, total=update.total or None, detail=_detail(update, without="left")
                )

        yield report


class _Lines:
    """Progress for log files: one line every LINE_SECONDS."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.clock, self.next = title, clock, clock() + LINE_SECONDS

    def __call__(self, update: Any) -> None:
        if isinstance(update, str):
            say(f"{self.title}: {update}")
        elif self.clock() >= self.next:
            self.next = self.clock() + LINE_SECONDS
            part = f"{100 * update.done / update.total:.0f} %" if update.total else number(update.done)
            say(f"{self.title}: {part} {_detail(update)}".rstrip())


def _detail(update: Any, without: str = "") -> str:
    """The other fields of a progress value: `documents 1,234  tokens 5,678`. A bar tells the time left by itself."""
    others = {name: value for name, value in asdict(update).items() if name not in ("done", "total", without)}
    return "  ".join(f"{name} {number(value)}" for name, value in others.items())
