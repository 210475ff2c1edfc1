"""A client made of sockets, for what no HTTP library sends, and for many requests at once.

In: a running server. Out: answers as they came. One process can hold thousands of these connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

FULL = os.environ.get("KEEL_FAULTS") == "all"
FAILED = 0  # the status of a request that got no answer


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A connection that is kept: `await connection.ask(...)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @staticmethod
    async def open(server: Any) -> Connection:
        return Connection(*await asyncio.open_connection(server.host, server.port, limit=1 << 26))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        await self.send(request(path, body, **headers))
        return await self.answer()

    async def answer(self, body: bool = True) -> Answer:
        """The next answer; EOFError if the connection is closed instead. The answer to HEAD has no body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        status = int(head[0].split(" ")[1])
        if status == 100:
            return await self.answer(body)
        size = int(headers.get("content-length", 0)) if body else 0
        return Answer(status, headers, await self.reader.readexactly(size))

    async def closed(self, seconds: float) -> bool:
        """Whether the server closes the connection within this time."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(1 << 16):
                    continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.writer.close()


def request(path: str, body: Any = None, method: str = "", **headers: str) -> bytes:
    """The bytes of a request; `body` is sent as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(len(content))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method or ('POST' if content else 'GET')} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


@dataclass
class Figures:
    """What a load was answered with."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of the answers with status 200

    def percentile(self, part: float) -> float:
        return sorted(self.seconds)[int(part * (len(self.seconds) - 1))]


async def load(server: Any, clients: int, bodies: Iterator[tuple[str, Any]], until: float) -> Figures:
    """So many clients, each of which asks again as soon as it is answered, until that moment of `time.monotonic`, or
    until there are no bodies left."""
    figures = Figures()

    async def client() -> None:
        connection = await Connection.open(server)
        for path, body in bodies:
            began = time.monotonic()
            if began > until:
                break
            try:
                status = (await connection.ask(path, body)).status
            except (EOFError, OSError):
                status = FAILED
                connection = await Connection.open(server)
            figures.statuses[status] += 1
            if status == 200:
                figures.seconds.append(time.monotonic() - began)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return figures


async def watch_health(server: Any, until: asyncio.Event) -> list[float]:
    """Seconds to the answers of /health, twenty times a second, each on a connection of its own."""
    seconds = []
    while not until.is_set():
        began = time.monotonic()
        connection = await Connection.open(server)
        assert (await connection.ask("/health")).status == 200
        seconds.append(time.monotonic() - began)
        connection.close()
        await asyncio.sleep(0.05)
    return seconds
