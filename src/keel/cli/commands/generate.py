"""`keel generate`: continue a text with a causal language model."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common
from keel.console import clean


def generate(
    model: common.ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The prompt.")] = "",
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of new tokens.")] = 60,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Number of texts.")] = 1,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="0: greedy; 1: the model's distribution; more: more random.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sample from the N most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Sample from the fewest tokens whose probabilities sum to P.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same texts.")] = 1,
    threads: common.Threads = None,
    device: common.Device = "auto",
    allow_pickle: common.AllowPickle = False,
    as_json: common.Json = False,
) -> None:
    """Continues a text with a causal language model."""
    common.use_threads(threads)
    from keel.inference.generate import generate as run
    from keel.inference.model import Model

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
        typer.echo(("\n" if number else "") + clean(one["text"]) + ("" if one["ended"] else " ..."))


COMMAND = common.Command(
    generate,
    help="Continue a text with a causal language model.",
    order=80,
    examples=[
        'keel generate my-gpt "The harbour was"',
        'keel generate my-gpt "The harbour was" --temperature 0.8 --top-p 0.9 --samples 3 --tokens 80',
    ],
)
