"""Nothing is tied to the CPU, and a training step does not wait for the device: see `keel.testing.fake_device`."""

from __future__ import annotations

import pytest

from keel import catalog
from keel.testing.contracts import NoFakeDevice, device_outcomes
from keel.testing.small import fitting


def outcomes(*only: str) -> dict[str, str]:
    try:
        return device_outcomes(only=only)
    except NoFakeDevice as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("backbone", catalog.names("backbones"))
def test_nothing_is_tied_to_the_cpu(backbone: str) -> None:
    """Forward, backward and predictions with each objective, with all of them, with each task, and the loop's step."""
    found = outcomes(backbone)
    wanted = {f"{backbone} {name}" for name in fitting(backbone)} | {f"{backbone} {'+'.join(fitting(backbone))}"}
    assert set(found) >= wanted | {f"{backbone} loop"}
    assert {trial.split()[1] for trial in found} >= set(catalog.names("tasks"))
    assert {trial: said for trial, said in found.items() if said != "ok"} == {}


def test_the_fake_device_finds_what_it_is_there_to_find() -> None:
    found = outcomes("mistakes")
    assert len(found) >= 4 and "ok" not in found.values()
