"""Connections that hold on and say little: they are closed in time, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_http import FULL, Connection, request

pytestmark = pytest.mark.clock

EACH = 500 if FULL else 30
HEADERS, BODY = (10.0, 25.0) if FULL else (1.5, 3.0)  # the first two are what the server has without any flag
SLACK = 2.0  # seconds: several hundred connections are closed one after the other
PACE = 1.0 if FULL else 0.2  # seconds between two bytes
CALM, LONGEST = 0.5, 2.0  # seconds to an answer for others: the median, and at most, while all connections are opened


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Any], minilm: Path) -> Any:
    limits = () if FULL else ("--header-timeout", HEADERS, "--body-timeout", BODY)
    return start_server(f"minilm={minilm}", *limits)


async def lifetime(server: Any, beginning: bytes, rest: bytes) -> tuple[float, bytes]:
    """Sends a beginning, then a byte at a time; returns when the server has closed the connection, and what it said."""
    connection, began = await Connection.open(server), time.monotonic()
    await connection.send(beginning)

    async def drip() -> None:
        with contextlib.suppress(ConnectionError):  # the server reads no more
            for byte in rest:
                await asyncio.sleep(PACE)
                await connection.send(bytes([byte]))

    dripping = asyncio.ensure_future(drip())
    try:
        said = await connection.reader.read()
    except ConnectionError:
        said = b""
    await dripping
    connection.close()
    return time.monotonic() - began, said


async def others(server: Any, until: asyncio.Event) -> list[float]:
    """Somebody who asks in the meantime, each time on a new connection: seconds to the answers."""
    found = []
    while not until.is_set():
        began = time.monotonic()
        connection = await Connection.open(server)
        assert (await connection.ask("/v1/embed", {"texts": ["the gull"]})).status == 200
        connection.close()
        found.append(time.monotonic() - began)
        await asyncio.sleep(0.1)
    return found


HEAD = request("/v1/embed", None, "POST", content_length="1000").removesuffix(b"\r\n")
KINDS = {
    "silent": (b"", b"", HEADERS),
    "half a header": (HEAD[:40], b"", HEADERS),
    "a byte of header at a time": (HEAD[:40], b"x-long: " + b"a" * 1000, HEADERS),
    "half a body": (HEAD + b'\r\n{"texts"', b"", BODY),
    "a byte of body at a time": (HEAD + b"\r\n", b" " * 900, BODY),
    "a byte after a refusal": (HEAD.replace(b"1000", b"9" * 9) + b"\r\n", b" " * 900, BODY),
}


def test_slow_connections_are_closed(server: Any, record_property: Callable[[str, object], None]) -> None:
    """All kinds at the same time."""

    async def all_kinds() -> None:
        ended = asyncio.Event()
        asking = asyncio.ensure_future(others(server, ended))
        tasks = {
            kind: [asyncio.ensure_future(lifetime(server, beginning, rest)) for _ in range(EACH)]
            for kind, (beginning, rest, _) in KINDS.items()
        }
        found = {kind: await asyncio.gather(*several) for kind, several in tasks.items()}
        ended.set()
        answered = await asking
        record_property(f"connections of each kind, {len(KINDS)} kinds", EACH)
        median = sorted(answered)[len(answered) // 2]
        record_property(
            "answers to others meanwhile, median and slowest, s", (round(median, 3), round(max(answered), 2))
        )
        for kind, lifetimes in found.items():
            record_property(f"{kind}: closed after, s", round(max(seconds for seconds, _ in lifetimes), 1))
        for kind, lifetimes in found.items():
            limit = KINDS[kind][2]
            for seconds, said in lifetimes:
                refused = said.startswith(b"HTTP/1.1 413 ")
                assert refused == (kind == "a byte after a refusal") and (refused or not said), (kind, said[:100])
                assert seconds > 0.5 * limit, (kind, seconds)
                assert seconds < limit + 2 * PACE + SLACK, (kind, seconds)
        assert median < CALM and max(answered) < LONGEST

    asyncio.run(all_kinds())
