"""Folders that cannot be half written, and are checked before they are used.

In: files written by a stage. Out: a folder with `manifest.json` (what made it, SHA-256 of every file), or the folder
that was there before. A folder is written under a temporary name, fsynced and renamed, so a crash at any moment leaves
either the old state or the new one; leftovers of a crash start with TEMPORARY and are removed by the next writer.

Notable choices
- Checksums are verified on every load: silent corruption in a long run costs more than the second it takes.
- Tensors travel in safetensors only. Pickle is read in one place (`read_tensors`), only when asked for by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keel.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
TEMPORARY = ".writing-"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Asks the operating system to put a file or folder on disk for good."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes | str) -> None:
    """Replaces a file's content in one step."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    temporary.write_bytes(data.encode() if isinstance(data, str) else data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def check_free(out: Path) -> None:
    """Refuses to write over anything: `out` must not be there, or be an empty folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: already there and not an empty folder; remove it or choose another --out")


def check_absent(file: Path, option: str = "--out") -> None:
    """The same for a file."""
    if file.exists():
        raise UserError(f"{file}: already there; remove it or choose another {option}")


def write_manifest(
    folder: Path, made_by: dict[str, Any], pattern: str = "**/*", leave_out: tuple[str, ...] = ()
) -> None:
    """Lists the files below the folder with their size and SHA-256; files are synced first."""
    files = {}
    for path in sorted(p for p in folder.glob(pattern) if p.is_file() and p.name not in (MANIFEST, *leave_out)):
        sync(path)
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    write_file(folder / MANIFEST, json.dumps({"made_by": made_by, "files": files}, indent=2, ensure_ascii=False))


@contextlib.contextmanager
def write_folder(target: Path, made_by: dict[str, Any]) -> Iterator[Path]:
    """Yields a temporary folder that becomes `target` when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY}{target.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        write_manifest(temporary, made_by)
        sync(temporary)
        before = target.parent / f"{TEMPORARY}old-{target.name}"
        if target.exists():
            target.rename(before)
        temporary.rename(target)
        sync(target.parent)
        shutil.rmtree(before, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def verify_folder(folder: Path) -> dict[str, Any]:
    """Checks every file against the manifest and returns it; the error names the file that does not fit."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise UserError(f"{folder}: there is no {MANIFEST}; this folder was not finished, or not written by Keel")
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in content["files"].items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise UserError(f"{manifest}: damaged (not the JSON Keel wrote); restore the folder from a copy") from None
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: missing, though {MANIFEST} lists it; restore it from a copy")
        if (path.stat().st_size, sha256(path)) != expected:
            raise UserError(f"{path}: damaged (its SHA-256 is not the one in {MANIFEST}); restore it from a copy")
    return content


def link_or_copy(path: Path, target: Path) -> None:
    """Puts a file at `target` too, in one step; linked where the file system has links."""
    temporary = target.with_name(f"{TEMPORARY}{target.name}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:  # a file system without links
        shutil.copyfile(path, temporary)
    temporary.replace(target)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file with the permissions any other new file would have (the library makes it private)."""
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)


def read_tensors(folder: Path, name: str = "model", pickle: bool = False) -> dict[str, Tensor]:
    """The tensors of `name.safetensors`, or of its shards. `pickle=True` also opens `pytorch_model.bin`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index = folder / f"{name}.safetensors.index.json"
    paths = [folder / f"{name}.safetensors"]
    if index.is_file():
        paths = [folder / n for n in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    tensors: dict[str, Tensor] = {}
    for path in paths:
        if not path.is_file():
            return _read_pickled(folder, path, pickle)
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read as safetensors ({error}); restore it from a copy") from None
    return tensors


def _read_pickled(folder: Path, wanted: Path, allowed: bool) -> dict[str, Tensor]:
    import torch

    path = folder / "pytorch_model.bin"
    if not path.is_file():
        raise UserError(f"{wanted}: no such file; is {folder} a model folder?")
    if not allowed:
        raise UserError(f"{path} is a pickle, which Keel opens only when asked: add --allow-pickle if you trust it")
    tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors
