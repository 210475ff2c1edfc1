"""A recipe with a key of version 0.1 gets one line that names the new key, and the new key exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel import catalog
from keel.errors import UserError
from keel.recipe import load, load_any, load_task
from keel.renamed_keys import MEMBERS, OBJECTIVES, RECIPES, SECTIONS, new_name

KEYS = [f"{section}.{old}" for section, table in SECTIONS.items() for old in table]
KEYS += [f"model.objectives.masked_lm.{old}" for old in OBJECTIVES]
# Recipes in which the new keys can be set, whatever the section.
CARRIERS = ("bert-tiny", "albert-mini", "modern-mini", "electra-mini", "elmo-mini", "fasttext")
TASKS = ("classify", "answer", "translate", "tag")
NEEDED = {"mix_penalty": ("encoder.layers=mix", "encoder.frozen=true")}  # keys that need another to be set
VALUES = ("1", "2", "9", "0.01", "true", "noise", "none", "bert-tiny")


def message(recipe: str, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_any(recipe, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def recipe_for(key: str) -> str:
    return "classify" if key.startswith(("task.", "encoder.")) or key == "training.batch_rows" else "bert-tiny"


@pytest.mark.parametrize("key", KEYS)
def test_an_old_key_is_one_line_with_the_new_key(key: str) -> None:
    new = new_name(key)
    assert new is not None and new != key
    assert f"the key '{key}' is now '{new}'" in message(recipe_for(key), f"{key}=1")


@pytest.mark.parametrize("key", KEYS)
def test_the_new_key_exists(key: str) -> None:
    """Some recipe takes it, with some value."""
    new = str(new_name(key))
    room, name = new.rpartition(".")[::2]
    replaced = "model.objectives.replaced_token" if name == "generator_size" else room
    recipes = TASKS if room in ("task", "encoder") or name == "batch_size" else CARRIERS
    for recipe in recipes:
        for value in VALUES:
            try:
                load_any(recipe, [f"{replaced}.{name}={value}", *NEEDED.get(name, ())])
            except UserError as error:
                if f"unknown key '{replaced}.{name}'" in str(error):
                    break  # not in this recipe
            else:
                return
    pytest.fail(f"no recipe takes {new}")


@pytest.mark.parametrize("key", ["encoder.use", "model.backbone.attention.look"])
def test_a_key_whose_values_changed_too_says_so(key: str) -> None:
    assert "(true or false)" in message(recipe_for(key), f"{key}=frozen")


@pytest.mark.parametrize("old, new", MEMBERS.items())
def test_a_renamed_objective(old: str, new: str) -> None:
    assert new in catalog.names("objectives") and old not in catalog.names("objectives")
    assert f"'{old}' is now called '{new}'" in message("gpt-mini", f"model.objectives={{{old}: {{}}}}")


@pytest.mark.parametrize("old, new", RECIPES.items())
def test_a_renamed_recipe(old: str, new: str) -> None:
    assert f"'{old}' is now called '{new}'" in message(old)
    assert load(new).name == new


def test_files_too(tmp_path: Path) -> None:
    """The line names the file."""
    path = tmp_path / "mine.yaml"
    path.write_text("extends: classify\nencoder: {use: frozen, layers: mix}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.yaml: the key 'encoder\.use' is now 'encoder\.frozen'"):
        load_task(str(path))


def test_a_key_that_was_never_there_has_no_new_name() -> None:
    assert new_name("training.surprise") is None and new_name("surprise") is None
    assert "did you mean" in message("bert-tiny", "training.stepz=1").lower()
