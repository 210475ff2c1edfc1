"""The gate that every request passes: request id, host, key, size of the body, queue; then its figures and log line.

In: an ASGI request. Out: the application's answer, or a refusal before anything is read.

Notable choices
- Plain ASGI, because Starlette's middleware classes would put a task and a stream around every request.
- Without a key, a server on a loopback address answers only to loopback names: otherwise a web page could reach it
  through a host name that it points at 127.0.0.1 (DNS rebinding).
- The log is JSON lines; texts are in it only with --log-texts.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from keel.serving.errors import body_of, headers_of, status_of
from keel.serving.login import Answer, Login
from keel.serving.service import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPEN = {"/health", "/health/ready"}  # without a key
REQUEST_ID = re.compile(rb"[\w.:-]{1,100}")
UNKNOWN_ROUTE = "other"
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


class Gate:
    def __init__(self, app: Any, service: Service) -> None:
        self.app, self.service, self.settings = app, service, service.settings
        self._key = None if self.settings.api_key is None else self.settings.api_key.encode()
        self._login = None if self.settings.api_key is None else Login(self.settings.api_key)
        self._only_loopback = self._key is None and is_loopback(self.settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, headers = time.perf_counter(), dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        id = given.decode() if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        status, read = 0, 0

        async def receive_bounded() -> MutableMapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.settings.max_body:
                raise HTTPException(413, self._too_large())
            return message

        async def send_marked(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", id.encode()), *SECURITY]
                if self.service.draining or status == 413:
                    more.append((b"connection", b"close"))
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        self.service.waiting += 1
        try:
            refusal = self._refuse(scope, headers)
            if answer := await self._log_in(scope, headers, refusal, receive_bounded):
                await _send(send_marked, *answer)
            elif refusal:
                await _send_error(scope, send_marked, *refusal)
            else:
                await self.app(scope, receive_bounded, send_marked)
        except Exception as error:
            code, message = status_of(error)
            self._log_fault(id, error)
            if not status:
                await _send_error(scope, send_marked, code, message)
        finally:
            self.service.waiting -= 1
            self._account(scope, id, status, time.perf_counter() - began)

    def _too_large(self) -> str:
        return f"the body is larger than {self.settings.max_body:,} bytes; send fewer texts at a time"

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """The status and the reason, for a request that is not let in."""
        if self._only_loopback and not is_loopback(_host_name(headers.get(b"host", b"").decode("latin-1"))):
            return 403, "this server answers to loopback names only; --api-key opens it for other names"
        if self._key is not None and scope["path"] not in OPEN and not self._has_key(headers):
            return 401, "a key is needed: Authorization: Bearer KEY"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.settings.max_body:
            return 413, self._too_large()
        if scope["method"] == "POST" and self.service.batcher.full:
            return 429, "the server is overloaded: its queue is full; ask again later"
        return None

    async def _log_in(
        self, scope: Scope, headers: dict[bytes, bytes], refusal: tuple[int, str] | None, receive: Receive
    ) -> Answer | None:
        """The form for the key, for browsers that have none; the answer to the form."""
        if self._login is None or (refusal and refusal[0] != 401):
            return None
        if self._login.is_form(scope["method"], scope["path"], headers):
            return await self._login.try_key(headers, receive)
        visits = refusal and self._login.is_visit(scope["method"], scope["path"], headers)
        return self._login.form(headers) if visits else None

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        assert self._key is not None and self._login is not None
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = [bearer.strip() if scheme.lower() == b"bearer" else b"", headers.get(b"x-api-key", b"")]
        found = sum(hmac.compare_digest(self._key, one) for one in given)  # all are compared, whichever is right
        return found + self._login.knows(headers) > 0

    def _account(self, scope: Scope, id: str, status: int, seconds: float) -> None:
        path = scope["route"].path if "route" in scope else UNKNOWN_ROUTE
        self.service.metrics.answered(path, status, seconds)
        if not self.settings.quiet:
            line = {"event": "request", "id": id, "method": scope["method"], "route": path, "status": status}
            log({**line, "ms": round(1000 * seconds, 2), **scope.get("state", {}).get("log", {})})

    def _log_fault(self, id: str, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-6:]
        log(
            {
                "event": "error",
                "id": id,
                "error": type(error).__name__,
                "at": [f"{f.filename}:{f.lineno}" for f in where],
            }
        )


def log(line: dict[str, Any]) -> None:
    """One line of JSON on stderr; a reader that has gone away is no reason to stop serving."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    try:
        sys.stderr.write(orjson.dumps({"time": f"{now}Z", **line}).decode() + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


async def _send_error(scope: Scope, send: Send, status: int, message: str) -> None:
    content = orjson.dumps(body_of(scope["path"], status, message))
    await _send(send, status, {"content-type": "application/json", **headers_of(status)}, content)


async def _send(send: Send, status: int, headers: dict[str, str], content: bytes) -> None:
    given = {**headers, "content-length": str(len(content))}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
