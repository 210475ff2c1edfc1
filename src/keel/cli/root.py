"""The root of the verbs, and `run`: one command line -> its exit code.

In: the command line without `keel`. Out: the exit codes that `main` lists. Every error is one line on stderr.

Notable choices
- No verb is listed here: a verb is a file in `commands/`, an entry point `keel.commands` of an installed package, or a
  Python file (`keel ./my_verb.py ...`), and is imported when it is called.
- Typer's boxes for usage errors are not used: one line with a suggestion is shorter, and can be read in a log.
- Verb files import nothing heavy; torch, numpy, pydantic and YAML are imported inside the verb that needs them.
- `--debug` is accepted anywhere, because people append it to a command that just failed.
- stdout is flushed before the exit code is known: a full disk is an error, and Python would report it with a traceback.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from keel import catalog
from keel.cli import common
from keel.cli.errors import DONE, NO_READER, explain
from keel.cli.signals import StoppedBySignal, received
from keel.console import clean, say
from keel.errors import Stopped, UserError

PLUGINS = "KEEL_PLUGINS"  # paths of plug-in files, separated as in PATH


class Root(common.Group):
    """Keel's verbs in the order of use, then those of plug-ins."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = [name.replace("_", "-") for name in catalog.names("commands")]
        return sorted(names, key=lambda name: (_listed(name).order, name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and catalog.known("commands", cmd_name):
            self.commands[cmd_name] = _listed(cmd_name).build(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and catalog.known("commands", args[0]):
            _find(args[0])  # if a plug-in cannot be imported, report that before any other error
        return super().resolve_command(ctx, args)


def _find(name: str) -> common.Command:
    found = catalog.find("commands", name)
    if not isinstance(found, common.Command):
        raise UserError(f"{name}: its COMMAND must be a keel.cli.common.Command, found {type(found).__name__}")
    return found


def _listed(name: str) -> common.Command:
    """A verb for `keel --help`. A plug-in that cannot be loaded is listed with the reason, and breaks nothing."""
    try:
        return _find(name)
    except UserError as error:
        return common.Command(lambda: None, help=f"Cannot be loaded: {clean(error)}")


app = typer.Typer(
    name="keel",
    cls=Root,
    help="From your own text to language encoders that work.",
    epilog=common.example(
        "keel demo",
        "keel tokenizer train texts/ --out my-tokenizer",
        "keel corpus build texts/ --tokenizer my-tokenizer --out my-corpus",
        "keel pretrain modern-mini --corpus my-corpus --out my-model --budget 15m",
        'keel fill my-model "Paris is the [MASK] of France."',
        "keel finetune my-model classify --train train.tsv --dev dev.tsv --out my-classifier",
        'keel predict my-classifier "What a lovely film."',
    ),
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; accepted anywhere on the line.")] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="FILE", help="Python file with your own backbones, tasks, ...; repeatable."),
    ] = None,
) -> None:
    if version:
        from keel import __version__

        typer.echo(f"keel {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code. With --debug, the one-line error follows the traceback."""
    arguments, debug = _take_debug(arguments)
    try:
        try:
            arguments = _add_plugins(arguments)
            command = typer.main.get_command(app)
            with command.make_context("keel", list(arguments)) as context:
                command.invoke(context)
        finally:
            _flush()
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        _drop_output()
        return NO_READER
    except Stopped as stopped:
        for line in f"keel: {stopped}".splitlines():  # the command to resume with is on its own line
            say(line)
        return DONE
    except (KeyboardInterrupt, Exception) as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno and error.filename is None and not _can_print():
            error = OSError(error.errno, error.strerror, "stdout")
        if (signal := received()) and not isinstance(error, KeyboardInterrupt):
            error = StoppedBySignal(signal)  # an import or a library turned it into an error of its own
        code, line = explain(error, arguments)
        say(f"keel: {' '.join(line.split())}")
        return code
    return DONE


def _flush() -> None:
    """Writes what is printed so far. A stdout that cannot be written is dropped, or Python would fail again at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise OSError(error.errno, error.strerror, "stdout") from None


def _can_print() -> bool:
    """Whether stdout can be written: an error of writing does not say which file it was."""
    try:
        os.write(sys.stdout.fileno(), b"")
    except io.UnsupportedOperation:  # not a file
        return True
    except OSError:
        _drop_output()
        return False
    return True


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _add_plugins(arguments: list[str]) -> list[str]:
    """Loads plug-in files (`--plugin FILE`, KEEL_PLUGINS) and returns the arguments without these options.

    The files are then listed in KEEL_PLUGINS, so that child processes load them too."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    files = [os.fspath(file) for file in os.environ.get(PLUGINS, "").split(os.pathsep) if file]
    options, rest = list[str](), iter(arguments[:end])
    for argument in rest:
        if argument == "--plugin":
            files.append(next(rest, ""))
        elif argument.startswith("--plugin="):
            files.append(argument.removeprefix("--plugin="))
        else:
            options.append(argument)
    for file in files:
        if not file:
            raise UserError("--plugin needs the path of a Python file")
        catalog.add_plugin(file)
    if files:
        os.environ[PLUGINS] = os.pathsep.join(dict.fromkeys(str(Path(file).resolve()) for file in files))
    return options + arguments[end:]


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [a for a in arguments[:end] if a != "--debug"]
    return options + arguments[end:], len(options) < end
