"""A plug-in verb: `keel overlap A B`: how many tokens two tokenizers have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from keel.cli import common

Folder = Annotated[str, typer.Argument(metavar="DIR", help="A tokenizer or model folder.")]


def overlap(first: Folder, second: Folder, as_json: common.Json = False) -> None:
    """Counts the tokens that two tokenizers have in common."""
    from keel.tokenizers.folder import open_tokenizer

    opened = [open_tokenizer(path) for path in (first, second)]
    vocabularies = [{tokenizer.token(id) for id in range(tokenizer.size)} for tokenizer in opened]
    shared = len(vocabularies[0] & vocabularies[1])
    result = {"first": len(vocabularies[0]), "second": len(vocabularies[1]), "shared": shared}
    common.print_result(f"{first} and {second}", result, as_json)


COMMAND = common.Command(overlap, help="Count the tokens that two tokenizers share.", examples=["keel overlap a b"])
