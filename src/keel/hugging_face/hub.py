"""The Hugging Face hub: the only file of Keel that connects to anything (extra `hub`).

In: a public name. Out: what the hub lists under it (files, sizes, checksums, licence), and the bytes of a file.

What is sent: the name, the files' names, Keel's version, a random number for each request, and the user's token if
there is one. Nothing else.

Notable choices
- The session of huggingface_hub is used, so its settings apply: HF_ENDPOINT, HF_TOKEN or the token of `hf auth login`,
  HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT, proxies. Its download functions are not: those of 2.4 tell the hub which
  program runs them, and begin a file anew after a kill.
- A connection that breaks off is continued where it ended; only without any progress does it end with an error.
- Every failure is one line that says what to do about it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from keel import __version__
from keel.configs import brief
from keel.errors import UserError
from keel.hugging_face.cache import COMMIT, MAIN, PublicName

TRIES = 5  # without a byte in between
LONGEST_WAIT = 8.0  # seconds between two tries
REASON = 200  # characters shown of another error
WEBSITE = "https://huggingface.co"


@dataclass(frozen=True)
class HubFile:
    name: str
    size: int
    checksum: str  # SHA-256 of a large file; of others git's SHA-1, which counts a header too


@dataclass(frozen=True)
class Listing:
    """What the hub has under a name."""

    name: PublicName
    repository: str  # its present name: old ones lead to it
    commit: str
    files: dict[str, HubFile]
    licence: str | None


class _BrokenOff(Exception):
    """The connection ended too early, or could not be opened."""


class Hub:
    """A connection to the hub."""

    def __init__(self) -> None:
        try:
            from huggingface_hub import __version__ as version
            from huggingface_hub import constants, errors, get_session, get_token

            if version.startswith("0."):  # its session has another interface
                raise ImportError
        except ImportError:
            raise UserError("models are fetched with huggingface_hub: pip install 'keel-nlp[hub]'") from None
        self.endpoint: str = constants.ENDPOINT
        if urlsplit(self.endpoint).scheme not in ("http", "https") or not urlsplit(self.endpoint).hostname:
            raise UserError(f"HF_ENDPOINT: {brief(self.endpoint)} is not an address such as {WEBSITE}")
        self._session: Callable[[], Any] = get_session
        self._timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        self._offline = errors.OfflineModeIsEnabled
        # The base of all errors of the library that connects, under whatever name huggingface_hub uses it.
        self._no_connection: Any = errors.HfHubHTTPError.__bases__[0]
        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        self._headers = {"User-Agent": f"keel/{__version__}"}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}

    def listing(self, name: PublicName) -> Listing:
        revision = "" if name.revision == MAIN else f"/revision/{quote(name.revision, safe='')}"
        address = f"{self.endpoint}/api/models/{name.repository}{revision}?blobs=true"
        try:
            with self._open(address, name, {}) as response:
                response.read()
                content = response.json()
            return _read_listing(content, name)
        except _BrokenOff as error:
            raise self._unreachable(error) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{self.endpoint}: its answer is not a list of files; is it the login page of a network, or is "
                "HF_ENDPOINT not a Hugging Face hub?"
            ) from None

    def receive(self, listing: Listing, file: HubFile, partial: Path, tell: Callable[[int], None]) -> None:
        """Completes a partial file. `tell` is called with the bytes that came, and less than zero for bytes lost."""
        address = f"{self.endpoint}/{listing.name.repository}/resolve/{listing.commit}/{quote(file.name)}"
        tries, have = 0, _size(partial)
        while have < file.size:
            try:
                self._append(address, listing.name, partial, tell)
                broken = _BrokenOff("the connection was closed")
            except _BrokenOff as error:
                broken = error
            tries = tries + 1 if _size(partial) <= have else 0
            have = _size(partial)
            if tries == TRIES:
                received = f"{have:,} of {file.size:,} bytes of {file.name} have been received"
                raise self._unreachable(broken, received) from None
            if have < file.size:
                time.sleep(min(2.0**tries, LONGEST_WAIT))

    def _append(self, address: str, name: PublicName, partial: Path, tell: Callable[[int], None]) -> None:
        start = _size(partial)
        # Without compression, because places in a file are counted in its own bytes.
        asked = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with self._open(address, name, asked) as response:
            if start and response.status_code != 206:  # the server sends the whole file
                tell(-start)
            try:
                with partial.open("ab" if response.status_code == 206 else "wb") as out:
                    for block in response.iter_bytes():
                        out.write(block)
                        tell(len(block))
            except OSError as error:  # of the disk; a failed write does not name its file
                raise OSError(error.errno, error.strerror, str(partial)) from None

    @contextlib.contextmanager
    def _open(self, address: str, name: PublicName, headers: dict[str, str]) -> Iterator[Any]:
        try:
            with self._session().stream(
                "GET", address, headers={**self._headers, **headers}, timeout=self._timeout, follow_redirects=True
            ) as response:
                if response.status_code >= 500:
                    raise _BrokenOff(f"it answers {response.status_code}")
                if response.status_code >= 400:
                    raise self._refused(response, name)
                yield response
        except self._offline:
            raise UserError(
                f"{name}: nothing can be fetched in offline mode; unset HF_HUB_OFFLINE (and TRANSFORMERS_OFFLINE)"
            ) from None
        except self._no_connection as error:
            raise _BrokenOff(f"no connection ({error or type(error).__name__})") from None

    def _unreachable(self, error: _BrokenOff, received: str = "") -> UserError:
        kept = f"; {received} and are kept: the same command goes on from there" if received else ""
        return UserError(
            f"{self.endpoint}: {' '.join(str(error).split())[:REASON]}{kept}. Check the network, a proxy (HTTPS_PROXY) "
            "and HF_ENDPOINT"
        )

    def _refused(self, response: Any, name: PublicName) -> UserError:
        """The error for an answer from 400 to 499. The hub explains these in a header."""
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        page = f"{WEBSITE}/{name.repository}"
        token = "Authorization" in self._headers
        if code == "GatedRepo":
            cure = "with the account of your token" if token else "then set HF_TOKEN to a token of your account"
            return UserError(f"{name}: its owner asks readers to accept terms: accept them at {page}, {cure}")
        if code == "RevisionNotFound":
            return UserError(f"{name}: the model has no branch, tag or commit '{name.revision}'; see {page}/tree/main")
        if code == "EntryNotFound":
            return UserError(f"{name}: a file that the hub lists is not there ({response.url.path}); try again")
        if status == 429:
            return UserError(f"{self.endpoint}: too many requests; try again later")
        if status == 401 and token and "credentials" in response.headers.get("X-Error-Message", ""):
            return UserError(f"{self.endpoint}: the token is refused; correct HF_TOKEN, or `hf auth login` again")
        if code == "RepoNotFound" or status in (401, 404):
            private = "your token does not open it" if token else "set HF_TOKEN if it is private"
            return UserError(
                f"{name.repository}: there is no public model of this name; correct it (search at {WEBSITE}/models), "
                f"or {private}"
            )
        return UserError(f"{name}: the hub refuses with status {status}; see {page}")


def _read_listing(content: dict[str, Any], name: PublicName) -> Listing:
    files = {}
    for entry in content["siblings"]:
        large = entry.get("lfs")
        size, checksum = (large["size"], large["sha256"]) if large else (entry["size"], entry["blobId"])
        file = HubFile(str(entry["rfilename"]), int(size), str(checksum).removeprefix("sha256:"))
        files[file.name] = file
    commit = str(content["sha"])
    if not COMMIT.fullmatch(commit):
        raise ValueError(commit)
    card = content.get("cardData") or {}
    return Listing(name, str(content.get("id") or name.repository), commit, files, _licence(card))


def _licence(card: dict[str, Any]) -> str | None:
    given = card.get("license")
    named = card.get("license_name") if given == "other" else None
    return ", ".join(map(str, given)) if isinstance(given, list) else str(named or given) if given else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
