"""Atomic writing of files and folders, and verification before they are used.

In: files written by a stage. Out: a folder with `manifest.json` (what made it, SHA-256 of every file), or the folder
that was there before. Everything is written under a temporary name, fsynced and renamed, so a crash at any moment
leaves either the old state or the new one.

Notable choices
- Nothing is removed that this program did not write. A finished folder is renamed only to a free name or over an empty
  folder; if something else has appeared there in the meantime, the result gets the next free name.
- Temporary names are unique and created exclusively: no link is followed, and two writers never share one. A writer
  holds a lock on its temporary folder, so the next one can tell leftovers of a crash, which it removes, from work in
  progress.
- Checksums are verified on every load: silent corruption in a long run costs more than the second that this takes. A
  file that the manifest does not list is never read. Files for people (FOR_PEOPLE) may be edited.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.files.locks import try_lock

MANIFEST = "manifest.json"
TEMPORARY = ".writing-"
FOR_PEOPLE = ("README.md", "report.html", "metrics.jsonl")  # listed in the manifest, but not verified
JSON_BYTES = 1 << 28


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flushes a file or folder to disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------------------------------------
# Files


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a new empty file, which replaces `path` when the block ends without an error."""
    with _temporary_file(path) as temporary:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)


@contextlib.contextmanager
def creating(path: Path) -> Iterator[Path]:
    """The same for a file that must not exist yet; one that has appeared in the meantime is left unchanged."""
    with _temporary_file(path) as temporary:
        yield temporary
        publish_file(temporary, path)


def publish_file(file: Path, path: Path) -> None:
    """Gives a complete file its final name, which must be free; `file` may keep its own name too."""
    sync(file)
    try:
        os.link(file, path)  # fails if `path` exists; a rename would replace it
    except FileExistsError:
        raise UserError(f"{path}: appeared during this run and was left unchanged; choose another name") from None
    except OSError:  # a file system without links
        check_absent(path)
        file.rename(path)
    sync(path.parent)


@contextlib.contextmanager
def _temporary_file(path: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f"{TEMPORARY}{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it readable by the owner only
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, data: bytes | str) -> None:
    """Replaces a file's content atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


def link_or_copy(path: Path, target: Path) -> None:
    """Makes a file available at `target` too, atomically; as a hard link if the file system has them."""
    if target.exists() and target.samefile(path):  # renaming one link over another of the same file does nothing
        return
    with replacing(target) as temporary:
        temporary.unlink()
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)


@contextlib.contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Converts errors of Rust libraries about a full or broken disk, which have the errno in their text, to OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        number = re.search(r"\(?os error (\d+)\)?", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def _umask() -> int:
    """The permission bits that new files do not get; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def check_free(out: Path) -> None:
    """Raises unless `out` is absent or an empty folder, and can be written: nothing is ever overwritten."""
    if out.is_symlink() and not out.exists():
        raise UserError(f"{out}: a link to {out.readlink()}, which does not exist; remove it or choose another --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: already there and not an empty folder; remove it or choose another --out")
    _check_writable(out)


def check_absent(file: Path, option: str = "--out") -> None:
    """The same for a file."""
    if file.exists() or file.is_symlink():
        raise UserError(f"{file}: already there; remove it or choose another {option}")
    _check_writable(file, option)


def _check_writable(path: Path, option: str = "--out") -> None:
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise UserError(f"{there}: is a file, so nothing can be written below it; choose another {option}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there}: no permission to write; choose another {option} or change its permissions")


# ---------------------------------------------------------------------------------------------------------------------
# Folders


