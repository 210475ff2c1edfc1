"""`keel probe`: probe each layer of an encoder for labels or word senses."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common
from keel.console import clean, say


def probe(
    model: common.ModelFolder,
    train: Annotated[str, typer.Option(metavar="FILE", help="Labelled words: CoNLL columns, or spans in .jsonl.")],
    dev: Annotated[str, typer.Option(metavar="FILE", help="Data to score on, in the same format.")],
    senses: Annotated[
        bool, typer.Option("--senses", help="The files are .jsonl with text, start, end and sense of a word.")
    ] = False,
    text: common.TextColumn = None,
    label: common.LabelColumn = None,
    examples: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of training texts.")] = 5000,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="Output folder for a report.")] = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Probes every layer: a linear classifier for labels, nearest class means for word senses."""
    common.use_threads(threads)
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
        report=None if quiet else say,
    )
    if as_json:
        common.print_json(result)
        return
    figure = result["figure"]
    rows = [[f"layer {number}", f"{layer[figure]:.4f}"] for number, layer in enumerate(result["layers"])]
    rows.append(["without context", f"{result['baseline'][figure]:.4f}"])
    common.print_table(f"probes of {model}", ("", figure), rows, right=[1])
    if out:
        typer.echo(clean(f"report: {out}/report.html"))


COMMAND = common.Command(
    probe,
    help="Probe each layer of a model for labels or word senses.",
    order=150,
    examples=[
        "keel probe my-model --train train.conll --dev dev.conll --label 2",
        "keel probe my-model --train senses-train.jsonl --dev senses-dev.jsonl --senses --out probed",
    ],
)
