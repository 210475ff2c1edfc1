"""`keel vocab`: fit a trained model's vocabulary to your texts; and `keel extend-positions`."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

app = typer.Typer(cls=common.Group, help="Fit a model's vocabulary to your texts.", rich_markup_mode=None)

EXTEND_POSITIONS = common.example("keel extend-positions my-model --to 2048 --out my-long-model")
SHOWN = 15


@app.command(epilog=common.example("keel vocab propose my-model texts/*.txt --count 500 --out words.txt"))
def propose(
    tokenizer: Annotated[str, typer.Argument(metavar="DIR", help="A tokenizer or model folder.")],
    texts: common.Texts,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Words at the most.")] = 500,
    min_frequency: Annotated[int, typer.Option(min=1, metavar="N", help="Words seen at least so often.")] = 5,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write the words here, one a line.")] = None,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Words of your texts that are worth an entry of their own, by the tokens they would save."""
    from pathlib import Path

    from keel.checkpoint import check_absent, write_file
    from keel.stages.surgery import propose as run

    if out:
        check_absent(Path(out))
    with common.progress("vocab", quiet) as report:
        result = run(
            tokenizer,
            texts,
            count=count,
            min_frequency=min_frequency,
            documents=documents,
            column=column,
            report=report,
        )
    if out:
        write_file(Path(out), "".join(f"{row['word']}\n" for row in result["words"]))
    if as_json:
        common.print_json(result)
        return
    rows = [(r["word"], " ".join(r["pieces"]), r["count"], r["tokens_saved"]) for r in result["words"][:SHOWN]]
    common.print_table("words worth an entry", ("word", "now", "count", "tokens saved"), rows, right=(2, 3))
    if len(result["words"]) > SHOWN:
        typer.echo(f"and {len(result['words']) - SHOWN:,} more: {'see ' + out if out else '--out or --json lists all'}")
    held = result["held_out"]
    typer.echo(
        f"lines that were not counted become {common.share(held['shortened_by'])} shorter "
        f"({held['tokens_before']:,} to {held['tokens_after']:,} tokens)"
    )


@app.command(epilog=common.example("keel vocab extend my-model words.txt --out my-wider-model"))
def extend(
    model: common.ModelFolder,
    words: Annotated[str, typer.Argument(metavar="FILE", help="Words, one a line, as `vocab propose` writes them.")],
    out: common.Out,
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Adds words to a model's vocabulary; they start as the mean of the pieces they were cut into."""
    from pathlib import Path

    from keel.errors import UserError
    from keel.stages.surgery import extend_vocabulary

    path = Path(words)
    if not path.is_file():
        raise UserError(f"{path}: no such file; `keel vocab propose` makes one")
    try:
        listed = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the words as UTF-8") from None
    result = extend_vocabulary(model, [word for word in listed if word], out, allow_pickle)
    common.print_result(f"model {out}", result, as_json)


@app.command(epilog=common.example("keel vocab shrink my-model --corpus my-corpus --out my-narrower-model"))
def shrink(
    model: common.ModelFolder,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts it will be used on.")] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="Where the new folder goes.")] = "",
    corpus: Annotated[str | None, typer.Option(metavar="DIR", help="Instead of texts: a corpus folder.")] = None,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Leaves out the entries that a corpus, or some texts, never use; single characters stay."""
    from keel.errors import UserError
    from keel.stages.surgery import shrink_vocabulary

    if not out:
        raise UserError("--out is needed: where the new folder goes")
    result = shrink_vocabulary(
        model, out, corpus=corpus, texts=texts or (), documents=documents, column=column, allow_pickle=allow_pickle
    )
    common.print_result(f"model {out}", result, as_json)


def extend_positions(
    model: common.ModelFolder,
    to: Annotated[int, typer.Option(min=8, metavar="N", help="Positions of the new model.")],
    out: common.Out,
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Lets a model read longer texts. Pretrain it on long rows afterwards (keel pretrain --init)."""
    from keel.stages.surgery import extend_positions as run

    common.print_result(f"model {out}", run(model, to, out, allow_pickle), as_json)
