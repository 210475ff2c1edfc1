"""`keel predict`: the predictions of a fine-tuned model, as JSON lines."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from keel.cli import common
from keel.console import say
from keel.errors import UserError

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts; JSON lists if an input has several texts; - reads lines from stdin."),
]
File = Annotated[str | None, typer.Option(metavar="FILE", help="Read the texts from .txt .jsonl .csv .tsv .json.")]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="TABLE",
        help="With --file: write its columns and the answers to a new .csv .jsonl (.gz) .parquet.",
    ),
]
Pair = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Second text of a pair; the context, for question answering.")
]
TextColumn = Annotated[str | None, typer.Option("--text", metavar="COL", help="Text column in --file.")]
PairColumn = Annotated[str | None, typer.Option("--pair-column", metavar="COL", help="Second text column in --file.")]
WithInput = Annotated[bool, typer.Option("--with-input", help="Print each answer with its text or its row.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an --out that was interrupted, or begin it.")]
Strict = Annotated[bool, typer.Option("--strict", help="With --out: stop if a row cannot be used, before any answer.")]


def predict(
    model: common.ModelFolder,
    texts: Texts = None,
    file: File = None,
    out: Out = None,
    pair: Pair = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    with_input: WithInput = False,
    resume: Resume = False,
    strict: Strict = False,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    quiet: common.Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --out: print one JSON object at the end.")] = False,
) -> None:
    """Prints one JSON object per text, in the same order; positions are character offsets. With --out, the rows of a
    file are written with their answers, whatever their number; rows that cannot be used have the reason under error."""
    if bool(texts) == bool(file):
        raise UserError("predict needs texts, or --file; not both")
    if (out and not file) or ((resume or strict) and not out):
        raise UserError("--out belongs to --file, and --resume and --strict to --out")
    if out and with_input:
        raise UserError("--out has the columns of the file anyway; omit --with-input")
    common.use_threads(threads)
    options: dict[str, Any] = {"allow_pickle": allow_pickle, "device": device}
    columns = {"text": text_column, "pair": pair_column}
    if file and out:
        options |= {"columns": columns, "resume": resume, "strict": strict, "threads": threads}
        _write(model, file, out, options, quiet, as_json)
    elif file:
        from keel.stages.predict import predict_groups

        _print(predict_groups(model, file, columns=columns, with_input=with_input, report=say, **options))
    else:
        _print_answers(model, texts or [], pair, with_input, options)


def _write(model: str, file: str, out: str, options: dict[str, Any], quiet: bool, as_json: bool) -> None:
    from keel.stages.predict import predict_file

    with common.progress("predict", quiet) as report:
        result = predict_file(model, file, out, report=report, **options)
    common.print_result(f"answers {out}", result, as_json)


def _print_answers(model: str, texts: list[str], pair: str | None, with_input: bool, options: dict[str, Any]) -> None:
    from keel.inference.tasks import answer_groups, open_task

    loaded = open_task(model, **options)
    task = loaded.need_task()
    numbers, given = itertools.count(1), list[Any]()

    def examples(group: list[str]) -> list[Any]:
        inputs = [_input(text, pair, task) for text in group]
        given.extend(map(_shown, inputs if with_input else ()))
        return [loaded.example(one, next(numbers)) for one in inputs]

    for answers in answer_groups(loaded, map(examples, common.text_groups(texts, blank=True)), say):
        shown = [given.pop(0) for _ in answers] if with_input else [dict[str, Any]()] * len(answers)
        _print([[{**one, **answer} for one, answer in zip(shown, answers, strict=True)]])


def _shown(given: Any) -> dict[str, Any]:
    """An input in the line of its answer."""
    if isinstance(given, str):
        return {"text": given}
    return {"text": given[0], "pair": given[1]} if isinstance(given, tuple) else {"input": given}


def _input(text: str, pair: str | None, task: Any) -> Any:
    """The input in the form that `Model.predict` takes."""
    if pair is not None:
        return text, pair
    if not task.usage.several_texts:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        shown = f"[{task.usage.python[1:-1]}]"
        raise UserError(f"more than one text is needed: give --pair, or a JSON list such as {shown}")
    return value


def _print(groups: Iterable[list[dict[str, Any]]]) -> None:
    for answers in groups:
        for answer in answers:
            common.print_json(answer)
        sys.stdout.flush()


COMMAND = common.Command(
    predict,
    help="Predict with a fine-tuned model.",
    order=120,
    examples=[
        'keel predict my-classifier "What a lovely film."',
        'keel predict my-pairs --pair "A man plays." "Somebody makes music."',
        'keel predict my-reader --pair "Paris is the capital of France." "What is the capital of France?"',
        "keel predict my-tagger --file texts.jsonl",
        "keel predict my-classifier --file reviews.csv --out answers.csv",
        "keel predict my-classifier --file reviews.csv --out answers.csv --resume",
        "keel predict my-tagger - < lines.txt",
        """echo '["What is the capital?", "Paris is the capital of France."]' | keel predict my-reader -""",
    ],
)
