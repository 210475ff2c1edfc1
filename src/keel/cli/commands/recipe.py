"""`keel recipe`: list recipes, and print one as YAML to edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from keel.cli import common

group = typer.Typer()


@group.command("list", epilog=common.example("keel recipe list"))
def list_recipes(as_json: common.Json = False) -> None:
    """Lists the recipes as a tree: each contains only what differs from its parent."""
    from keel.recipe import listing

    found = listing()
    if as_json:
        common.print_json({"recipes": found})
        return
    common.print_table("", ("recipe", "description"), list(_tree(found, "")))


def _tree(found: list[dict[str, str]], parent: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    for recipe in found:
        if recipe["extends"] == parent:
            yield "  " * depth + recipe["name"], recipe["description"]
            yield from _tree(found, recipe["name"], depth + 1)


@group.command(
    epilog=common.example(
        "keel recipe show bert-mini > my-recipe.yaml",
        "keel recipe show bert-mini --set training.learning_rate=3e-4",
    )
)
def show(
    recipe: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="Name of a recipe, or a YAML file.")],
    overrides: common.Overrides = None,
    as_json: common.Json = False,
) -> None:
    """Prints the complete recipe as YAML; edit it and pass the file in place of the name."""
    from keel.recipe import load_any

    text = load_any(recipe, overrides or []).to_yaml()
    if as_json:
        import yaml

        common.print_json(yaml.safe_load(text))
    else:
        typer.echo(text.rstrip("\n"))


COMMAND = common.Command(group, help="List and show recipes.", order=50, examples=["keel recipe list"])
