"""An output file that is written piece by piece, survives a crash, and appears under its name only when it is complete.

In: pieces of bytes, each with the state that holds after it (JSON: rows done, counts). Out: the file. Until it is
complete, a folder beside it, `NAME.partial`, holds the pieces in `data` and in `journal.json` how many of their bytes
count, the last state, and what the output is made from.

Notable choices
- The data are synced, then the journal is written, every SYNC_SECONDS and when the work stops. What was written after
  the last journal is cut off before the work continues, so a kill costs a few seconds of work and nothing else.
- The work is only continued with the same sources. A source is compared by its fingerprint and named in the error.
- The journal has the SHA-256 of the data: pieces that were damaged or edited are refused.
- An existing output is never replaced. If the last kill came between the final name and the end of the clean-up, the
  journal says so, and nothing is left to do.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from keel.errors import UserError
from keel.files.folders import TEMPORARY, check_absent, publish_file, read_json, sha256, write_file
from keel.files.locks import LOCK, locked

PARTIAL = ".partial"
JOURNAL, DATA = "journal.json", "data"
FORMAT = 1
SYNC_SECONDS = 2.0


class _Kept(NamedTuple):
    """What the journal says of the data. Replaced in one step, so that no signal finds it half changed."""

    size: int
    hash: Any  # of hashlib, of the data
    state: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Something that the output depends on."""

    role: str  # "data", in errors: was begun with other data than ...
    name: str  # as the user knows it
    fingerprint: str


