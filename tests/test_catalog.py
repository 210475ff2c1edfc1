"""Members of a room: files of the package, Python files that the user names, entry points of installed packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keel import catalog
from keel.cli import common
from keel.errors import UserError

Command = Callable[..., subprocess.CompletedProcess[str]]

BACKBONE = """
from keel.configs import BackboneConfig
from keel.interfaces import Backbone

class CnnConfig(BackboneConfig):
    kind: str
    layers: int = 1
    width: int = 8

class Cnn(Backbone):
    Config = CnnConfig
"""
OBJECTIVE = """
from keel.configs import ObjectiveConfig
from keel.interfaces import Objective

class SimCse(Objective):
    name = "simcse"
    Config = ObjectiveConfig
"""
TASK = """
from keel.configs import TaskConfig
from keel.interfaces import Task

class Retrieve(Task):
    Config = TaskConfig
"""
PACKER = """
class Config: ...

class Whole:  # a Packer is a Protocol: having its members is enough
    Config = Config
"""
VERB = """
from typing import Annotated

import typer

from keel.cli import common

def shout(text: Annotated[str, typer.Argument(metavar="TEXT")], as_json: common.Json = False) -> None:
    \"\"\"Prints a text in capitals.\"\"\"
    typer.echo(text.upper())

COMMAND = common.Command(shout, help="Print a text in capitals.", examples=["keel shout hello"])
"""
GROUP = """
import typer

from keel.cli import common

group = typer.Typer()

@group.command()
def loud() -> None:
    typer.echo("LOUD")

COMMAND = common.Command(group, help="Ways to say it.")
"""


def write(path: Path, source: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return str(path)


def install(folder: Path, package: str, **groups: str) -> None:
    """An installed package as pip leaves it: its metadata; `backbones="cnn = module"` is a group `keel.backbones`."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    write(info / "entry_points.txt", "".join(f"[keel.{group}]\n{lines}\n" for group, lines in groups.items()))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs packages into a folder on the path; `tmp_path` is that folder."""

    def add(package: str, **groups: str) -> None:
        install(tmp_path, package, **groups)
        monkeypatch.syspath_prepend(tmp_path)
        catalog._installed.cache_clear()

    yield add
    catalog._installed.cache_clear()


@pytest.mark.parametrize(
    ("room", "source", "name"),
    [
        ("backbones", BACKBONE, "Cnn"),
        ("objectives", OBJECTIVE, "SimCse"),
        ("tasks", TASK, "Retrieve"),
        ("packers", PACKER, "Whole"),
    ],
)
def test_a_python_file_is_a_member_by_its_path(
    room: str, source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "mine.py", source)
    found = catalog.find(room, path)
    assert found.__name__ == name
    monkeypatch.chdir(tmp_path)
    for other in ("mine.py", "./mine.py", f"./mine.py:{name}", f"{path}:{name}"):
        assert catalog.find(room, other) is found, "the same file gives the same class"


def test_a_config_may_hold_a_path_as_its_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "my_cnn.py", BACKBONE)
    config = catalog.find("backbones", path).Config(kind=path)
    assert catalog.find("backbones", config.kind).Config is type(config)


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    a, b = (catalog.find("backbones", write(tmp_path / folder / "cnn.py", BACKBONE)) for folder in "ab")
    assert a is not b


def test_one_file_may_serve_several_rooms(tmp_path: Path) -> None:
    path = write(tmp_path / "both.py", BACKBONE + OBJECTIVE + TASK)
    names = [catalog.find(room, path).__name__ for room in ("backbones", "objectives", "tasks")]
    assert names == ["Cnn", "SimCse", "Retrieve"]


def test_a_command_is_found_by_its_path(tmp_path: Path) -> None:
    found = catalog.find("commands", write(tmp_path / "shout.py", VERB))
    assert isinstance(found, common.Command) and found.help == "Print a text in capitals."


@pytest.mark.parametrize(
    ("name", "short", "is_path"),
    [
        ("masked-lm", "masked_lm", False),
        ("bert", "bert", False),
        ("./my-cnn.py", "my_cnn", True),
        ("/somewhere/my_cnn.py:Cnn", "my_cnn", True),
        ("happy", "happy", False),
    ],
)
def test_names_and_paths(name: str, short: str, is_path: bool) -> None:
    assert (catalog.name_of(name), catalog.is_path(name)) == (short, is_path)


