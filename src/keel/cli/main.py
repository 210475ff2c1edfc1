"""The command `keel`.

In: the command line. Out: an exit code: 0 done (also: stopped as asked, work saved), 1 a fault of Keel's, 2 something
the user can cure, 130 Ctrl-C, 141 whoever read the output went away. Every error is one line on stderr.

Notable choices
- Typer's boxes for usage errors are not used: one line with a suggestion says more, and can be read in a log.
- Verb files import nothing heavy; torch, numpy, pydantic and YAML are imported inside the verb that needs them.
- `--debug` counts wherever it stands, because it is added to the end of a command that just failed.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from keel.cli import (
    common,
    compare,
    corpus,
    demo,
    doctor,
    embed,
    evaluate,
    fill,
    finetune,
    generate,
    predict,
    pretrain,
    probe,
    recipe,
    tokenizer,
    translate,
    vocab,
    words,
)
from keel.errors import Stopped, UserError, suggest

DONE, FAULT, CURABLE, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141

CURES = {
    errno.ENOSPC: "the disk is full; free some room and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some room and run the same command again",
    errno.EACCES: "permission denied; choose another path or change its permissions",
    errno.EROFS: "the disk is read-only; choose another path",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a file stands where a folder is needed; choose another path",
    errno.EISDIR: "a folder stands where a file is needed; choose another path",
    errno.EMFILE: "too many open files; raise the limit with ulimit -n",
}

# The first base of BadParameter is the parser's usage error, under whatever name this typer keeps it.
UsageError: Any = typer.BadParameter.__bases__[0]


class Root(common.Group):
    """The verbs in the order of the line, from text to answers."""

    ORDER = (
        *("doctor", "demo", "tokenizer", "corpus", "recipe", "pretrain", "fill", "generate", "words"),
        *("finetune", "evaluate", "predict", "translate", "embed", "probe", "compare", "vocab", "extend-positions"),
    )

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=self.ORDER.index)


app = typer.Typer(
    name="keel",
    cls=Root,
    help="From your own text to language encoders that work.",
    epilog=common.example(
        "keel demo",
        "keel tokenizer train texts/ --out my-tokenizer",
        "keel corpus build texts/ --tokenizer my-tokenizer --out my-corpus",
        "keel pretrain bert-mini --corpus my-corpus --out my-model --budget 45m",
        'keel fill my-model "Paris is the [MASK] of France."',
        "keel finetune my-model classify --train train.tsv --dev dev.tsv --out my-classifier",
        'keel predict my-classifier "What a lovely film."',
    ),
    add_completion=False,
    rich_markup_mode=None,
)
app.command("doctor", short_help="What this machine can do, and its traps.", epilog=doctor.EXAMPLE)(doctor.doctor)
app.command("demo", short_help="The whole line in a few minutes.", epilog=demo.EXAMPLE)(demo.demo)
app.add_typer(tokenizer.app, name="tokenizer", epilog=common.example("keel tokenizer train texts/ --out my-tokenizer"))
app.add_typer(corpus.app, name="corpus", epilog=common.example("keel corpus inspect my-corpus"))
app.add_typer(recipe.app, name="recipe", epilog=common.example("keel recipe list"))
app.command("pretrain", short_help="Train a model on a corpus.", epilog=pretrain.EXAMPLE)(pretrain.pretrain)
app.command("fill", short_help="Ask a model what stands behind [MASK].", epilog=fill.EXAMPLE)(fill.fill)
app.command("generate", short_help="Let a left-to-right model go on with a text.", epilog=generate.EXAMPLE)(
    generate.generate
)
app.add_typer(words.app, name="words", epilog=common.example("keel words similar my-vectors harbour"))
app.command("finetune", short_help="Teach a model a task from labelled data.", epilog=finetune.EXAMPLE)(
    finetune.finetune
)
app.command("evaluate", short_help="How good a fine-tuned model is.", epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command("predict", short_help="What a fine-tuned model answers.", epilog=predict.EXAMPLE)(predict.predict)
app.command("translate", short_help="Texts in another language.", epilog=translate.EXAMPLE)(translate.translate)
app.command("embed", short_help="One vector per text.", epilog=embed.EXAMPLE)(embed.embed)
app.command("probe", short_help="What each layer of a model knows.", epilog=probe.EXAMPLE)(probe.probe)
app.add_typer(vocab.app, name="vocab", epilog=common.example("keel vocab propose my-model texts/ --out words.txt"))
app.command("extend-positions", short_help="Let a model read longer texts.", epilog=vocab.EXTEND_POSITIONS)(
    vocab.extend_positions
)
app.add_typer(
    compare.app,
    name="compare",
    epilog=common.example("keel compare pretraining bert-mini electra-mini --corpus c --budget 15m --out o"),
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
) -> None:
    if version:
        from keel import __version__

        typer.echo(f"keel {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Arguments and file names may hold bytes that no encoding can print.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # bytes that are not text are named by whoever reads them
    _share_cores()
    sys.exit(run(sys.argv[1:]))


def _share_cores() -> None:
    """Lets torch's threads sleep soon instead of spinning while they wait for each other; read when torch is loaded.

    On two cores with one busy neighbour, training then runs four times as fast; alone it loses about two percent.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def run(arguments: list[str]) -> int:
    """One command line; the exit code. Only --debug lets an exception through, as a traceback before the line."""
    arguments, debug = _take_debug(arguments)
    try:
        command = typer.main.get_command(app)
        with command.make_context("keel", arguments) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        # Python flushes stdout once more at the end, which would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except Stopped as stopped:
        for line in f"keel: {stopped}".splitlines():  # the command that goes on stands on a line of its own
            common.say(line)
        return DONE
    except (KeyboardInterrupt, Exception) as error:
        if debug:
            traceback.print_exc()
        code, line = _explain(error, arguments)
        common.say(f"keel: {' '.join(line.split())}")
        return code
    return DONE


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [a for a in arguments[:end] if a != "--debug"]
    return options + arguments[end:], len(options) < end


def _explain(error: BaseException, arguments: list[str]) -> tuple[int, str]:
    """The exit code and the line for everything that can go wrong."""
    if isinstance(error, UserError):
        return CURABLE, str(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, "stopped by Ctrl-C"
    if isinstance(error, UsageError):
        return CURABLE, _usage(error)
    if isinstance(error, MemoryError):
        return CURABLE, "not enough memory; keel doctor shows what there is, smaller batches need less"
    if isinstance(error, OSError) and error.errno:
        return CURABLE, _file_trouble(error, arguments)
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
    verbs = getattr(context.command, "commands", None)
    if verbs and "Missing command" in error.message:
        return f"{verb} needs one of: {', '.join(sorted(verbs))}.{see}"
    parameter = getattr(error, "param", None)
    if parameter is not None and type(error).__name__ == "MissingParameter":
        name = " ".join(
            filter(None, (parameter.opts[0] if parameter.opts[0].startswith("-") else "", parameter.metavar))
        )
        return f"{verb} needs {name or parameter.name}.{see}"
    return f"{verb}: {error.format_message().rstrip('.')}.{see}"


def _file_trouble(error: OSError, arguments: list[str]) -> str:
    cure = CURES.get(error.errno or 0, error.strerror or str(error))
    if error.filename is not None:
        return f"{os.fsdecode(error.filename) if not isinstance(error.filename, int) else error.filename}: {cure}"
    # A write that fails does not know the name of its file; what is being written stands under --out.
    for before, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if before in ("--out", "-o") and after:
            return f"{after}: {cure}"
        if before.startswith("--out="):
            return f"{before.removeprefix('--out=')}: {cure}"
    return cure
