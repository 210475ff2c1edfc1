"""`keel corpus`: tokenize texts once, and inspect the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from keel.cli import common
from keel.console import clean

if TYPE_CHECKING:
    from rich.text import Text

BAR_WIDTH = 40
DUPLICATES_SHOWN = 5
STYLES = {"mask": "bold yellow", "random": "bold magenta", "keep": "bold cyan"}
ORDERS = {
    "follows": "; B follows A",
    "random": "; B is from another document",
    "as written": "; A and B are in the order of the text",
    "swapped": "; A and B are swapped",
}

group = typer.Typer()


@group.command(
    epilog=common.example(
        "keel corpus build texts/ --tokenizer my-tokenizer --out my-corpus",
        "keel corpus build notes.txt --documents paragraph --tokenizer my-tokenizer --out my-corpus",
    )
)
def build(
    texts: common.Texts,
    tokenizer: Annotated[str, typer.Option(metavar="DIR", help="Tokenizer folder.")],
    out: common.Out,
    documents: common.Documents = "auto",
    column: common.Column = "text",
    language: Annotated[
        str, typer.Option(metavar="auto|en|zh", help="zh: segment Chinese words, for whole-word masking.")
    ] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; default: one per core.")] = None,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="FRACTION", help="Fraction of documents held out for evaluation.")
    ] = 0.01,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Tokenizes texts into a corpus folder. After a crash, the same command continues."""
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


@group.command(epilog=common.example("keel corpus inspect my-corpus --examples 2 --recipe bert-mini"))
def inspect(
    corpus: Annotated[str, typer.Argument(metavar="DIR", help="Corpus folder.")],
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="Training rows to show, masked.")] = 3,
    recipe: Annotated[str, typer.Option(metavar="NAME", help="Recipe that packs and masks the rows.")] = "bert-mini",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed for packing and masking.")] = 0,
    as_json: common.Json = False,
) -> None:
    """Shows counts, document lengths, duplicate documents, and some rows as the model will see them."""
    from keel.stages.corpus import inspect as run

    result = run(corpus, examples=examples, recipe=recipe, seed=seed)
    if as_json:
        common.print_json(result)
    else:
        _print_inspection(corpus, result)


def _print_inspection(path: str, result: dict[str, Any]) -> None:
    separate = ("lengths", "duplicates", "examples", "masking")
    common.print_facts(f"corpus {path}", {k: v for k, v in result.items() if k not in separate})
    _print_lengths(result.get("lengths") or [])
    duplicates = result.get("duplicates") or {}
    groups = duplicates.get("groups") or []
    typer.echo(f"duplicate documents: {duplicates.get('documents', 0):,}")
    for group in groups[:DUPLICATES_SHOWN]:
        typer.echo(f"  {group['copies']} copies: documents {', '.join(map(str, group['documents']))}")
    masking = result.get("masking") or {}
    if masking.get("chosen"):
        typer.echo(
            f"{masking['recipe']} selects {common.percent(masking['chosen_share'])} of the tokens "
            f"({masking['rows']:,} rows), {common.percent(masking['in_whole_words'])} of them as whole words"
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
    order = ORDERS.get(row.get("next_sentence") or row.get("sentence_order") or "", "")
    screen.print(f"\nexample {place}: {len(row['tokens'])} tokens{order}. Selected tokens: {{input→target}}.")
    segments = row.get("segments") or [0] * len(row["tokens"])
    for segment in sorted(set(segments)):
        screen.print(_segment_line(row, segments, segment), soft_wrap=True)


def _segment_line(row: dict[str, Any], segments: list[int], segment: int) -> Text:
    """One segment as text; word pieces are joined, selected tokens are highlighted."""
    from rich.text import Text

    line = Text(f"  {'AB'[segment] if segment < 2 else segment}:", style="bold")
    begun = False
    for token, mark, target, where in zip(row["tokens"], row["marks"], row["targets"], segments, strict=True):
        if where != segment:
            continue
        if mark:
            line.append(" ").append(f"{{{clean(token)}→{clean(target)}}}", STYLES.get(mark, "bold"))
        elif begun and token.startswith("##"):
            line.append(clean(token[2:]), "not bold")
        elif row.get("spaced"):  # its tokens contain the spaces of the text
            line.append(clean(token), "not bold")
        else:
            line.append(" " + clean(token), "not bold")
        begun = True
    return line


COMMAND = common.Command(group, help="Build and inspect corpora.", order=40, examples=["keel corpus inspect my-corpus"])
