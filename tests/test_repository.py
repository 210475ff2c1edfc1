"""What the pages say is so: trees, commands, links, make targets; and files stay of a size one can read."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from keel.cli.main import app

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
LINES_AT_MOST = 450
TREE_LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.-]+/?)(?: {2,}(?P<comment>.*))?$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


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
    return [text for kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def tree(page: Path) -> dict[str, str]:
    """The paths drawn in a page's tree, with their comments."""
    (drawing,) = [text for text in blocks(page, "") if "src/keel/" in text]
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
    """The modules and rooms of the package, and every folder of tests and docs."""
    names = [name_of(path) for path in project_files()]
    wanted = {"src/keel/"} | {n for n in names if re.fullmatch(r"src/keel/[a-z]\w*\.py", n)}
    for name in names:
        wanted |= {match[0] for match in [re.match(r"(src/keel/|tests/|docs/)\w+/", name)] if match}
        wanted |= {match[0] for match in [re.match(r"(tests|docs|bench)/", name)] if match}
    return wanted


@pytest.mark.parametrize("page", READMES, ids=name_of)
def test_the_tree_shows_the_folders_that_exist(page: Path) -> None:
    drawn = tree(page)
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


def test_recipes_in_the_pages_are_valid(tmp_path: Path) -> None:
    from keel.recipe import load

    for page in pages():
        for number, text in enumerate(blocks(page, "yaml")):
            file = tmp_path / f"{page.stem}-{number}.yaml"
            file.write_text(text, encoding="utf-8")
            load(str(file))


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


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [t.split("#")[0] for t in LINK.findall(text) if not re.match(r"[a-z]+:", t)]
    broken = [target for target in targets if target and not (page.parent / target).exists()]
    assert not broken, f"{name_of(page)} links to {broken}"


def test_files_can_be_held_in_the_head() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "src").rglob("*.py")}
    long = [f"{name_of(path)}: {lines} lines" for path, lines in sizes.items() if lines > LINES_AT_MOST]
    assert not long, f"split these (at most {LINES_AT_MOST} lines): {', '.join(long)}"


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
