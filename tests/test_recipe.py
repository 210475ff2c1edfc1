"""A recipe is a validated value: whatever is given becomes one, or one line that names the key."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel import catalog, recipe
from keel.errors import UserError
from keel.recipe import Recipe, load, load_any, parse


def refused(overrides: list[str], name: str = "bert-tiny") -> str:
    with pytest.raises(UserError) as caught:
        load(name, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", catalog.names("recipes", ".yaml"))
def test_every_recipe_that_comes_with_keel_is_valid_and_round_trips(name: str, tmp_path: Path) -> None:
    whole = load_any(name)
    assert whole.name == name
    path = tmp_path / "again.yaml"
    path.write_text(whole.to_yaml(), encoding="utf-8")
    assert load_any(str(path)) == whole


def test_the_listing_names_every_recipe_and_its_parent() -> None:
    rows = {row["name"]: row for row in recipe.listing()}
    assert list(rows) == catalog.names("recipes", ".yaml")
    assert all(row["description"] for row in rows.values())
    assert all(row["extends"] in rows for row in rows.values() if row["extends"])


# Control characters are left out: PyYAML loses U+0085, and nobody names a recipe so.
ordinary = st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t")
recipes = st.fixed_dictionaries(
    {
        "name": st.text(ordinary, min_size=1, max_size=20).filter(lambda name: "/" not in name),
        "description": st.text(ordinary, max_size=40),
        "model": st.fixed_dictionaries(
            {
                "backbone": st.fixed_dictionaries(
                    {
                        "width": st.integers(1, 64).map(lambda n: 4 * n),
                        "heads": st.sampled_from([1, 2, 4]),
                        "vocabulary": st.none() | st.integers(6, 10**6),
                        "dropout": st.floats(0, 0.99),
                        "norm_epsilon": st.floats(1e-300, 1.0),
                        "pooler": st.booleans(),
                    }
                ),
                "objectives": st.fixed_dictionaries(
                    {
                        "masked_lm": st.fixed_dictionaries(
                            {"mask_prob": st.floats(1e-9, 0.99), "weight": st.floats(1e-9, 1e9)}
                        )
                    },
                    optional={"next_sentence": st.just({})},
                ),
            }
        ),
        "data": st.fixed_dictionaries(
            {"length": st.integers(8, 512), "static_masks": st.none() | st.integers(1, 100)},
            optional={"long_phase": st.none() | st.just({"length": 64, "fraction": 0.25})},
        ),
        "training": st.fixed_dictionaries(
            {
                "steps": st.integers(1, 10**12),
                "batch_tokens": st.integers(512, 10**9),
                "learning_rate": st.floats(1e-300, 1e300),
                "warmup": st.floats(0, 0.99),
                "seed": st.integers(0, 2**63 - 1),
                "budget": st.none() | st.sampled_from(["90s", "1h30m"]),
                "checkpoint_minutes": st.floats(1e-6, 1e9),
            }
        ),
    }
)


@given(recipes)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_beside_a_result_reads_back_equal(tmp_path: Path, data: dict[str, Any]) -> None:
    whole = parse(data, "test")
    path = tmp_path / "recipe.yaml"
    path.write_text(whole.to_yaml(), encoding="utf-8")
    again = load(str(path))
    assert again == whole
    assert again.to_yaml() == whole.to_yaml()


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
paths = st.sampled_from(
    [
        "name",
        "description",
        "model",
        "model.backbone",
        "model.backbone.kind",
        "model.backbone.width",
        "model.backbone.vocabulary",
        "model.objectives",
        "model.objectives.masked_lm",
        "model.objectives.masked_lm.mask_prob",
        "data",
        "data.length",
        "data.long_phase",
        "data.static_masks",
        "training",
        "training.budget",
        "training.learning_rate",
        "training.precision",
        "training.surprise",
        "surprise",
    ]
)


@given(paths, anything)
@settings(max_examples=300, deadline=None)
def test_any_value_anywhere_gives_a_recipe_or_one_line(path: str, value: Any) -> None:
    data = yaml.safe_load(load("bert-tiny").to_yaml())
    place = data
    *outer, last = path.split(".")
    for part in outer:
        place = place[part]
    place[last] = value
    try:
        assert isinstance(parse(data, "here"), Recipe)
    except UserError as error:
        assert "\n" not in str(error)


@given(st.sampled_from(["{}", "{}=1", "training.steps={}", "model.objectives={}", "name={}"]), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_text_after_set_gives_a_recipe_or_an_explanation(pattern: str, text: str) -> None:
    with contextlib.suppress(UserError):
        assert isinstance(load("bert-tiny", [pattern.format(text)]), Recipe)


def test_unknown_keys_are_named_with_what_was_probably_meant() -> None:
    assert "'training.lerning_rate'" in (line := refused(["training.lerning_rate=1"])) and "'learning_rate'" in line
    assert "'trainnig'" in (line := refused(["trainnig.steps=1"])) and "'training'" in line
    assert "'model.backbon'" in (line := refused(["model.backbon.width=1"])) and "'backbone'" in line
    assert "'model.backbone.widht'" in (line := refused(["model.backbone.widht=8"])) and "'width'" in line
    assert "'masked-ln'" in (line := refused(["model.objectives.masked-ln={}"])) and "masked_lm" in line
    assert "'data.long_phase.lenght'" in (line := refused(["data.long_phase.lenght=8"])) and "'length'" in line
    assert "'bert-tinny'" in (line := refused([], "bert-tinny")) and "'bert-tiny'" in line


@pytest.mark.parametrize(
    "override, named",
    [
        ("training.steps=0", "training.steps"),
        ("training.steps=-5", "training.steps"),
        ("training.steps=2.5", "training.steps"),
        ("training.steps=many", "training.steps"),
        ("training.learning_rate=0", "training.learning_rate"),
        ("training.learning_rate=nan", "training.learning_rate"),
        ("training.learning_rate=.inf", "training.learning_rate"),
        ("training.precision=fp8", "training.precision"),
        ("training.budget=soon", "training.budget"),
        ("training.budget=0s", "training.budget"),
        ("training.warmup=99999", "training.warmup"),
        ("training=5", "training"),
        ("model.backbone.width=33", "width"),
        ("model.backbone.layers=0", "model.backbone.layers"),
        ("model.backbone.dropout=1", "model.backbone.dropout"),
        ("model.backbone.kind=xlnet", "xlnet"),
        ("model.backbone=3", "model.backbone"),
        ("model.objectives.masked_lm.mask_prob=1.5", "model.objectives.masked_lm.mask_prob"),
        ("model.objectives.masked_lm.mask_replace_prob=0.95", "mask_replace_prob"),
        ("model.objectives.masked_lm=3", "model.objectives.masked_lm"),
        ("model.objectives={}", "model.objectives"),
        ("model.objectives=3", "model.objectives"),
        ("data.length=4", "data.length"),
        ("data.length=1024", "model.backbone.positions"),
        ("data.random_next_prob=1.01", "data.random_next_prob"),
        ("data.static_masks=0", "data.static_masks"),
        ("data.packing=sentences", "data.packing"),
        ("training.micro_batches=1000", "training.micro_batches"),
        ("name=a/b", "name"),
    ],
)
def test_impossible_values_are_refused_by_name(override: str, named: str) -> None:
    assert named in refused([override])


@pytest.mark.parametrize("override", ["training.steps", "=5", "", "training.steps=[1", "training.steps={a: b: c}"])
def test_what_is_not_key_equals_value_is_refused(override: str) -> None:
    assert "--set" in refused([override])


def test_values_are_read_as_a_person_means_them() -> None:
    found = load(
        "bert-tiny",
        [
            "training.learning_rate=1e-3",
            "training.steps=2000",
            "data.long_phase={length: 256, fraction: 0.5}",
            "model.objectives.next_sentence=null",
            "model.backbone.vocabulary=null",
            "training.budget=1h30m",
        ],
    )
    assert found.training.learning_rate == 1e-3 and found.training.steps == 2000
    assert found.data.long_phase and found.data.long_phase.length == 256
    assert list(found.model.objectives) == ["masked_lm"], "null takes an objective away"
    assert found.training.budget == "1h30m"
    assert load("bert-tiny", ["training.steps=5", "training.steps=6"]).training.steps == 6, "the last one counts"


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_child_tells_its_difference_and_inherits_the_rest(tmp_path: Path) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: bert-tiny\ntraining: {steps: 77, seed: 5}\n")
    child = load(write(tmp_path / "child.yaml", f"extends: {parent}\ntraining: {{seed: 6}}\n"))
    tiny = load("bert-tiny")
    assert (child.training.steps, child.training.seed) == (77, 6)
    assert child.name == "child" and child.model == tiny.model and child.data == tiny.data


def test_a_recipe_that_extends_itself_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    write(one, f"extends: {two}\n")
    write(two, f"extends: {one}\n")
    assert "extend itself" in refused([], str(one))
    assert "extend itself" in refused([], write(two, f"extends: {two}\n"))


@pytest.mark.parametrize(
    "text",
    ["", "- a\n- b\n", "just words", "a: [1", "model: {backbone: {kind: bert}}\n", "\0", "1: 2\n", "extends: 5\n"],
)
def test_files_that_are_no_recipe_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "odd.yaml", text)
    assert "odd.yaml" in refused([], path) or "5" in refused([], path)


def test_files_that_are_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(bytes(range(128, 256)))
    assert "binary.yaml" in refused([], str(path))
    assert "missing.yaml" in refused([], str(tmp_path / "missing.yaml"))


def test_a_vocabulary_of_another_size_is_refused_with_the_cure() -> None:
    fixed = load("bert-tiny", ["model.backbone.vocabulary=500"])
    assert fixed.for_tokenizer(500, 0).model.backbone.vocabulary == 500  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"500.*204.*vocabulary=null"):
        fixed.for_tokenizer(204, 0)
    settled = load("bert-tiny").for_tokenizer(204, 0)
    assert settled.model.backbone.vocabulary == 204  # type: ignore[attr-defined]
    assert load("bert-tiny").model.backbone.vocabulary is None, "recipes are values: the first is as it was"  # type: ignore[attr-defined]
