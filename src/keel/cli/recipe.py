"""`keel recipe`: see what can be trained, as YAML to edit and pass back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from keel.cli import common

app = typer.Typer(cls=common.Group, help="List and show recipes.", rich_markup_mode=None)


@app.command("list", epilog=common.example("keel recipe list"))
def list_recipes(as_json: common.Json = False) -> None:
    """Lists the recipes that come with Keel as a family tree: each is its difference from the one it stands under."""
    from keel.recipe import listing

    found = listing()
    if as_json:
        common.print_json({"recipes": found})
        return
    common.print_table("", ("recipe", "what it is"), list(_tree(found, "")))


def _tree(found: list[dict[str, str]], parent: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    for recipe in found:
        if recipe["extends"] == parent:
            yield "  " * depth + recipe["name"], recipe["description"]
            yield from _tree(found, recipe["name"], depth + 1)


@app.command(
    epilog=common.example(
        "keel recipe show bert-mini > my-recipe.yaml",
        "keel recipe show bert-mini --set training.learning_rate=3e-4",
    )
)
def show(
    recipe: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="A recipe's name, or a YAML file.")],
    overrides: common.Overrides = None,
    as_json: common.Json = False,
) -> None:
    """Prints a whole recipe as YAML that can be edited and passed back in place of the name."""
    from keel.recipe import load_any

    text = load_any(recipe, overrides or []).to_yaml()
    if as_json:
        import yaml

        common.print_json(yaml.safe_load(text))
    else:
        typer.echo(text.rstrip("\n"))
