"""Imports point one way, have no cycles inside a room either, and importing does nothing heavy.

Every `import` in `src/keel` counts, wherever it stands: at the top, inside a function, or under TYPE_CHECKING. A type
from a higher room is knowledge of that room, so no import is exempt. Two things are no imports of a room:
`keel.__version__`, a constant, and `keel.catalog`, which opens rooms by a name it is given; nobody else may do that.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(importlib.util.find_spec("keel").origin).parent  # type: ignore[union-attr, arg-type]

# Lowest first. Members of one layer do not know each other; a room's own files do.
LAYERS = [
    {"errors"},
    {"batching", "console", "in_memory", "openmp", "randomness", "renamed_keys", "report_tables"},
    {"catalog", "files", "parallel"},
    {"machine", "configs"},
    {"values"},
    {"interfaces"},
    {"text", "tokenizers"},
    {"layers", "corpus"},
    {"packers", "backbones"},
    {"objectives", "metrics"},
    {"tasks", "optimizers"},
    {"learner"},
    {"hugging_face"},
    {"training"},
    {"recipe"},
    {"recipes", "reporting", "web"},
    {"explain"},
    {"inference"},
    {"pretraining", "finetuning"},
    {"stages"},
    {"comparing", "demo", "serving"},
    {"api"},
    {"__init__"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {room: height for height, layer in enumerate(LAYERS) for room in layer}


def modules() -> dict[str, Path]:
    """Every module of the package: `keel.corpus.store` and where it is."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The part of a module's name that has a layer."""
    return module.split(".")[1] if "." in module else "__init__"


def imported(source: str, module: str, is_package: bool, known: set[str]) -> list[tuple[int, str]]:
    """The modules of the package that a source text imports, with the lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner != "keel.__version__":
                    found.append((node.lineno, inner if inner in known else base))
    return [(line, name) for line, name in found if name == "keel" or name.startswith("keel.")]


def may_import(importer: str, wanted: str) -> bool:
    ours, theirs = room(importer), room(wanted)
    return ours == theirs or HEIGHT[ours] > HEIGHT[theirs]


def violations(sources: dict[str, tuple[str, str]]) -> list[str]:
    """In: module -> (file, source). Out: one line per import that points up or sideways."""
    found = []
    for module, (file, source) in sources.items():
        for line, wanted in imported(source, module, file.endswith("__init__.py"), set(sources)):
            if not may_import(module, wanted):
                found.append(f"{file}:{line}: {module} must not import {wanted}")
    return found


def cycle(sources: dict[str, tuple[str, str]]) -> list[str]:
    """Modules of one room that import each other in a circle, the first one again at the end; empty: there are none."""
    graph: dict[str, set[str]] = {}
    for module, (file, source) in sources.items():
        wanted = {name for _, name in imported(source, module, file.endswith("__init__.py"), set(sources))}
        graph[module] = {name for name in wanted - {module} if room(name) == room(module)}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def sources() -> dict[str, tuple[str, str]]:
    """The file and the text of every module of the package."""
    return {m: (str(p.relative_to(PACKAGE.parent)), p.read_text(encoding="utf-8")) for m, p in modules().items()}


def test_every_room_has_a_layer() -> None:
    rooms = {room(module) for module in modules()}
    assert rooms <= set(HEIGHT), f"give {sorted(rooms - set(HEIGHT))} a place in LAYERS"
    assert rooms >= set(HEIGHT), f"LAYERS has rooms that do not exist: {sorted(set(HEIGHT) - rooms)}"


def test_imports_point_one_way() -> None:
    found = violations(sources())
    assert not found, "imports point from cli down to errors (docs/architecture.md):\n" + "\n".join(found)


def test_imports_inside_a_room_have_no_cycles() -> None:
    found = cycle(sources())
    assert not found, f"these modules import each other in a circle: {' <- '.join(found)}"


@pytest.mark.parametrize(
    ("module", "source", "forbidden"),
    [
        ("keel.text.readers", "import keel.corpus.store", "keel.corpus.store"),
        ("keel.errors", "def f():\n    from keel.catalog import find", "keel.catalog"),
        ("keel.corpus.stream", "if TYPE_CHECKING:\n    from keel.layers import attention", "keel.layers"),
        ("keel.training.loop", "from ..stages import pretrain", "keel.stages"),
        ("keel.inference.model", "import keel", "keel"),
        ("keel.inference.model", "from keel import load", "keel"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, forbidden: str) -> None:
    assert violations({module: ("keel/some.py", source)})[0].endswith(f"{module} must not import {forbidden}")


@pytest.mark.parametrize(
    "back",
    [
        "from keel.text.tables import read_table",
        "def f():\n    from keel.text.tables import read_table",
        "if TYPE_CHECKING:\n    from .tables import Rejected",
    ],
)
def test_a_cycle_is_found(back: str) -> None:
    given = {
        "keel.text.tables": ("keel/text/tables.py", "from keel.text import records"),
        "keel.text.records": ("keel/text/records.py", "from keel.text.readers import open_text"),
        "keel.text.readers": ("keel/text/readers.py", back),
    }
    assert set(cycle(given)) == set(given)
    del given["keel.text.records"]
    assert cycle(given) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("keel.corpus.build", "from keel import __version__"),
        ("keel.corpus.build", "from keel.corpus.store import Writer"),
        ("keel.corpus.build", "import numpy, keelhaul"),
        ("keel.cli.commands.fill", "import keel"),
    ],
)
def test_a_permitted_import_is_not_reported(module: str, source: str) -> None:
    assert violations({module: ("keel/some.py", source)}) == []


def test_only_the_catalog_imports_by_a_computed_name() -> None:
    users = []
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {getattr(node, "id", ""), getattr(node, "attr", "")}
            if names & {"import_module", "__import__"}:
                users.append(module)
    assert set(users) == {"keel.catalog"}


def loaded_by(*names: str) -> set[str]:
    """What a fresh interpreter has in memory after importing some modules."""
    code = f"import {', '.join(names)}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy() -> None:
    command_line = [module for module in modules() if room(module) in ("__init__", "cli")]
    heavy = {"torch", "numpy", "pydantic", "yaml", "rich", "jinja2", "tokenizers", "safetensors", "transformers"}
    assert not heavy & loaded_by(*command_line)


def test_building_a_corpus_does_not_load_torch() -> None:
    # Its memory would count once in every worker process.
    without_torch = [m for m in modules() if room(m) in ("text", "tokenizers")]
    without_torch += ["keel.corpus.build", "keel.stages.corpus", "keel.stages.tokenizer", "keel.stages.doctor"]
    assert not {"torch", "transformers"} & loaded_by(*without_torch)
