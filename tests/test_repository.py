"""What the pages say is so: the tree, commands, links, promises, make targets; what is installed is what is pinned; and
files and functions stay of a size to read."""

from __future__ import annotations

import ast
import pkgutil
import re
import shlex
import subprocess
import typing
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer

from keel.cli.root import app

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
LINES_AT_MOST = 400
FUNCTION_LINES_AT_MOST = 60
TREE_LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.-]+/?)(?: {2,}(?P<comment>.*))?$")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
KEY = re.compile(
    r"(?<![\w./'])(?:training|data|task|encoder|model\.backbone|model\.objectives)(?:\.[a-z_]\w*+)++(?!\()"
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)  # language, file name, text


def project_files() -> list[Path]:
    """Tracked files and new ones that are not ignored; everything but hidden folders where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = [p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file()]
        names = [str(p) for p in paths if not any(part.startswith((".", "__pycache__")) for part in p.parts)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def pages() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, _, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def tree(page: Path) -> dict[str, str]:
    """The paths drawn in a page's tree, with their comments."""
    drawings = [text for text in blocks(page, "") if "src/keel/" in text]
    assert len(drawings) == 1, f"{name_of(page)}: one code block with src/keel/ in it, found {len(drawings)}"
    (drawing,) = drawings
    found: dict[str, str] = {}
    folders: list[tuple[int, str]] = []
    for line in filter(str.strip, drawing.splitlines()):
        match = TREE_LINE.match(line.replace("src/keel/", "src.keel/"))
        assert match, f"{name_of(page)}: cannot read this line of the tree: {line}"
        indent, name = len(match["indent"]), match["name"].replace("src.keel/", "src/keel/")
        folders = [f for f in folders if f[0] < indent]
        path = "".join(folder for _, folder in folders) + name
        found[path] = match["comment"] or ""
        if name.endswith("/"):
            folders.append((indent, name))
    return found


def expected_in_tree() -> set[str]:
    """The modules that are rooms of their own, and every folder of the package."""
    package = ROOT / "src" / "keel"
    files = [path for path in project_files() if path.is_relative_to(package)]
    modules = {name_of(path) for path in files if path.parent == package and re.fullmatch(r"[a-z]\w*\.py", path.name)}
    folders = {folder for path in files for folder in path.parents if folder.is_relative_to(package)}
    return modules | {f"{name_of(folder)}/" for folder in folders}


def test_the_tree_shows_the_folders_that_exist() -> None:
    drawn = tree(ARCHITECTURE)
    assert set(drawn) == expected_in_tree()
    assert all(drawn.values()), [path for path, comment in drawn.items() if not comment]


def command_lines(page: Path) -> list[str]:
    """The lines of a page's shell examples that call keel."""
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines if re.match(r"(\.venv/bin/)?keel\b", line)]


def parse(line: str) -> tuple[str, dict[str, Any]]:
    """Reads a command line as keel would, without running it: the verb and its values."""
    words = shlex.split(re.split(r" [|<>] ", line)[0])[1:]
    command: Any = typer.main.get_command(app)
    context = command.make_context("keel", words, resilient_parsing=not words)
    verb: list[str] = []
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        name, command, rest = command.resolve_command(context, rest)
        verb.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(verb), dict(context.params)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_commands_in_the_pages_exist(page: Path) -> None:
    from keel.recipe import load

    for line in command_lines(page):
        try:
            verb, values = parse(line)
        except Exception as error:
            pytest.fail(f"{name_of(page)}: `{line}`: {getattr(error, 'message', error)}")
        recipe = values.get("recipe") if verb in ("pretrain", "recipe show") else None
        if recipe and not recipe.endswith(".yaml"):
            load(recipe, values.get("overrides") or [])  # an unknown recipe or key raises