@contextlib.contextmanager
def write_folder(target: Path, made_by: dict[str, Any]) -> Iterator[Path]:
    """Yields a temporary folder that becomes `target` when the block ends without an error."""
    target = Path(os.path.realpath(target))  # a link to an empty folder stays a link
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{target.name}-", dir=target.parent))
    try:
        temporary.chmod(0o777 & ~_umask())
        with try_lock(temporary):
            yield temporary
            write_manifest(temporary, made_by)
            sync(temporary)
            _publish(temporary, target)
            sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, target: Path) -> None:
    """Renames without replacing: the operating system lets a folder replace only an empty one."""
    for number in itertools.count(1):
        name = target if number == 1 else target.with_name(f"{target.name}-{number}")
        try:
            temporary.rename(name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            continue
        if number > 1:
            raise UserError(f"{target}: appeared during this run and was left unchanged; the result is in {name}")
        return


def _remove_leftovers(target: Path) -> None:
    """Removes temporary folders of crashed writers."""
    for left in target.parent.glob(f"{TEMPORARY}{target.name}-*"):
        if left.is_dir() and not left.is_symlink():
            with try_lock(left) as locked:
                if locked:
                    shutil.rmtree(left, ignore_errors=True)


def remove_temporary(folder: Path) -> None:
    """Removes leftovers of a crash from a folder that the caller has locked."""
    for left in sorted(folder.rglob(f"{TEMPORARY}*"), reverse=True):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif not left.is_symlink():
            left.unlink()


# ---------------------------------------------------------------------------------------------------------------------
# The manifest


def write_manifest(folder: Path, made_by: dict[str, Any], pattern: str = "**/*") -> None:
    """Lists the files below the folder with their size and SHA-256; files are synced first."""
    files = {}
    for path in sorted(p for p in folder.glob(pattern) if p.is_file()):
        if path.name != MANIFEST and not path.name.startswith(TEMPORARY):
            sync(path)
            files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    write_file(folder / MANIFEST, json.dumps({"made_by": made_by, "files": files}, indent=2))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest: `made_by`, and `files` with (bytes, sha256) by name."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder}: there is no {MANIFEST}; this folder is unfinished, or was not written by Keel")
    try:
        content = read_json(path)
        files = {str(name): (entry["bytes"], entry["sha256"]) for name, entry in content["files"].items()}
    except (KeyError, AttributeError, TypeError):
        raise UserError(f"{path}: damaged (not the JSON Keel wrote); restore the folder from a copy") from None
    if outside := next((name for name in files if name.startswith("/") or ".." in name.split("/")), None):
        raise UserError(f"{path}: lists {outside!r}, which is not in the folder; restore the folder from a copy")
    return {"made_by": content.get("made_by"), "files": files}


def verify_folder(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Checks files against the manifest and returns it; the error names the file that differs."""
    manifest = read_manifest(folder)
    for name, expected in manifest["files"].items():
        path = folder / name
        if name in FOR_PEOPLE or not wanted(name):
            continue
        advice = (
            "resume its run, or restore it from a copy"
            if (folder / "checkpoints").is_dir()
            else "restore it from a copy"
        )
        if not path.is_file():
            raise UserError(f"{path}: missing, though {MANIFEST} lists it; {advice}")
        if (path.stat().st_size, sha256(path)) != expected:
            raise UserError(f"{path}: damaged (its SHA-256 is not the one in {MANIFEST}); {advice}")
    return manifest


class SealedFiles:
    """The files of a folder that may be read: those its manifest lists, verified; all, if it has no manifest."""

    def __init__(self, folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
        self.folder = folder
        self.names: frozenset[str] | None = None
        if (folder / MANIFEST).is_file():
            self.names = frozenset(verify_folder(folder, wanted)["files"])

    def find(self, name: str) -> Path | None:
        """The file; None if there is none, or if the manifest does not list it."""
        listed = self.names is None or name in self.names
        return self.folder / name if listed and (self.folder / name).is_file() else None


def fingerprint(folder: Path) -> str:
    """Identifies the content of a folder: its manifest, or the files directly in it if it has none."""
    if (folder / MANIFEST).is_file():
        return sha256(folder / MANIFEST)
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name not in FOR_PEOPLE)
    return hashlib.sha256("\n".join(f"{name} {sha256(folder / name)}" for name in names).encode()).hexdigest()


def read_json(path: Path) -> Any:
    """The content of a JSON file. Files that are damaged, too large or nested too deeply raise a UserError."""
    if path.stat().st_size > JSON_BYTES:
        raise UserError(f"{path}: {path.stat().st_size >> 20} MB of JSON; Keel reads up to {JSON_BYTES >> 20}")
    try:
        return json.loads(path.read_bytes(), object_pairs_hook=without_duplicates)
    except RecursionError:
        raise UserError(f"{path}: nested too deeply to be read; restore it from a copy") from None
    except ValueError as error:
        reason = str(error) if isinstance(error, DuplicateKey) else "not valid JSON"
        raise UserError(f"{path}: damaged ({reason}); restore it from a copy") from None


class DuplicateKey(ValueError):
    """A JSON object has a key twice, so that two parsers may read different values."""


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateKey(f"the key {next(n for n in content if names.count(n) > 1)!r} occurs twice")
    return content
