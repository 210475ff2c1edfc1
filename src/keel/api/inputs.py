"""From what a caller of `keel` gives to what the stages take: folders, settings, files of texts and of rows.

Texts in memory are written to a file beside the output, because a corpus reads them more than once; so are the rows of
comparisons, whose runs may be processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keel.console import notebook_line, say
from keel.errors import UserError

PathLike = str | os.PathLike[str]
Settings = Mapping[str, Any] | Sequence[str]

RUNS = "runs"  # the folder of results that were given no other


def report(quiet: bool) -> Callable[[Any], None] | None:
    """What a stage tells: lines of text, and in a notebook one line that shows how far it has got."""
    line = None if quiet else notebook_line()
    if line is None:
        return None if quiet else lambda update: say(update) if isinstance(update, str) else None

    def tell(update: Any) -> None:
        if isinstance(update, str):
            line.note(update)
        else:
            line.show("  ".join(_parts(update)))
            if update.done == update.total:
                line.flush()

    return tell


def _parts(update: Any) -> Iterator[str]:
    """A progress value in words: `37 %`, `documents 1,234`, `tokens 5,678`."""
    values = asdict(update)
    done, total = values.pop("done"), values.pop("total")
    yield f"{done / total:.0%}" if total else f"{done:,}"
    yield from (f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in values.items())


def recipe_name(recipe: str) -> str:
    return Path(recipe).stem


def output(out: PathLike | None, name: str, quiet: bool, resume: bool = False) -> Path:
    """The folder to write: `runs/NAME-1`, or the next number, if none is given."""
    if out is not None:
        return Path(out)
    if resume:
        raise UserError("resume=True needs out=..., the folder of the run to continue")
    number = 1
    while (target := Path(RUNS) / f"{name}-{number}").exists():
        number += 1
    if not quiet:
        say(f"out: {target}")
    return target


def overrides(settings: Settings) -> list[str]:
    """`{"training.epochs": 4}` as `training.epochs=4`."""
    if isinstance(settings, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    if isinstance(settings, str):
        raise UserError(f"settings: give a dictionary, such as {{'training.epochs': 4}}, not {settings!r}")
    return list(settings)


def column_name(column: str | int | None) -> str | None:
    return None if column is None else str(column)


def model_folder(model: Any) -> str:
    """The folder of a model, which must not have been changed since it was opened."""
    from keel.inference.model import Model

    if not isinstance(model, Model):
        return os.fspath(model)
    if model.changed:
        raise UserError(f"{model.path}: the model was changed since it was opened; save it with model.save(DIR) first")
    return str(model.path)


def data_file(data: Any, target: Path, name: str) -> str:
    """A path as it is; rows in memory as a file in a folder beside `target`."""
    from keel.files.folders import write_file
    from keel.in_memory import MemoryTable, as_source

    source = as_source(data, name)
    if not isinstance(source, MemoryTable):
        return source
    path = target.with_name(f"{target.name}-data") / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, fields, reason in source.records():
        if reason:
            raise UserError(f"{source}, row {number}: {reason}")
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    write_file(path, "".join(lines))
    return str(path)


@contextlib.contextmanager
def text_files(texts: Any, column: str, out: Path) -> Iterator[list[str]]:
    """The paths as given; texts in memory in a file beside `out`, which is removed at the end."""
    if isinstance(texts, str | os.PathLike):
        yield [os.fspath(texts)]
        return
    if isinstance(texts, list | tuple) and texts and all(isinstance(one, os.PathLike) for one in texts):
        yield [os.fspath(one) for one in texts]
        return
    if isinstance(texts, list | tuple) and texts and all(isinstance(t, str) and _is_path(t) for t in texts):
        raise UserError("texts: these are names of files; give pathlib.Path objects, or one path or glob as a str")
    spool = out.with_name(f"{out.name}.texts.jsonl")
    spool.parent.mkdir(parents=True, exist_ok=True)
    try:
        with spool.open("w", encoding="utf-8", errors="surrogatepass") as file:
            for text in _texts(texts, column):
                file.write(json.dumps({column: text}) + "\n")
        yield [str(spool)]
    finally:
        spool.unlink(missing_ok=True)


def _is_path(text: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return len(text) < 1000 and Path(text).exists()
    return False


def _texts(texts: Any, column: str) -> Iterable[Any]:
    """The texts one by one; those of an iterator are never all in memory."""
    from keel.in_memory import as_source, is_table

    if isinstance(texts, Iterable) and not is_table(texts):
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(f"texts, number {number}: a text is needed, not a {type(text).__name__}")
            yield text
        return
    for number, fields, reason in as_source(texts, "texts").records():  # type: ignore[union-attr]  # never a path
        if reason or column not in fields:
            raise UserError(f"texts, row {number}: {reason or f'there is no column {column!r}'}; choose with column=")
        yield fields[column]
