"""`keel evaluate`: how good is a fine-tuned model on labelled data, or a pretrained one on held-out text."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common
from keel.errors import UserError

EXAMPLE = common.example(
    "keel evaluate my-classifier --data test.tsv",
    "keel evaluate my-classifier --data test.tsv --out test-report",
    "keel evaluate my-classifier --data test.tsv --long all",
    "keel evaluate my-bert --corpus my-corpus",
)


def evaluate(
    model: common.ModelFolder,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Labelled data, for a fine-tuned model.")] = None,
    corpus: Annotated[
        str | None, typer.Option(metavar="DIR", help="A corpus, for a pretrained model: losses on its held-out text.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="RECIPE", help="With --corpus: whose rows and masks; roberta-mini or gpt-mini."),
    ] = None,
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
    """Prints a task's figures on labelled data, and the share of text that did not fit.

    With --corpus: a pretrained model's losses on held-out text, by token and by character.
    """
    if corpus is not None and data is None:
        from keel.stages.held_out import evaluate_on_corpus

        found = evaluate_on_corpus(model, corpus, judge=judge, device=device, allow_pickle=allow_pickle)
        common.print_result(f"{model} on {corpus}", found, as_json)
        return
    if data is None or corpus is not None:
        raise UserError("say what to judge by: --data FILE for a fine-tuned model, --corpus DIR for a pretrained one")
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
