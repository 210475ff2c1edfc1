"""`keel fetch`: a published model by its name; the only verb that connects to anything."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Public name, such as bert-base-uncased or OWNER/MODEL.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Output folder; default: the name's last part.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Branch, tag or commit; also as NAME@REV. Default: main.")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Convert pytorch_model.bin, a pickle. Only if you trust its owner.")
    ] = False,
    quiet: common.Quiet = False,
    as_json: common.Json = False,
) -> None:
    """Fetches a published model from the Hugging Face hub, verifies it and says what it is. No other verb connects to
    anything. Stopped or cut off, the same command goes on. HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE apply."""
    from keel.stages.fetch import fetch as run

    with common.progress("fetch", quiet) as report:
        result = run(name, out, revision, allow_pickle=allow_pickle, report=report)
    common.print_result(f"model {result['out']}", result, as_json)


COMMAND = common.Command(
    fetch,
    help="Fetch a published model by its name.",
    order=65,
    examples=[
        "keel fetch bert-base-uncased",
        "keel fetch google/electra-small-discriminator --out my-electra",
        "keel fetch sentence-transformers/all-MiniLM-L6-v2@main",
    ],
)
