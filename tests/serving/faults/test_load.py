"""More load than the server can bear: it answers what it can, refuses the rest at once, and stays alive and small."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import FULL, Answer, Connection, load, watch_health

pytestmark = [pytest.mark.clock, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")]

BURST = 2000  # requests at the same moment
TIMES = 5  # as much as the server can bear
SECONDS = 120.0 if FULL else 4.0
WARM_UP = 20.0 if FULL else 3.0
QUEUE = 32
HEALTH_P99 = 0.100
GROWTH = 1.10
SENTENCE = "the old captain watches seven lanterns near an island before the storm without a word "


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Any], minilm: Path) -> Iterator[Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < BURST + 200:
        pytest.skip(f"this user may open {hard} files; the test needs {BURST + 200}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield start_server(f"minilm={minilm}", "--quiet", "--max-queue", QUEUE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def bodies() -> Iterator[tuple[str, Any]]:
    """Two texts of 1 to 90 words each: enough work that one client can send five times too many."""
    for number in itertools.count():
        lengths = [1 + (37 * number + 41 * text) % 90 for text in range(2)]
        yield "/embed", {"inputs": [SENTENCE * (n // 15 + 1) for n in lengths]}


def resident(process: int) -> int:
    """Bytes in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_refusal(answer: Answer) -> None:
    assert answer.status in (200, 429), answer
    if answer.status == 429:
        assert int(answer.headers["retry-after"]) >= 1
        assert "overloaded" in answer.json()["error"]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


def test_two_thousand_at_once(server: Any, record_property: Callable[[str, object], None]) -> None:
    async def burst() -> tuple[list[Answer], float]:
        opened = list[Connection]()
        for _ in range(BURST // 100):
            opened += await asyncio.gather(*(Connection.open(server) for _ in range(100)))
        began = time.monotonic()
        answers = await asyncio.gather(*(one.ask("/embed", {"inputs": "hello"}) for one in opened))
        seconds = time.monotonic() - began
        for one in opened:
            one.close()
        return answers, seconds

    answers, seconds = asyncio.run(burst())
    for answer in answers:
        check_refusal(answer)
    statuses = Counter(answer.status for answer in answers)
    assert statuses[200] >= QUEUE
    record_property(f"{BURST} at once", f"{dict(statuses)} in {seconds:.2f} s")


def test_five_times_the_load(server: Any, record_property: Callable[[str, object], None]) -> None:
    async def everything() -> None:
        ended, sizes = asyncio.Event(), list[tuple[float, int]]()

        async def watch_memory() -> None:
            while not ended.is_set():
                sizes.append((time.monotonic(), resident(server.process.pid)))
                await asyncio.sleep(0.1)

        memory = asyncio.ensure_future(watch_memory())
        warm = await load(server, QUEUE, bodies(), time.monotonic() + WARM_UP)
        assert set(warm.statuses) == {200}
        bearable = warm.statuses[200] / WARM_UP
        health = asyncio.ensure_future(watch_health(server, ended))
        full = time.monotonic() + SECONDS / 8  # by then it has seen batches of every size
        answers = await arrivals(server, TIMES * bearable, SECONDS)
        ended.set()
        await memory
        seconds = await health
        before, most = max(size for at, size in sizes if at < full), max(size for at, size in sizes if at >= full)
        statuses = Counter(answer.status for answer in answers)
        record_property("bearable, requests per second", round(bearable, 1))
        record_property("sent, requests per second", round(len(answers) / SECONDS, 1))
        record_property("answered with", dict(statuses))
        record_property("/health p99, ms", round(1000 * p99(seconds), 1))
        record_property("memory at most, at first and later, MB", (before >> 20, most >> 20))
        assert len(answers) > 0.9 * TIMES * bearable * SECONDS, "the client could not send so many"
        for answer in answers:
            check_refusal(answer)
        assert statuses[200] > 0.5 * bearable * SECONDS, "the server still works"
        assert p99(seconds) < HEALTH_P99
        assert most < GROWTH * before

    asyncio.run(everything())


async def arrivals(server: Any, rate: float, seconds: float) -> list[Answer]:
    """Requests that come at this rate, whatever becomes of the earlier ones; connections are used again."""
    idle = deque[Connection]()  # the one that is idle longest first, before the server closes it

    async def one(path: str, body: Any) -> Answer:
        connection = idle.popleft() if idle else await Connection.open(server)
        answer = await connection.ask(path, body)
        idle.append(connection)
        return answer

    began, given, asked = time.monotonic(), bodies(), list[asyncio.Future[Answer]]()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        asked.append(asyncio.ensure_future(one(*next(given))))
    answers = await asyncio.wait_for(asyncio.gather(*asked), 60)
    for connection in idle:
        connection.close()
    return answers
