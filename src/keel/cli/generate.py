"""`keel generate`: let a left-to-right model go on with a text."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

EXAMPLE = common.example(
    'keel generate my-gpt "The harbour was"',
    'keel generate my-gpt "The harbour was" --temperature 0.8 --top-p 0.9 --samples 3 --tokens 80',
)


def generate(
    model: common.ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="How the text begins.")] = "",
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="New tokens at the most.")] = 60,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="How many texts.")] = 1,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="0: always the likeliest token; 1: as the model says; more: freer.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Draw from the N likeliest only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Draw from the fewest tokens whose chances reach P.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed writes the same texts.")] = 1,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Writes texts that go on from the given one."""
    from keel.stages.generate import generate as run
    from keel.stages.model import Model

    found = run(
        Model.load(model, allow_pickle=allow_pickle, device=device),
        text,
        tokens=tokens,
        samples=samples,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    if as_json:
        common.print_json(found)
        return
    for number, one in enumerate(found):
        typer.echo(("\n" if number else "") + common.clean(one["text"]) + ("" if one["ended"] else " ..."))
