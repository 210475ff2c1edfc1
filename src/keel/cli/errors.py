"""Turns every exception of a command into an exit code and one line.

In: an exception, and the command line. Out: the exit code and the line for stderr.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import typer
import typer.core

from keel.cli import common
from keel.cli.signals import StoppedBySignal
from keel.errors import UserError, suggest

DONE, FAULT, CURABLE, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141

CURES = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EACCES: "permission denied; choose another path or change its permissions",
    errno.EROFS: "the disk is read-only; choose another path",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "this is a file, but a folder is needed; choose another path",
    errno.EISDIR: "this is a folder, but a file is needed; choose another path",
    errno.EMFILE: "too many open files; raise the limit with ulimit -n",
}

# The first base of BadParameter is the parser's usage error, under whatever name this typer keeps it.
UsageError: Any = typer.BadParameter.__bases__[0]


def explain(error: BaseException, arguments: list[str]) -> tuple[int, str]:
    """The exit code and the line."""
    if isinstance(error, UserError):
        return CURABLE, str(error)
    if isinstance(error, StoppedBySignal):
        return error.code, str(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, "stopped by Ctrl-C"
    if isinstance(error, UsageError):
        return CURABLE, _usage(error)
    if isinstance(error, MemoryError):
        return CURABLE, "not enough memory; `keel doctor` shows how much there is, smaller batches need less"
    if isinstance(error, OSError) and error.errno:
        return CURABLE, _file_error(error, arguments)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return FAULT, f"internal error: {what} (run again with --debug for the traceback)"


def _usage(error: Any) -> str:
    """A usage error in one line: which verb, what is wrong, what was probably meant."""
    context = error.ctx
    if context is None:
        return str(error.format_message())
    verb, see = common.verb(context), f" See {context.command_path} --help."
    wrong = getattr(error, "option_name", None)
    if wrong and type(error).__name__ == "NoSuchOption":
        known = [
            o for p in context.command.get_params(context) for o in (*p.opts, *p.secondary_opts) if o.startswith("--")
        ]
        return f"{verb} has no option '{wrong}'.{suggest(wrong, known)}"
    if isinstance(context.command, typer.core.TyperGroup) and "Missing command" in error.message:
        return f"{verb} needs one of: {', '.join(sorted(context.command.list_commands(context)))}.{see}"
    parameter = getattr(error, "param", None)
    if parameter is not None and type(error).__name__ == "MissingParameter":
        name = " ".join(
            filter(None, (parameter.opts[0] if parameter.opts[0].startswith("-") else "", parameter.metavar))
        )
        return f"{verb} needs {name or parameter.name}.{see}"
    return f"{verb}: {error.format_message().rstrip('.')}{_from_environment(context, parameter)}.{see}"


def _from_environment(context: Any, parameter: Any) -> str:
    """The variable that a wrong value came from: nobody looks for it there."""
    source = None if parameter is None or parameter.name is None else context.get_parameter_source(parameter.name)
    if source is None or source.name != "ENVIRONMENT" or parameter.show_envvar:
        return ""
    return f" (from the environment, {parameter.envvar})"


def _file_error(error: OSError, arguments: list[str]) -> str:
    cure = CURES.get(error.errno or 0, error.strerror or str(error))
    if error.filename is not None:
        return f"{os.fsdecode(error.filename) if not isinstance(error.filename, int) else error.filename}: {cure}"
    # A failed write has no file name; output is written to --out.
    for before, after in zip(arguments, [*arguments[1:], ""], strict=False):
        if before in ("--out", "-o") and after:
            return f"{after}: {cure}"
        if before.startswith("--out="):
            return f"{before.removeprefix('--out=')}: {cure}"
    return cure
