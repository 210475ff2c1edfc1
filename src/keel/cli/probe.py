"""`keel probe`: what each layer of an encoder knows."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example(
    "keel probe my-model --train train.conll --dev dev.conll --label 2",
    "keel probe my-model --train senses-train.jsonl --dev senses-dev.jsonl --senses --out probed",
)


def probe(
    model: common.ModelFolder,
    train: Annotated[str, typer.Option(metavar="FILE", help="Words with labels: CoNLL columns, or spans in .jsonl.")],
    dev: Annotated[str, typer.Option(metavar="FILE", help="The same, to judge by.")],
    senses: Annotated[
        bool, typer.Option("--senses", help="The files are .jsonl with text, start, end and sense of a word.")
    ] = False,
    text: common.TextColumn = None,
    label: common.LabelColumn = None,
    examples: Annotated[int, typer.Option(min=1, metavar="N", help="Training texts at the most.")] = 5000,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="A folder for a page.")] = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Asks every layer by itself: a linear classifier for labels, nearest means for senses."""
    from keel.stages.probe import probe as run

    result = run(
        model,
        train=train,
        dev=dev,
        senses=senses,
        text=text,
        label=label,
        examples=examples,
        out=out,
        device=device,
        allow_pickle=allow_pickle,
        report=None if quiet else common.say,
    )
    if as_json:
        common.print_json(result)
        return
    figure = result["figure"]
    rows = [[f"layer {number}", f"{layer[figure]:.4f}"] for number, layer in enumerate(result["layers"])]
    rows.append(["without context", f"{result['baseline'][figure]:.4f}"])
    common.print_table(f"what the layers of {model} know", ("", figure), rows, right=[1])
    if out:
        typer.echo(f"the page: {out}/report.html")
