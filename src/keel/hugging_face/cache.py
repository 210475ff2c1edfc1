"""Published models in the local Hugging Face cache, opened by their names without any network.

In: what was given as a model: a folder, or a public name such as `google/electra-small-discriminator`, perhaps with
`@revision`. Out: the folder, or the name's snapshot in the cache.

The layout is that of huggingface_hub: `models--google--electra-small-discriminator/` with `refs/main` (a commit),
`snapshots/<commit>/` (the files, as links) and `blobs/` (what the links lead to, named by checksum).

Notable choices
- Only this layout is read; nothing is imported that could connect. `keel fetch` (`hub.py`) is what fills the cache.
- Whatever exists under the given path wins over a name.
- Links to files are followed, in snapshots as in any folder: a manifest vouches for contents, wherever they are stored.
  Nothing is written into a snapshot.
- A snapshot that lacks files is an error: another program may have stored only the tokenizer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keel.errors import UserError, near
from keel.files.folders import read_json

MAIN = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
NAME = re.compile(rf"(?P<repository>(?:{PART}/)?{PART})(?:@(?P<revision>[A-Za-z0-9_][A-Za-z0-9_./-]*))?")
FOLDER = "models--"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class PublicName:
    """`repository` may have an owner: `bert-base-uncased`, `google/electra-small-discriminator`."""

    repository: str
    revision: str = MAIN  # a branch, a tag or a commit

    @staticmethod
    def parse(given: str) -> PublicName | None:
        """None if it cannot be a public name."""
        found = NAME.fullmatch(given)
        if found is None or len(given) > 200 or ".." in given or "--" in found["repository"]:
            return None
        return PublicName(found["repository"], found["revision"] or MAIN)

    def __str__(self) -> str:
        return self.repository if self.revision == MAIN else f"{self.repository}@{self.revision}"

    @property
    def folder(self) -> Path:
        """Where the cache keeps it."""
        return hub_cache() / (FOLDER + self.repository.replace("/", "--"))

    def snapshot(self) -> Path | None:
        """The folder of its revision's files; None: the cache does not have this revision."""
        commit = self.revision
        ref = self.folder / "refs" / self.revision
        if ref.is_file():
            commit = ref.read_text(encoding="utf-8", errors="replace").strip()
        folder = self.folder / "snapshots" / commit
        return folder if COMMIT.fullmatch(commit) and folder.is_dir() else None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the cache, from the variables that huggingface_hub reads."""
    home = environment.get("XDG_CACHE_HOME") or str(Path("~") / ".cache")
    home = environment.get("HF_HOME") or str(Path(home) / "huggingface")
    given = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")
    return Path(os.path.expandvars(given)).expanduser()


def find_folder(given: str | Path) -> Path:
    """The folder of a model or a tokenizer. A path that is neither there nor in the cache is returned as it is."""
    name, path = PublicName.parse(os.fspath(given)), Path(given)
    return (name.snapshot() if name and not path.exists() else None) or path


def find_model(given: str | Path) -> Path:
    """The same for a model, of which the cache must have every part."""
    folder = find_folder(given)
    lacking = missing_file(folder) if folder != Path(given) else ""
    if lacking:
        raise UserError(
            f"{given}: the local cache has only a part of it ({folder / lacking} is missing); "
            f"`keel fetch {given}` completes it"
        )
    return folder


def missing_file(snapshot: Path) -> str:
    """A file without which a snapshot is no model; empty if all are there."""
    broken = sorted(path.name for path in snapshot.iterdir() if not path.exists())
    if not (snapshot / "config.json").is_file():
        return "config.json"
    if broken:
        return broken[0]
    if (snapshot / INDEX).is_file():
        index = read_json(snapshot / INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        names = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
        return next((name for name in names if not (snapshot / name).is_file()), "")
    stored = any((snapshot / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))
    return "" if stored else "model.safetensors"


def how_to_fetch(given: str | Path) -> str:
    """The end of the message about a model that is not there."""
    name = PublicName.parse(os.fspath(given))
    if name is None:
        return " A published model: `keel fetch NAME`, then give its folder"
    return f"{_cached_like(name)} If it is the name of a published model: `keel fetch {name}`"


def _cached_like(name: PublicName) -> str:
    """A suggestion: a cached model of the same name with another owner, or of nearly the same name."""
    folders = (path.name.removeprefix(FOLDER) for path in hub_cache().glob(f"{FOLDER}*") if path.is_dir())
    cached = sorted(folder.replace("--", "/", 1) for folder in folders)
    if name.repository in cached:
        return " The local cache has other revisions of it."
    last = name.repository.rpartition("/")[2]
    same = [known for known in cached if known.rpartition("/")[2] == last]
    hint = f" Did you mean '{same[0]}'?" if same else near(name.repository, cached, 0.8)
    return f"{hint.removesuffix('?')}, which is in the local cache?" if hint else ""
