"""`keel corpus`: tokenise texts once, and look at what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from keel.cli import common

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer(cls=common.Group, help="Build and inspect corpora.", rich_markup_mode=None)

BAR_WIDTH = 40
DUPLICATES_SHOWN = 5
STYLES = {"mask": "bold yellow", "random": "bold magenta", "keep": "bold cyan"}


@app.command(
    epilog=common.example(
        "keel corpus build texts/ --tokenizer my-tokenizer --out my-corpus",
        "keel corpus build notes.txt --documents paragraph --tokenizer my-tokenizer --out my-corpus",
    )
)
def build(
    texts: common.Texts,
    tokenizer: Annotated[str, typer.Option(metavar="DIR", help="The tokenizer folder.")],
    out: common.Out,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    language: Annotated[
        str, typer.Option(metavar="auto|en|zh", help="zh finds Chinese words, for whole-word masking.")
    ] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; all cores if left out.")] = None,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="Documents kept apart for evaluation.")
    ] = 0.01,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Tokenises texts into a corpus folder. Run again after a crash, it goes on where it was."""
    from keel.stages.corpus import build as run

    with common.progress("corpus", quiet) as report:
        account = run(
            texts,
            tokenizer,
            out,
            documents=documents,
            column=column,
            language=language,
            workers=workers,
            held_out=held_out,
            report=report,
        )
    if as_json:
        common.print_json(account)
    else:
        common.print_facts(f"corpus {out}", account)


@app.command(epilog=common.example("keel corpus inspect my-corpus --examples 2 --recipe bert-mini"))
def inspect(
    corpus: Annotated[str, typer.Argument(metavar="DIR", help="The corpus folder.")],
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Rows to show as the model will see them.")] = 3,
    recipe: Annotated[
        str, typer.Option(metavar="NAME", help="The recipe that packs and masks the rows.")
    ] = "bert-mini",
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed shows other rows.")] = 0,
    as_json: common.Json = False,
) -> None:
    """Shows the account, the lengths, duplicate documents, and some rows as the model will see them."""
    from keel.stages.corpus import inspect as run

    result = run(corpus, examples=examples, recipe=recipe, seed=seed)
    if as_json:
        common.print_json(result)
    else:
        _print_inspection(corpus, result)


def _print_inspection(path: str, result: dict[str, Any]) -> None:
    apart = ("lengths", "duplicates", "examples", "hiding")
    common.print_facts(f"corpus {path}", {k: v for k, v in result.items() if k not in apart})
    _print_lengths(result.get("lengths") or [])
    duplicates = result.get("duplicates") or {}
    groups = duplicates.get("groups") or []
    typer.echo(f"documents whose text occurred before: {duplicates.get('documents', 0):,}")
    for group in groups[:DUPLICATES_SHOWN]:
        typer.echo(f"  {group['copies']} copies: documents {', '.join(map(str, group['documents']))}")
    hiding = result.get("hiding") or {}
    if hiding.get("chosen"):
        typer.echo(
            f"{hiding['recipe']} hides {common.share(hiding['chosen_share'])} of the tokens ({hiding['rows']:,} rows), "
            f"{common.share(hiding['in_whole_words'])} of those in words that are hidden as a whole"
        )
    for place, row in enumerate(result.get("examples") or [], 1):
        _print_example(place, row)


def _print_lengths(lengths: list[dict[str, Any]]) -> None:
    filled = [place for place, bin in enumerate(lengths) if bin["documents"]]
    if filled:
        most = max(bin["documents"] for bin in lengths)
        rows = [
            (bin["from"], bin["to"], bin["documents"], "█" * -(-BAR_WIDTH * bin["documents"] // most))
            for bin in lengths[filled[0] : filled[-1] + 1]
        ]
        common.print_table("document lengths in tokens", ("from", "to", "documents", ""), rows, right=(0, 1, 2))


def _print_example(place: int, row: dict[str, Any]) -> None:
    screen = common.console()
    said = {
        "follows": "; B follows A",
        "random": "; B is from another document",
        "as written": "; A stands before B in the text",
        "swapped": "; A and B are swapped",
    }
    order = said.get(row.get("next_sentence") or row.get("sentence_order") or "", "")
    screen.print(f"\nexample {place}: {len(row['tokens'])} tokens{order}. Hidden tokens are written {{shown→answer}}.")
    segments = row.get("segments") or [0] * len(row["tokens"])
    for segment in sorted(set(segments)):
        screen.print(_segment_line(row, segments, segment), soft_wrap=True)


def _segment_line(row: dict[str, Any], segments: list[int], segment: int) -> Text:
    """One segment as text; pieces of a word are joined, hidden tokens stand out."""
    from rich.text import Text

    line = Text(f"  {'AB'[segment] if segment < 2 else segment}:", style="bold")
    begun = False
    for token, mark, target, where in zip(row["tokens"], row["marks"], row["targets"], segments, strict=True):
        if where != segment:
            continue
        if mark:
            line.append(" ").append(f"{{{common.clean(token)}→{common.clean(target)}}}", STYLES.get(mark, "bold"))
        elif begun and token.startswith("##"):
            line.append(common.clean(token[2:]), "not bold")
        elif row.get("spaced"):  # its tokens hold the spaces of the text
            line.append(common.clean(token), "not bold")
        else:
            line.append(" " + common.clean(token), "not bold")
        begun = True
    return line
