"""`keel evaluate`: score a fine-tuned model on labelled data, or a pretrained one on held-out text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import say
from keel.errors import UserError

Data = Annotated[str | None, typer.Option(metavar="FILE", help="Labelled data, for a fine-tuned model.")]
CorpusFolder = Annotated[
    str | None, typer.Option(metavar="DIR", help="Corpus, for a pretrained model: losses on its held-out documents.")
]
EvalRecipe = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE", help="With --corpus: the recipe that packs and masks the rows; default: by the model's head."
    ),
]
Long = Annotated[
    str | None,
    typer.Option(
        metavar="head|tail|head-tail|windows|all", help="How to handle long texts; all: compare the four strategies."
    ),
]
Report = Annotated[
    str | None, typer.Option("--out", "-o", metavar="DIR", help="Output folder for predictions and a report.")
]


def evaluate(
    model: common.ModelFolder,
    data: Data = None,
    corpus: CorpusFolder = None,
    eval_recipe: EvalRecipe = None,
    text: common.TextColumn = None,
    pair: common.PairColumn = None,
    label: common.LabelColumn = None,
    choices: common.ChoiceColumns = None,
    long: Long = None,
    strict: common.Strict = False,
    out: Report = None,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Scores a fine-tuned model on labelled data, and reports how much text was truncated.

    With --corpus: a pretrained model's losses on held-out text, per token and per character.
    """
    common.use_threads(threads)
    if corpus is not None and data is None:
        from keel.pretraining.held_out import evaluate_on_corpus

        found = evaluate_on_corpus(model, corpus, eval_recipe=eval_recipe, device=device, allow_pickle=allow_pickle)
        common.print_result(f"{model} on {corpus}", found, as_json)
        return
    if data is None or corpus is not None:
        raise UserError("evaluate needs --data FILE for a fine-tuned model, or --corpus DIR for a pretrained one")
    from keel.stages.evaluate import evaluate as run

    result = run(
        model,
        data,
        columns={"text": text, "pair": pair, "label": label, "choices": choices or None},
        long=long,
        strict=strict,
        out=out,
        device=device,
        allow_pickle=allow_pickle,
        report=say,
    )
    _print(f"{model} on {data}", result, as_json)


def _print(title: str, result: dict[str, Any], as_json: bool) -> None:
    strategies = result.get("strategies")
    if as_json or not strategies:
        common.print_result(title, result, as_json)
        return
    names = list(strategies[0])
    rows = [[figures[name] for name in names] for figures in strategies]
    common.print_table(title, names, rows, right=range(1, len(names)))


COMMAND = common.Command(
    evaluate,
    help="Score a model on labelled data or held-out text.",
    order=110,
    examples=[
        "keel evaluate my-classifier --data test.tsv",
        "keel evaluate my-classifier --data test.tsv --out test-report",
        "keel evaluate my-classifier --data test.tsv --long all",
        "keel evaluate my-bert --corpus my-corpus",
    ],
)