def test_recipes_in_the_pages_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keel import catalog
    from keel.recipe import load

    for page in pages():
        monkeypatch.setattr(catalog, "_plugins", {})  # what a page's recipe adds is forgotten again
        folder = tmp_path / name_of(page)
        folder.mkdir(parents=True)
        for _, name, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if name:  # a file that a recipe may name
                (folder / name).write_text(text, encoding="utf-8")
        for number, text in enumerate(blocks(page, "yaml")):
            file = folder / f"recipe-{number}.yaml"
            file.write_text(text, encoding="utf-8")
            load(str(file))


def guides() -> list[Path]:
    return READMES + sorted((ROOT / "docs" / "guide").glob("*.md"))


def known_options() -> set[str]:
    """The options of all verbs."""
    found = {"--help"}
    waiting: list[Any] = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        found |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        if hasattr(command, "commands"):
            context = typer.Context(command)
            waiting += [command.get_command(context, name) for name in command.list_commands(context)]
    return found


def known_keys() -> set[str]:
    """The keys of all recipes, of pretraining and of fine-tuning, with those of every member."""
    from keel import catalog
    from keel.recipe import Recipe, TaskRecipe

    found: set[str] = set()

    def add(section: str, options: Any) -> None:
        for name, field in options.model_fields.items():
            found.add(f"{section}.{name}")
            for inner in (field.annotation, *typing.get_args(field.annotation)):
                if hasattr(inner, "model_fields"):
                    add(f"{section}.{name}", inner)

    for kind in (Recipe, TaskRecipe):
        for section in ("training", "data", "encoder"):
            if section in kind.model_fields:
                add(section, kind.model_fields[section].annotation)
    for room, section in (("backbones", "model.backbone"), ("tasks", "task")):
        for name in catalog.names(room):
            add(section, catalog.find(room, name).Config)
    for name in catalog.names("objectives"):
        found.add(f"model.objectives.{name}")
        add(f"model.objectives.{name}", catalog.find("objectives", name).Config)
    return found


def code_that_may_name_keys(page: Path) -> list[str]:
    """A page's code blocks; of Python the strings, because `encoder.width` is an attribute there."""
    found = []
    for language, _, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            constants = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
            found += [value for value in constants if isinstance(value, str)]
        else:
            found.append(code)
    return found


@pytest.mark.parametrize("page", guides(), ids=name_of)
def test_options_and_keys_that_the_prose_names_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    options = {option for code in re.findall(r"`([^`]+)`", text) for option in OPTION.findall(code)}
    assert options <= known_options(), f"{name_of(page)} names {sorted(options - known_options())}"
    keys = set(KEY.findall(text + "\n".join(code_that_may_name_keys(page))))
    assert keys <= known_keys(), f"{name_of(page)} names {sorted(keys - known_keys())}"


@pytest.mark.parametrize("page", guides(), ids=name_of)
def test_modules_and_functions_that_the_prose_names_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = {
        name for code in re.findall(r"`([^`]+)`", text) for name in re.findall(r"(?<![\w./-])keel(?:\.\w+)+", code)
    }
    for name in named - {"keel.safetensors", "keel.commands"}:  # a file, and a group of entry points
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{name_of(page)} names {name}: {error}")


@pytest.mark.parametrize("name", ["recipes.md", "recipes.zh-CN.md"])
def test_the_page_about_recipes_lists_every_key(name: str) -> None:
    text = (ROOT / "docs" / "guide" / name).read_text(encoding="utf-8")
    listed = set(re.findall(r"`([\w.]+)`", text))
    of_members = ("model.", "task.")  # a page of their own, or the file of the member
    missing = {key for key in known_keys() if not key.startswith(of_members)} - {
        key for key in known_keys() if key.rpartition(".")[2] in listed
    }
    assert not missing, f"docs/guide/{name} does not list {sorted(missing)}"


def test_an_invented_option_is_noticed() -> None:
    assert parse("keel recipe show bert-mini")[0] == "recipe show"
    with pytest.raises(Exception, match="--colour"):
        parse("keel recipe show bert-mini --colour")