class Growing:
    """`state` holds for the data so far; empty if nothing was written yet. `complete`: the output has its name."""

    def __init__(self, out: Path, folder: Path, sources: Sequence[Source], journal: dict[str, Any] | None) -> None:
        self.out, self.folder, self.data = out, folder, folder / DATA
        self._sources = {source.role: source.fingerprint for source in sources}
        journal = journal or {"bytes": 0, "state": {}, "published": None}
        self._published: str | None = journal["published"]  # the SHA-256 of what has the final name, or is getting it
        self.complete = self._published is not None and out.is_file() and sha256(out) == self._published
        self.discarded = False
        self._kept = _Kept(journal["bytes"], hashlib.sha256(), journal["state"])
        self._file: IO[bytes] | None = None
        self._saved = time.monotonic()
        if not self.complete:
            self._open(journal.get("sha256"))

    @property
    def state(self) -> dict[str, Any]:
        return self._kept.state

    def append(self, piece: bytes, state: dict[str, Any]) -> None:
        """Adds a piece, after which `state` holds."""
        assert self._file is not None, "the output is not complete yet"
        rest = memoryview(piece)
        while rest:  # unbuffered, so that nothing is left to be written when the disk is full
            rest = rest[self._file.write(rest) :]
        hashed = self._kept.hash.copy()
        hashed.update(piece)
        self._kept = _Kept(self._kept.size + len(piece), hashed, state)
        if time.monotonic() - self._saved >= SYNC_SECONDS:
            self.save()

    def save(self) -> None:
        """Syncs the data and writes the journal."""
        size, hashed, state = self._kept
        if self._file is not None:
            self._file.truncate(size)  # half a piece, if the disk was full: the journal needs its room
            os.fsync(self._file.fileno())
        entry = {"format": FORMAT, "sources": self._sources, "bytes": size, "sha256": hashed.hexdigest()}
        text = json.dumps(entry | {"published": self._published, "state": state}, indent=2)
        write_file(self.folder / JOURNAL, text)
        self._saved = time.monotonic()

    def publish(self, file: Path | None = None) -> None:
        """The file, default the data, becomes the output."""
        file = file or self.data
        self._published = sha256(file)
        self.save()
        publish_file(file, self.out)
        self.complete = True

    def discard(self) -> None:
        """What was written is worthless: the folder will be removed."""
        self.discarded = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def clear(self) -> None:
        """Removes everything but the data and their journal."""
        for path in self.folder.iterdir():
            if path.name not in (DATA, JOURNAL, LOCK):
                path.unlink()

    def remove(self) -> None:
        """Removes what is in the folder; the journal last, so that a kill in between leaves a folder that is known."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path.name == JOURNAL):
            if path.name != LOCK:
                path.unlink()

    def _open(self, expected: str | None) -> None:
        size, hashed, _ = self._kept
        self._file = self.data.open("r+b" if size else "w+b", buffering=0)
        left = size
        while left and (block := self._file.read(min(left, 1 << 20))):
            hashed.update(block)
            left -= len(block)
        if size and hashed.hexdigest() != expected:
            self.close()
            raise UserError(f"{self.folder}: damaged (its data are not those of its {JOURNAL}); remove it, begin again")
        self._file.truncate(size)
        self._file.seek(size)


def check_growing(out: Path, resume: bool) -> None:
    """Raises if `growing` would refuse to begin, as far as that is known without the sources."""
    folder = _folder(out)
    if not resume and (folder / JOURNAL).is_file():
        raise UserError(
            f"{folder}: holds the unfinished work for {out.name}; add --resume to continue it, or remove this folder"
        )
    if not folder.is_dir() or not resume:
        check_absent(out)
        if folder.exists() and not folder.is_dir():
            raise UserError(
                f"{folder}: this name is needed for unfinished work; move the file, or choose another --out"
            )


@contextlib.contextmanager
def growing(out: Path, sources: Sequence[Source], resume: bool) -> Iterator[Growing]:
    """The output `out`, new or, with `resume`, continued. The folder beside it is removed when the output is complete,
    and stays, with everything up to the last piece, if the block ends with an error."""
    check_growing(out, resume)
    folder = _folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder):
            target = _begin(out, folder, sources, resume)
            try:
                yield target
            except BaseException:
                with contextlib.suppress(OSError):
                    target.clear()  # the disk may be full, and the journal needs some room
                    target.save()
                raise
            finally:
                target.close()
                if target.complete or target.discarded or not target.state:
                    target.remove()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if (folder / JOURNAL).is_file():
            cure = f"what was done is kept in {folder}. Free some space, then add --resume"
        else:
            cure = "free some space and run the same command again"
        raise UserError(f"{out}: no space left on the disk; {cure}") from None
    finally:
        with contextlib.suppress(OSError):  # not empty: unfinished work
            folder.rmdir()


def _folder(out: Path) -> Path:
    return out.with_name(out.name + PARTIAL)


def _begin(out: Path, folder: Path, sources: Sequence[Source], resume: bool) -> Growing:
    journal = _read_journal(folder)
    if journal is None:
        strange = [path.name for path in folder.iterdir() if not path.name.startswith(TEMPORARY) and path.name != LOCK]
        if strange and strange != [DATA]:  # the data are there before the first journal
            raise UserError(f"{folder}: holds no unfinished work of Keel; move it away, or choose another --out")
        check_absent(out)
    else:
        check_growing(out, resume)  # again: another process may have begun since then, and stopped
        for source in sources:
            if journal["sources"].get(source.role) != source.fingerprint:
                raise UserError(
                    f"{folder}: was begun with other {source.role} than {source.name}; continue with the same, or "
                    "remove this folder to begin again"
                )
    for left in folder.glob(f"{TEMPORARY}*"):
        left.unlink()
    target = Growing(out, folder, sources, journal)
    if not target.complete:
        check_absent(out)
    return target


def _read_journal(folder: Path) -> dict[str, Any] | None:
    path = folder / JOURNAL
    if not path.is_file():
        return None
    journal = read_json(path)
    keys = {"format": int, "sources": dict, "bytes": int, "state": dict, "sha256": str}
    if not isinstance(journal, dict) or not all(isinstance(journal.get(key), kind) for key, kind in keys.items()):
        raise UserError(f"{path}: damaged; remove the folder and begin again")
    if journal["format"] != FORMAT:
        raise UserError(f"{path}: was written by another version of Keel; remove the folder and begin again")
    return {"published": None} | journal
