"""A server that is told to stop under load answers every request it has accepted, and ends with exit code 0."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_http import FAILED, Connection

CLIENTS = 40
SECONDS = 30.0
TEXTS = ["the captain remembers seven lanterns", "at dawn"]


async def client(server: Any, statuses: Counter[int], stopping: asyncio.Event) -> None:
    """Asks as fast as it is answered; opens a new connection when it is told to close one, until nobody listens."""
    connection = None
    for number in itertools.count():
        if connection is None:
            try:
                connection = await Connection.open(server)
            except OSError:
                assert stopping.is_set(), "refused before the signal"
                return
        try:
            answer = await connection.ask("/v1/embed", {"texts": [f"{number}", *TEXTS]})
        except (EOFError, ConnectionError):
            statuses[FAILED] += 1
            return
        statuses[answer.status] += 1
        if answer.headers.get("connection") == "close":
            connection.close()
            connection = None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_every_accepted_request_is_answered(
    start_server: Callable[..., Any], minilm: Path, number: int, record_property: Callable[[str, object], None]
) -> None:
    server = start_server(f"minilm={minilm}", "--quiet")
    statuses = Counter[int]()

    async def stop() -> float:
        stopping = asyncio.Event()
        clients = [asyncio.ensure_future(client(server, statuses, stopping)) for _ in range(CLIENTS)]
        while statuses.total() < 2 * CLIENTS:
            await asyncio.sleep(0.05)
        began = time.monotonic()
        stopping.set()
        os.kill(server.process.pid, number)
        await asyncio.wait_for(asyncio.gather(*clients), SECONDS)
        return began

    began = asyncio.run(stop())
    assert server.process.wait(SECONDS) == 0
    seconds = time.monotonic() - began
    record_property("answered, by status", dict(statuses))
    record_property("seconds from the signal to the end", round(seconds, 2))
    assert set(statuses) == {200}
    assert seconds < SECONDS
    assert server.log.read_text() == ""


def test_what_takes_too_long_does_not_keep_it(start_server: Callable[..., Any], minilm: Path) -> None:
    """Half a request is under way when the signal comes: after --drain it is given up."""
    server = start_server(f"minilm={minilm}", "--quiet", "--drain", "1")

    async def half() -> bytes:
        connection = await Connection.open(server)
        await connection.send(b"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        other = await Connection.open(server)
        assert (await other.ask("/health")).status == 200, "the server has seen what came before"
        other.close()
        os.kill(server.process.pid, signal.SIGTERM)
        try:
            return await asyncio.wait_for(connection.reader.read(), 15)
        except ConnectionError:
            return b""

    said = asyncio.run(half())
    assert server.process.wait(15) == 0
    assert not said.startswith(b"HTTP/1.1 2")
    assert "Traceback" not in server.log.read_text()