@pytest.mark.parametrize(
    ("room", "source", "member", "said"),
    [
        ("backbones", "", "", "defines no backbone; it needs a class that extends Backbone and has a Config"),
        ("backbones", OBJECTIVE, "", "defines no backbone"),
        ("tasks", "from keel.interfaces import Task\nclass Bare(Task): ...\n", "", "defines no task"),
        ("backbones", BACKBONE + "\nclass Other(Cnn):\n    Config = CnnConfig\n", "", "(Cnn, Other); name one: "),
        ("backbones", BACKBONE, ":Ccn", "defines no Ccn. Did you mean 'Cnn'?"),
        ("objectives", BACKBONE, ":Cnn", "not a valid objective; it needs a class that extends Objective"),
        ("backbones", BACKBONE, ":CnnConfig", "not a valid backbone"),
        ("backbones", "import keel\nimport no_such_module\n", "", "No module named 'no_such_module' ({file}, line 2)"),
        (
            "backbones",
            "def f():\n    return 1 / 0\n\nf()\n",
            "",
            "ZeroDivisionError: division by zero ({file}, line 2)",
        ),
        ("backbones", "import json\n\njson.loads('{')\n", "", "({file}, line 3)"),
        ("backbones", "x = 1\nclass Cnn(:\n", "", "SyntaxError: invalid syntax ({file}, line 2)"),
        ("backbones", "raise SystemExit(3)\n", "", "SystemExit: 3 ({file}, line 1)"),
        ("commands", "def shout(): ...\n", "", "defines no COMMAND"),
    ],
)
def test_a_bad_file_is_one_line(room: str, source: str, member: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.py", source)
    for _ in range(2):  # nothing half-imported is left for the second time
        with pytest.raises(UserError) as caught:
            catalog.find(room, path + member)
        line = str(caught.value)
        assert line.startswith(path) and said.format(file=path) in line and "\n" not in line


def test_a_file_that_was_fixed_is_imported_again(tmp_path: Path) -> None:
    path = write(tmp_path / "cnn.py", "1 / 0")
    with pytest.raises(UserError):
        catalog.find("backbones", path)
    write(tmp_path / "cnn.py", BACKBONE)
    assert catalog.find("backbones", path).__name__ == "Cnn"


def test_a_file_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such file") as caught:
        catalog.find("backbones", "./my_cnn.py")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("room", ["backbones", "objectives", "tasks", "packers", "recipes", "commands"])
def test_a_name_that_is_not_known_is_one_line_with_a_suggestion(room: str) -> None:
    known = catalog.names(room)[0]
    with pytest.raises(UserError, match=f"there is no {room[:-1]} called '{known}x'. Did you mean '{known}'?"):
        catalog.find(room, f"{known}x")
    assert catalog.known(room, known) and not catalog.known(room, f"{known}x")


def test_files_that_start_with_an_underscore_are_no_members() -> None:
    assert not [name for room in ("objectives", "tasks", "commands") for name in catalog.names(room) if name[0] == "_"]
    with pytest.raises(UserError, match="no objective called '_masking'"):
        catalog.find("objectives", "_masking")


def test_an_entry_point_is_a_member(site: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path / "installed_cnn.py", BACKBONE)
    site("my-nets", backbones="my-cnn = installed_cnn\nthe_same = installed_cnn:Cnn")
    assert {"my_cnn", "the_same", "bert"} <= set(catalog.names("backbones"))
    assert catalog.known("backbones", "my-cnn")
    found = catalog.find("backbones", "my-cnn")
    assert found.__name__ == "Cnn"
    assert found is catalog.find("backbones", "my_cnn") is catalog.find("backbones", "the-same")
    assert "my_cnn" not in catalog.names("objectives")


def test_listing_a_room_does_not_import_its_plugins(site: Callable[..., None]) -> None:
    site("not-imported", objectives="ghost = no_such_module_at_all")
    assert "ghost" in catalog.names("objectives")
    with pytest.raises(UserError, match="plug-in no_such_module_at_all: cannot be imported: ModuleNotFoundError"):
        catalog.find("objectives", "ghost")


def test_an_entry_point_that_leads_to_something_else_is_one_line(site: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path / "installed_oddly.py", BACKBONE + "\nnumber = 3\n")
    site("odd", backbones="a = installed_oddly:number\nb = installed_oddly:gone", recipes="r = installed_oddly:number")
    with pytest.raises(UserError, match="installed_oddly:number: not a valid backbone"):
        catalog.find("backbones", "a")
    with pytest.raises(UserError, match="installed_oddly:gone: cannot be imported: AttributeError"):
        catalog.find("backbones", "b")
    with pytest.raises(UserError, match=r"the path of a \.yaml file or of a folder"):
        catalog.names("recipes")


@pytest.mark.parametrize("kind", ["a folder", "a file", "a path as text"])
def test_entry_points_add_recipes(kind: str, site: Callable[..., None], tmp_path: Path) -> None:
    file = Path(write(tmp_path / "recipes" / "cnn-mini.yaml", "extends: bert-mini\n"))
    given = {"a folder": file.parent, "a file": file, "a path as text": str(file)}[kind]
    module = f"installed_recipes_{kind.replace(' ', '_')}"
    write(tmp_path / f"{module}.py", f"from pathlib import Path\nHERE = Path({str(given)!r})\n")
    site("my-recipes", recipes=f"mine = {module}:HERE")
    assert {"cnn-mini", "bert-mini"} <= set(catalog.names("recipes", ".yaml"))
    assert catalog.find("recipes", "cnn-mini") == file
    assert catalog.find("recipes", "bert-mini") == catalog.HERE / "recipes" / "bert-mini.yaml"


@pytest.mark.parametrize(
    ("room", "name", "said"),
    [
        ("backbones", "bert", "two backbones are called 'bert': one of Keel's own, one of the package rude (x.y:Z)"),
        ("objectives", "masked-lm", "two objectives are called 'masked_lm'"),
        ("commands", "extend-positions", "two commands are called 'extend_positions'"),
    ],
)
def test_a_plugin_cannot_take_a_name_of_keels(room: str, name: str, said: str, site: Callable[..., None]) -> None:
    site("rude", **{room: f"{name} = x.y:Z"})
    with pytest.raises(UserError) as caught:
        catalog.names(room)
    assert said in str(caught.value)


def test_two_plugins_cannot_have_one_name(site: Callable[..., None]) -> None:
    site("one", tasks="retrieve = one:Task")
    site("two", tasks="retrieve = two:Task")
    with pytest.raises(UserError, match=r"package (one|two) .*package (one|two) "):
        catalog.find("tasks", "retrieve")


def with_path(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_an_installed_verb_is_listed_last_and_runs(keel: Command, tmp_path: Path) -> None:
    write(tmp_path / "my_verbs.py", VERB)
    write(tmp_path / "my_group.py", GROUP)
    install(tmp_path, "my-verbs", commands="shout = my_verbs\nsay-it = my_group:COMMAND")
    environment = with_path(tmp_path)
    listed = [line.split()[0] for line in commands_shown(keel("--help", env=environment).stdout)]
    assert listed[:2] == ["doctor", "demo"] and listed[-2:] == ["say-it", "shout"]
    assert keel("shout", "hello", env=environment).stdout == "HELLO\n"
    assert "keel shout hello" in keel("shout", "--help", env=environment).stdout
    assert keel("say-it", "loud", env=environment).stdout == "LOUD\n"
    assert "Did you mean 'shout'?" in keel("shuot", "hello", env=environment).stderr
    assert "say-it has no verb 'quiet'" in keel("say-it", "quiet", env=environment).stderr


def commands_shown(help: str) -> list[str]:
    """The lines of the list of verbs."""
    return [line for line in help.split("Commands:\n")[1].split("\n\n")[0].splitlines() if line[2] != " "]


def test_a_verb_is_run_from_its_file(keel: Command, one_line: Any, tmp_path: Path) -> None:
    write(tmp_path / "shout.py", VERB)
    assert keel("./shout.py", "hello", cwd=tmp_path).stdout == "HELLO\n"
    assert "./shout.py needs TEXT" in one_line(keel("./shout.py", cwd=tmp_path))
    assert "./gone.py: no such file" in one_line(keel("./gone.py", "--loud", cwd=tmp_path))


def test_a_broken_verb_spoils_no_other(keel: Command, one_line: Any, tmp_path: Path) -> None:
    write(tmp_path / "broken_verb.py", "import sys\nprint('imported', file=sys.stderr)\n1 / 0\n")
    write(tmp_path / "odd_verb.py", "COMMAND = 3\n")
    install(tmp_path, "broken", commands="broken = broken_verb\nodd = odd_verb")
    environment = with_path(tmp_path)
    shown = keel("--help", env=environment)
    assert shown.returncode == 0
    assert [line.split()[:4] for line in commands_shown(shown.stdout)][-2:] == [
        ["broken", "Cannot", "be", "loaded:"],
        ["odd", "Cannot", "be", "loaded:"],
    ]
    said = keel("broken", "--any", "option", env=environment)
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].endswith(f"division by zero ({tmp_path}/broken_verb.py, line 3)")
    assert "must be a keel.cli.common.Command, found int" in one_line(keel("odd", env=environment))
    other = keel("doctor", "--help", env=environment)
    assert (other.returncode, other.stderr) == (0, ""), "a verb of Keel's does not import plug-ins"
