"""The folder is the registry: every file in `backbones/`, `tasks/`, `recipes/`, `cli/commands/`, ... is a member.

In: a room ("backbones") and a name. Out: the class of that member; for commands its `COMMAND`, for recipes a file.

A name is one of
- `bert`: the file `backbones/bert.py`. Dashes and underscores are the same.
- `./my_cnn.py`, or `./my_cnn.py:MyCnn`: a Python file of the user, relative to the working directory.
- `cnn`: a member of a plug-in file that was added (`add_plugin`; by `--plugin FILE`, `KEEL_PLUGINS` or a recipe's
  `plugins`), under the `kind` of its config, its `name`, or the file's name.
- the name of an entry point that an installed package has in the group `keel.backbones`; its value is a module, or a
  class in it. `keel.commands`: a module, or its `COMMAND`. `keel.recipes`: the path of a .yaml file or of a folder of
  them, each a recipe under its file name.

Notable choices
- Plug-in code is imported only if the user names its file, or if it is installed as an entry point. No folder is
  searched for plug-ins. A name that comes from a downloaded file must not be a path: check it with `is_path`.
- Installed packages are searched only if the folder has no such name, or to list a room.
- Base classes are compared by name: imports point one way, so the catalog imports nothing of the package but `errors`.
- A file is imported by itself, without its folder on the path: a plug-in of several files must be a package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from keel.errors import UserError, near, suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HERE = Path(__file__).parent
FOLDERS = {"commands": "cli/commands"}  # the others have the name of their room
BASES = {
    "backbones": "Backbone",
    "objectives": "Objective",
    "tasks": "Task",
    "packers": "Packer",
    "optimizers": "Optimizer",
}
PYTHON_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<member>\w+))?")


_plugins: dict[str, dict[str, Any]] = {}  # room -> name -> member, of the files that were added to this process


def add_plugin(file: str) -> list[tuple[str, str]]:
    """Registers all members that a Python file defines, by name. Returns their rooms and names."""
    module = _import_file(file)
    added = [(room, _own_name(kind, module, file), kind) for room in BASES for kind in _fitting(room, module)]
    if "COMMAND" in vars(module):
        added.append(("commands", name_of(file), vars(module)["COMMAND"]))
    if not added:
        raise UserError(f"{file}: defines no {', '.join(room.removesuffix('s') for room in BASES)} or COMMAND")
    for room, name, member in added:
        if name in _built_in(room) or _plugins.get(room, {}).get(name, member) is not member:
            raise UserError(f"{file}: another {room.removesuffix('s')} is already called '{name}'; rename yours")
        _plugins.setdefault(room, {})[name] = member
    return [(room, name) for room, name, _ in added]


def _own_name(kind: Any, module: ModuleType, file: str) -> str:
    """The name of a class: the `kind` of its config, or its `name`; else the file's name."""
    field = kind.Config.model_fields.get("kind")
    return str(field.default if field else vars(kind).get("name", name_of(file)))


def names(room: str, suffix: str | None = None) -> list[str]:
    """The names of a room's members: of its files, of plug-in files and of installed packages."""
    return sorted([*_built_in(room, suffix), *_plugins.get(room, {}), *_installed(room)])


def find(room: str, name: str) -> Any:
    """The class that a file of the room defines; for commands its `COMMAND`, for recipes the path of the file."""
    if room == "recipes":
        return _recipe(name)
    path = PYTHON_FILE.fullmatch(name)
    if path:
        return _member(room, _import_file(path["file"]), path["file"], path["member"])
    short = name_of(name)
    if short in _built_in(room):
        module = ".".join(("keel", *_folder(room).split("/"), short))
        return _member(room, importlib.import_module(module), module)
    if short in _plugins.get(room, {}):
        return _plugins[room][short]
    if short in _installed(room):
        return _load(room, _installed(room)[short])
    raise _unknown(room, name, names(room))


def known(room: str, name: str) -> bool:
    """Whether `find` accepts it: a path to a Python file, or a name in the room."""
    if room == "recipes":
        return name in _built_in(room) or name in _installed(room)
    short = name_of(name)
    return is_path(name) or any(short in some for some in (_built_in(room), _plugins.get(room, {}), _installed(room)))


def is_path(name: str) -> bool:
    """Whether a name is a path to a Python file, whose code `find` would run."""
    return PYTHON_FILE.fullmatch(name) is not None


def name_of(name: str) -> str:
    """The short form of a name: `my_cnn` for `./my_cnn.py` and `./my_cnn.py:MyCnn`, `masked_lm` for `masked-lm`."""
    path = PYTHON_FILE.fullmatch(name)
    return (Path(path["file"]).stem if path else name).replace("-", "_")


def _folder(room: str) -> str:
    return FOLDERS.get(room, room)


def _built_in(room: str, suffix: str | None = None) -> set[str]:
    suffix = suffix or (".yaml" if room == "recipes" else ".py")
    return {file.stem for file in (HERE / _folder(room)).glob(f"*{suffix}") if not file.stem.startswith("_")}


def _unknown(room: str, name: str, known: list[str]) -> UserError:
    hint = near(name, known) or f"{suggest(name, known)} If a plug-in defines it, add --plugin FILE"
    return UserError(f"there is no {room.removesuffix('s')} called '{name}'.{hint}")


