"""The wheel: it has every file that the package needs and no other, and works by itself: installed into an environment
of its own, without the repository on the path, from another folder.

The environment borrows the dependencies of this one, but not its keel. With KEEL_WHEEL=FOLDER (`make distcheck`) the
wheel of that folder is tested instead, in an empty environment that installs everything anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import keel
from served import READY, wait_until
from test_repository import project_files

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "keel"
GIVEN = os.environ.get("KEEL_WHEEL")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KEEL_"))}

Run = Callable[..., str]

# Before the README's lines: their model is made small, and its training short.
SMALL = """
import keel
from keel import recipe as recipes

load = recipes.load
print(keel.__file__)


def small(name, given=()):
    return load(name, [*(one for one in given if not one.startswith("training.budget=")), *{settings}])


recipes.load = small
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, and the source archive; built from a copy, because a build leaves files behind."""
    if GIVEN:
        folder = ROOT / GIVEN
    else:
        tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
        for path in project_files():
            copy = tree / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
        done = subprocess.run(command, capture_output=True, text=True, env=CLEAN, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    named = f"keel_nlp-{keel.__version__}"
    return folder / f"{named}-py3-none-any.whl", folder / f"{named}.tar.gz"


def tracked(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in project_files() if path.is_relative_to(folder)}


def test_the_wheel_has_the_package_and_nothing_else(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
    own = {name.removeprefix("keel/") for name in names if name.startswith("keel/")}
    assert own == tracked(PACKAGE)
    assert {"py.typed", "recipes/bert-tiny.yaml", "cli/commands/fetch.py"} <= own
    assert {"reporting/report.html", "web/index.html", "web/main.js", "web/page.css", "web/keel.svg"} <= own
    assert {name.split("/")[0] for name in names} == {"keel", f"keel_nlp-{keel.__version__}.dist-info"}


def test_the_wheel_says_what_it_is(archives: tuple[Path, Path]) -> None:
    folder = f"keel_nlp-{keel.__version__}.dist-info"
    with zipfile.ZipFile(archives[0]) as wheel:
        facts = wheel.read(f"{folder}/METADATA").decode()
        scripts = wheel.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    for line in (f"Version: {keel.__version__}", "Requires-Python: >=3.11", "License-Expression: Apache-2.0"):
        assert line in facts.splitlines()
    assert "Provides-Extra: hub" in facts and "keel = keel.cli.main:main" in scripts


def test_the_source_archive_has_every_file_of_the_repository(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    made = {"PKG-INFO", "setup.cfg"} | {name for name in names if ".egg-info/" in name}
    assert names - made == tracked(ROOT) - made


@pytest.fixture(scope="module")
def installed(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    if GIVEN:
        command = [sys.executable, "-m", "venv", str(folder)]
        subprocess.run(command, check=True, capture_output=True, env=CLEAN)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-c", str(ROOT / "constraints.txt")]
    else:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, env=CLEAN)
        python = str(folder / "bin" / "python")
        (own,) = folder.glob("lib/python*/site-packages")
        # A path in a .pth file is searched last, and the .pth files in it are not read: this environment's keel, which
        # is such a file, stays out.
        (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    done = subprocess.run([*install, str(archives[0])], capture_output=True, text=True, env=CLEAN, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def run(installed: Path, elsewhere: Path) -> Run:
    """Runs a command of the environment in another folder; its output."""

    def start(name: str, *arguments: object) -> str:
        command = [str(installed / name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=CLEAN, cwd=elsewhere)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return start


def test_the_command_of_the_wheel(run: Run) -> None:
    assert run("keel", "--version") == f"keel {keel.__version__}\n"
    listed = run("keel", "recipe", "list")
    assert all(path.stem in listed for path in (PACKAGE / "recipes").glob("bert-*.yaml"))
    assert "torch" in run("keel", "doctor")


def test_the_python_of_the_readme(
    run: Run, installed: Path, elsewhere: Path, text_file: Path, tiny: tuple[str, ...]
) -> None:
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    (elsewhere / "texts").mkdir()
    shutil.copy(text_file, elsewhere / "texts")
    printed = run("python", "-c", SMALL.format(settings=[*tiny, "training.steps=4"]) + lines)
    assert str(installed.parent) in printed and str(ROOT) not in printed
    assert "'probability'" in printed
    assert "<svg" in (elsewhere / "encoder" / "report.html").read_text(encoding="utf-8"), "the page's template is there"


def test_the_page_of_the_wheel(installed: Path, elsewhere: Path, minilm: Path, tmp_path: Path) -> None:
    if GIVEN:
        wheel = f"keel-nlp[serve] @ {next((ROOT / GIVEN).glob('*.whl')).resolve().as_uri()}"
        install = [str(installed / "python"), "-m", "pip", "install", "-c", str(ROOT / "constraints.txt"), wheel]
        subprocess.run(install, check=True, capture_output=True, env=CLEAN, cwd=elsewhere)
    said, log = tmp_path / "said.txt", tmp_path / "log.txt"
    command = [str(installed / "keel"), "serve", str(minilm), "--port", "0"]
    with said.open("w") as out, log.open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=CLEAN, cwd=elsewhere)
    try:

        def address() -> str:
            assert process.poll() is None, log.read_text()
            return said.read_text().partition(READY)[2].partition(" ")[0]

        url = wait_until(address, 60)
        for name in sorted(tracked(PACKAGE / "web") - {"__init__.py"}):
            with urllib.request.urlopen(f"{url}/page/{name}", timeout=30) as found:
                assert found.read() == (PACKAGE / "web" / name).read_bytes(), name
        with urllib.request.urlopen(url, timeout=30) as found:
            assert found.read() == (PACKAGE / "web" / "index.html").read_bytes()
    finally:
        process.terminate()
        process.wait(60)
