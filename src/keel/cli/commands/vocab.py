"""`keel vocab`: adapt a trained model's vocabulary to your texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import clean
from keel.errors import UserError

SHOWN = 15

group = typer.Typer()


@group.command(epilog=common.example("keel vocab propose my-model texts/*.txt --count 500 --out words.txt"))
def propose(
    tokenizer: Annotated[str, typer.Argument(metavar="DIR", help="Tokenizer or model folder.")],
    texts: common.Texts,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of words.")] = 500,
    min_frequency: Annotated[int, typer.Option(min=1, metavar="N", help="Minimum frequency of a word.")] = 5,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write the words here, one per line.")] = None,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Proposes words of your texts as new vocabulary entries, ranked by the tokens they save."""
    from keel.files.folders import check_absent, creating
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
        with creating(Path(out)) as file:
            file.write_text("".join(f"{row['word']}\n" for row in result["words"]), encoding="utf-8")
    if as_json:
        common.print_json(result)
    else:
        _print_proposal(result, out)


def _print_proposal(result: dict[str, Any], out: str | None) -> None:
    rows = [(r["word"], " ".join(r["pieces"]), r["count"], r["tokens_saved"]) for r in result["words"][:SHOWN]]
    common.print_table("proposed words", ("word", "pieces", "count", "tokens saved"), rows, right=(2, 3))
    if len(result["words"]) > SHOWN:
        where = f"see {out}" if out else "--out or --json lists all"
        typer.echo(clean(f"and {len(result['words']) - SHOWN:,} more: {where}"))
    held_out = result["held_out"]
    typer.echo(
        f"held-out lines become {common.percent(held_out['shortened_by'])} shorter "
        f"({held_out['tokens_before']:,} to {held_out['tokens_after']:,} tokens)"
    )


@group.command(epilog=common.example("keel vocab extend my-model words.txt --out my-wider-model"))
def extend(
    model: common.ModelFolder,
    words: Annotated[str, typer.Argument(metavar="FILE", help="Words, one per line, as `vocab propose` writes them.")],
    out: common.Out,
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Adds words to a model's vocabulary; their embeddings start as the mean of their pieces'."""
    path = Path(words)
    if not path.is_file():
        raise UserError(f"{path}: no such file; `keel vocab propose` makes one")
    try:
        listed = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the words as UTF-8") from None
    from keel.stages.surgery import extend_vocabulary

    result = extend_vocabulary(model, [word for word in listed if word], out, allow_pickle)
    common.print_result(f"model {out}", result, as_json)


@group.command(epilog=common.example("keel vocab shrink my-model --corpus my-corpus --out my-narrower-model"))
def shrink(
    model: common.ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Files, folders or globs whose tokens are kept.")
    ] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="Output folder.")] = "",
    corpus: Annotated[str | None, typer.Option(metavar="DIR", help="Corpus folder, instead of texts.")] = None,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Removes vocabulary entries that a corpus, or some texts, never use; single characters are kept."""
    if not out:
        raise UserError("--out DIR is needed: the folder for the new model")
    from keel.stages.surgery import shrink_vocabulary

    result = shrink_vocabulary(
        model, out, corpus=corpus, texts=texts or (), documents=documents, column=column, allow_pickle=allow_pickle
    )
    common.print_result(f"model {out}", result, as_json)


COMMAND = common.Command(
    group,
    help="Adapt a model's vocabulary to your texts.",
    order=170,
    examples=["keel vocab propose my-model texts/ --out words.txt"],
)
