"""`keel evaluate`: how good is a fine-tuned model on labelled data."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example(
    "keel evaluate my-classifier --data test.tsv",
    "keel evaluate my-classifier --data test.tsv --out test-report",
    "keel evaluate my-classifier --data test.tsv --long all",
)


def evaluate(
    model: common.ModelFolder,
    data: Annotated[str, typer.Option(metavar="FILE", help="Labelled data.")],
    text: common.TextColumn = None,
    pair: common.PairColumn = None,
    label: common.LabelColumn = None,
    choices: common.ChoiceColumns = None,
    long: Annotated[
        str | None,
        typer.Option(
            metavar="head|tail|head-tail|windows|all", help="What to do with long texts; all: compare the four."
        ),
    ] = None,
    strict: common.Strict = False,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="A folder for the answers and a report page.")
    ] = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Prints a task's figures on labelled data, and the share of text that did not fit."""
    from keel.stages.evaluate import evaluate as run

    columns = {"text": text, "pair": pair, "label": label, "choices": choices or None}
    result = run(
        model,
        data,
        columns=columns,
        long=long,
        strict=strict,
        out=out,
        device=device,
        allow_pickle=allow_pickle,
        report=common.say,
    )
    strategies = result.get("strategies")
    if as_json or not strategies:
        common.print_result(f"{model} on {data}", result, as_json)
        return
    names = list(strategies[0])
    rows = [[figures[name] for name in names] for figures in strategies]
    common.print_table(f"{model} on {data}", names, rows, right=range(1, len(names)))
