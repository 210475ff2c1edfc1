"""A published model's files on their way into the local cache, in huggingface_hub's layout (`cache.py`).

In: the hub's listing, and names of files. Out: the snapshot's folder, where these files are whole.

Notable choices
- A file takes its name in the cache when its checksum is the one that the hub lists; until then it is a `.keel-partial`
  beside the blobs, which the next command continues.
- Files that are already in the cache, whoever stored them, are checked too, and not fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel.errors import UserError
from keel.files.folders import link_or_copy, sync, write_file
from keel.files.locks import locked
from keel.hugging_face.cache import hub_cache
from keel.hugging_face.hub import Hub, HubFile, Listing

PARTIAL = ".keel-partial"
HASHES = {40: "sha1", 64: "sha256"}  # by the length of their hexadecimal digits
BLOCK = 1 << 20
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Received:
    """Progress, in bytes."""

    done: int
    total: int
    file: str
    mb_per_second: float


class Download:
    """Use within `with download.alone():`, which keeps a second command from the same partial files."""

    def __init__(self, hub: Hub, listing: Listing, report: Callable[[Any], None] | None = None) -> None:
        self.hub, self.listing, self.report = hub, listing, report
        self.folder = listing.name.folder
        self.snapshot = self.folder / "snapshots" / listing.commit

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        blobs = self.folder / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        with locked(blobs, "set HF_HOME to another folder"):
            yield

    def get(self, names: Sequence[str]) -> Path:
        """Completes these files; returns the snapshot's folder."""
        wanted = [self.listing.files[name] for name in names]
        missing = [file for file in wanted if not self._is_stored(file)]
        total = sum(file.size for file in missing)
        done = sum(self._partial_size(file) for file in missing)
        check_space(hub_cache(), total - done, "set HF_HOME to a folder on another disk")
        began, before = time.monotonic(), done
        for file in missing:

            def tell(count: int, name: str = file.name) -> None:
                nonlocal done
                done += count
                if self.report:
                    speed = (done - before) / MEGABYTE / max(time.monotonic() - began, 1e-3)
                    self.report(Received(done, total, name, speed))

            self._fetch(file, tell)
        return self.snapshot

    def mark(self) -> None:
        """Makes the revision's name lead to this commit."""
        ref = self.folder / "refs" / self.listing.name.revision
        if self.listing.name.revision != self.listing.commit:
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_file(ref, self.listing.commit)

    def _blob(self, file: HubFile) -> Path:
        if not re.fullmatch(r"[0-9a-f]+", file.checksum) or len(file.checksum) not in HASHES:
            raise UserError(f"{self.listing.name}: the hub lists no checksum of {file.name}, so it cannot be verified")
        return self.folder / "blobs" / file.checksum

    def _partial(self, file: HubFile) -> Path:
        blob = self._blob(file)
        return blob.with_name(f"{blob.name}{PARTIAL}")

    def _partial_size(self, file: HubFile) -> int:
        partial = self._partial(file)
        return partial.stat().st_size if partial.exists() else 0

    def _is_stored(self, file: HubFile) -> bool:
        """Whether the snapshot has the file; its blob may be there from another revision."""
        path, blob = self.snapshot / file.name, self._blob(file)
        for stored in (path, blob):
            if stored.is_file():
                if checksum(stored, file.checksum) != file.checksum:
                    raise UserError(
                        f"{stored.resolve()}: damaged (its checksum is not the hub's, of {self.listing.name}, "
                        f"{file.name}); remove it and fetch the model again"
                    )
                if stored is blob:
                    _link(blob, path)
                return True
        return False

    def _fetch(self, file: HubFile, tell: Callable[[int], None]) -> None:
        blob, partial = self._blob(file), self._partial(file)
        partial.touch()
        self.hub.receive(self.listing, file, partial, tell)
        if partial.stat().st_size != file.size or checksum(partial, file.checksum) != file.checksum:
            partial.unlink()
            raise UserError(
                f"{self.listing.name}: the bytes of {file.name} that came do not have the hub's checksum, so they are "
                "dropped; run the same command again"
            )
        sync(partial)
        partial.replace(blob)
        _link(blob, self.snapshot / file.name)


def checksum(path: Path, like: str) -> str:
    """The file's checksum, of the same kind as another one."""
    kind = HASHES[len(like)]
    found = hashlib.new(kind, usedforsecurity=False)
    if kind == "sha1":  # git's, of a blob
        found.update(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def check_space(folder: Path, size: int, cure: str) -> None:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise UserError(
            f"{folder}: {size / MEGABYTE:,.1f} MB are needed, {free / MEGABYTE:,.1f} MB are free; free some space, or "
            f"{cure}"
        )


def _link(blob: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # a file system without such links, or a broken one of the same name
        link_or_copy(blob, path)