def _recipe(name: str) -> Path:
    if name in _built_in("recipes"):
        return HERE / "recipes" / f"{name}.yaml"
    if name in _installed("recipes"):
        return Path(_installed("recipes")[name])
    raise _unknown("recipes", name, names("recipes"))


def _member(room: str, module: ModuleType, where: str, name: str | None = None) -> Any:
    """A module's member: the class that fits the room, or the one with this name; for commands its `COMMAND`."""
    members = vars(module)
    if room == "commands":
        name = name or "COMMAND"
        if name not in members:
            raise UserError(f"{where}: defines no {name}; a verb's file ends with COMMAND = common.Command(...)")
        return members[name]
    if name:
        if name not in members:
            raise UserError(f"{where}: defines no {name}.{near(name, members)}")
        return _checked(room, members[name], f"{where}:{name}")
    fitting = _fitting(room, module) or [c for c in _configured(module) if not _rooms(c)]
    if len(fitting) > 1:
        several = ", ".join(c.__name__ for c in fitting)
        raise UserError(f"{where}: defines several {room} ({several}); name one: {where}:{fitting[0].__name__}")
    if not fitting:
        raise UserError(f"{where}: defines no {room.removesuffix('s')}; {_needed(room)}")
    return fitting[0]


def _configured(module: ModuleType) -> list[type]:
    """The classes that a module defines with a `Config` of their own."""
    defined = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    return [c for c in dict.fromkeys(defined) if "Config" in vars(c)]


def _fitting(room: str, module: ModuleType) -> list[type]:
    return [c for c in _configured(module) if room in _rooms(c)]


def _rooms(kind: type) -> set[str]:
    """The rooms whose base class it extends; none for a class that only has the same methods (a Protocol)."""
    bases = {base.__name__ for base in kind.__mro__}
    return {room for room, base in BASES.items() if base in bases}


def _needed(room: str) -> str:
    return f"it needs a class that extends {BASES[room]} and has a Config of its own"


def _checked(room: str, kind: Any, where: str) -> Any:
    """Checks that a class can be a member of the room, and returns it."""
    fits = inspect.isclass(kind) and room in (_rooms(kind) or {room})
    if not fits or not any("Config" in vars(base) for base in kind.__mro__):
        raise UserError(f"{where}: not a valid {room.removesuffix('s')}; {_needed(room)}")
    return kind


def _import_file(name: str) -> ModuleType:
    """Imports a Python file as a module, once per file, so that its classes are always the same objects."""
    from hashlib import sha256

    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise UserError(f"{name}: no such file; give its path relative to {Path.cwd()}, or the full path")
    title = f"keel_plugin_{re.sub(r'[^0-9a-zA-Z_]', '_', file.stem)}_{sha256(os.fsencode(file)).hexdigest()[:12]}"
    if title not in sys.modules:
        spec = importlib.util.spec_from_file_location(title, file)
        assert spec and spec.loader, "a file that ends in .py has a loader"
        module = sys.modules[title] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[title]
            if isinstance(error, KeyboardInterrupt):
                raise
            raise _broken(name, error) from error
    return sys.modules[title]


@functools.cache
def _installed(room: str) -> dict[str, Any]:
    """The members that installed packages add to a room: entry points by name; for recipes the files they refer to."""
    from importlib.metadata import entry_points  # takes 30 ms to import

    taken = dict.fromkeys(_built_in(room), "of Keel's own")
    members: dict[str, Any] = {}
    for entry in entry_points(group=f"keel.{room}"):
        owner = f"of the package {entry.dist.name if entry.dist else '?'} ({entry.value})"
        for name, member in _recipes_of(entry) if room == "recipes" else [(name_of(entry.name), entry)]:
            if name in taken:
                raise UserError(
                    f"two {room} are called '{name}': one {taken[name]}, one {owner}; rename one, or uninstall it"
                )
            taken[name], members[name] = owner, member
    return members


def _recipes_of(entry: EntryPoint) -> Iterator[tuple[str, Any]]:
    """The recipe files that an entry point refers to, by name."""
    given = _import_entry(entry)
    if not isinstance(given, str | Path) or not Path(given).exists():
        raise UserError(f"{entry.value}: an entry point of keel.recipes is the path of a .yaml file or of a folder")
    place = Path(given)
    yield from ((file.stem, file) for file in (sorted(place.glob("*.yaml")) if place.is_dir() else [place]))


def _load(room: str, entry: EntryPoint) -> Any:
    loaded = _import_entry(entry)
    if inspect.ismodule(loaded):
        return _member(room, loaded, entry.value)
    return loaded if room == "commands" else _checked(room, loaded, entry.value)


def _import_entry(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise _broken(f"plug-in {entry.value}", error) from error


def _broken(what: str, error: BaseException) -> UserError:
    """One line for code that cannot be imported: the error, and the line of the plug-in that raised it."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__) if not _of_import(f.filename)]
    own = [(file, line) for file, line in frames if file == frames[0][0]]
    if isinstance(error, SyntaxError) and error.filename:
        own = [(error.filename, error.lineno)]
    place = f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
    return UserError(f"{what}: cannot be imported: {type(error).__name__}: {message}{place}")


def _of_import(file: str) -> bool:
    """Whether a frame is in this file or in Python's import system."""
    return file == __file__ or file.startswith(("<frozen", str(Path(importlib.__file__ or "").parent)))