def test_both_readmes_show_commands() -> None:
    verbs = {"doctor", "tokenizer train", "corpus build", "corpus inspect", "recipe show", "pretrain", "fill"}
    for page in READMES:
        assert verbs <= {parse(line)[0] for line in command_lines(page)}, name_of(page)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_python_in_the_pages_is_python(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text)


@pytest.mark.parametrize("page, heading", [(READMES[0], "What you can rely on"), (READMES[1], "可以信赖的地方")])
def test_every_promise_links_to_tests_that_hold_it(page: Path, heading: str) -> None:
    """In both languages the same promises, with the same tests, and each of these files has tests in it."""

    def promises(page: Path, heading: str) -> list[list[str]]:
        section = page.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
        bullets = re.split(r"^- ", section, flags=re.MULTILINE)[1:]
        return [[target for target in LINK.findall(bullet) if target.startswith("tests/")] for bullet in bullets]

    found = promises(page, heading)
    assert len(found) >= 7 and all(found), f"{name_of(page)}: a promise without a test: {found}"
    assert found == promises(READMES[0], "What you can rely on")
    for target in {target for bullet in found for target in bullet}:
        assert re.search(r"^def test_", (ROOT / target).read_text(encoding="utf-8"), re.MULTILINE), target


def test_files_can_be_held_in_the_head() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "src").rglob("*.py")}
    long = [f"{name_of(path)}: {lines} lines" for path, lines in sizes.items() if lines > LINES_AT_MOST]
    assert not long, f"split these (at most {LINES_AT_MOST} lines): {', '.join(long)}"


def test_functions_can_be_held_in_the_head() -> None:
    long = []
    for path in sorted((ROOT / "src" / "keel").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_AT_MOST:
                    long.append(f"{name_of(path)}:{node.lineno}: {node.name} has {lines} lines")
    assert not long, f"split these (at most {FUNCTION_LINES_AT_MOST} lines):\n" + "\n".join(long)


def test_no_file_names_a_place_on_one_machine() -> None:
    places = ["/" + "work/", ".." + "/shared", "/" + "root/", "/" + "home/"]
    found = []
    for path in project_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            found += [f"{name_of(path)}:{number}: {place}" for place in places if place in line]
    assert not found, found


def plain(name: str) -> str:
    """A distribution's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, extras: set[str], found: dict[str, set[str]]) -> None:
    """Adds what a distribution needs on this machine, with all that this needs in turn."""
    from packaging.requirements import Requirement

    if plain(name) in found and extras <= found[plain(name)]:
        return
    found[plain(name)] = found.get(plain(name), set()) | extras
    for line in metadata.requires(name) or []:
        requirement = Requirement(line)
        if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            needed(requirement.name, set(requirement.extras), found)


def test_every_distribution_that_make_installs_is_pinned_at_the_installed_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {plain(name): version for name, version in pins.items()}
    assert len(pinned) == len(pins), "a distribution is pinned twice"
    found: dict[str, set[str]] = {}
    needed("keel-nlp", {"dev"}, found)
    installed = {name: metadata.version(name).split("+")[0] for name in found if name != "keel-nlp"}
    assert len(installed) > 40, "the extras of pyproject.toml are not installed here: run `make test`"
    wrong = {name: (version, pinned.get(name)) for name, version in installed.items() if pinned.get(name) != version}
    assert not wrong, f"installed, and what constraints.txt pins: {wrong}"
    assert set(pinned) <= set(installed), f"nothing needs {sorted(set(pinned) - set(installed))}"


def test_make_targets_have_help_and_the_pages_name_real_ones() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    targets = set(phony.split())
    explained = set(re.findall(r"^([a-z]+):.*## \S", makefile, re.MULTILINE))
    assert targets == explained
    for page in pages():
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z]+)", text))
        named |= set(re.findall(r"^make ([a-z]+)", "\n".join(blocks(page, "sh")), re.MULTILINE))
        assert named <= targets, f"{name_of(page)} names make targets that do not exist: {named - targets}"
