"""A server on 127.0.0.1 that answers as the Hugging Face hub does, as far as `keel fetch` and huggingface_hub ask it.

It lists repositories (`/api/models/...`), sends their files (`/<name>/resolve/<revision>/<file>`: small ones at once,
large ones from another host, in ranges), and keeps a log of what it was asked. A test can make it break connections,
change bytes, or ask for a token.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin", ".h5")  # stored with Git LFS
TOKEN = "hf_reader"


@dataclass
class Repository:
    files: dict[str, bytes]
    card: dict[str, Any] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    tags: tuple[str, ...] = ()

    @property
    def commit(self) -> str:
        content = "".join(f"{name} {oid(data)}\n" for name, data in sorted(self.files.items()))
        return hashlib.sha1(content.encode()).hexdigest()

    @staticmethod
    def of(folder: Path, **options: Any) -> Repository:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return Repository({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}, **options)


def oid(data: bytes) -> str:
    """Git's name for a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith(LARGE)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.aliases: dict[str, str] = {}  # old names
        self.log: list[Request] = []
        self.break_after: dict[str, list[int]] = {}  # by file: so many bytes, then the connection ends; one by one
        self.corrupt: set[str] = set()  # files of which one byte is sent wrong
        self.without_ranges = False
        self.failing = 0  # this status for everything

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def storage(self) -> str:
        """Where large files are: another host, as far as the name tells."""
        return f"http://localhost:{self.server_port}"

    def asked(self, method: str = "") -> list[str]:
        """The paths that were asked for."""
        return [request.path for request in self.log if method in ("", request.method)]

    def asked_for(self, part: str) -> list[Request]:
        return [request for request in self.log if part in request.path]


@contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *arguments: Any) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.log.append(Request(self.command, path, {name.lower(): value for name, value in self.headers.items()}))
        if hub.failing:
            return self._send(hub.failing, b"")
        if path.startswith("/cdn/"):
            _, _, name, file = path.split("/", 3)
            return self._file(hub.repositories[name.replace("--", "/")].files[file], file)
        if path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._listing(name, revision)
        name, found, rest = path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        return self._resolve(name, revision, file) if found else self._send(404, b"")

    def _repository(self, name: str, revision: str, contents: bool) -> Repository | None:
        """The repository; None if an error has been sent."""
        hub = self.server
        repository = hub.repositories.get(name)
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.headers.get("Authorization") and not known:
            self._send(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repository is None or (repository.private and not known):
            self._send(401, b'{"error": "Invalid username or password."}', {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("", "main", repository.commit, *repository.tags):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif contents and repository.gated and not known:
            self._send(401, b"{}", {"X-Error-Code": "GatedRepo"})
        else:
            return repository
        return None

    def _listing(self, name: str, revision: str) -> None:
        if name in self.server.aliases:
            query = urlsplit(self.path).query
            return self._send(307, b"", {"Location": f"/api/models/{self.server.aliases[name]}?{query}"})
        repository = self._repository(name, revision, contents=False)
        if repository is None:
            return None
        siblings = []
        for file, data in repository.files.items():
            entry: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": oid(data)}
            if is_large(file):
                entry["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
            siblings.append(entry)
        content = {"id": name, "sha": repository.commit, "siblings": siblings, "cardData": repository.card}
        return self._send(200, json.dumps(content).encode())

    def _resolve(self, name: str, revision: str, file: str) -> None:
        if name in self.server.aliases:
            return self._send(307, b"", {"Location": f"/{self.server.aliases[name]}/resolve/{revision}/{file}"})
        repository = self._repository(name, revision, contents=True)
        if repository is None:
            return None
        if file not in repository.files:
            return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repository.commit})
        data = repository.files[file]
        headers = {"X-Repo-Commit": repository.commit}
        if not is_large(file):
            return self._file(data, file, headers | {"ETag": f'"{oid(data)}"'})
        headers |= {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
        headers |= {"Location": f"{self.server.storage}/cdn/{name.replace('/', '--')}/{file}"}
        return self._send(302, b"", headers)

    def _file(self, data: bytes, file: str, headers: dict[str, str] | None = None) -> None:
        hub, start = self.server, 0
        if file in hub.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        given = self.headers.get("Range", "")
        if given and not hub.without_ranges:
            start = int(given.removeprefix("bytes=").rstrip("-"))
            headers = (headers or {}) | {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        limits = hub.break_after.get(file)
        broken = limits.pop(0) if limits and self.command == "GET" else None
        self._send(206 if start else 200, data[start:], headers or {}, broken)

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None, limit: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if limit is None else data[:limit])
        if limit is not None:
            self.wfile.flush()
            self.close_connection = True
