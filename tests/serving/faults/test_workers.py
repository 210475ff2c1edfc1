"""Several workers: what they share, who takes whose place, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import Connection, request

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

PRIVATE_MEGABYTES = 150
SECONDS_TO_REPLACE = 5.0
TEXTS = [f"the captain remembers {number} lanterns" for number in range(64)]


def workers_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    return [int(number) for number in children.read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(true: Callable[[], Any], seconds: float = 30) -> Any:
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)
    return found


def memory(process: int) -> dict[str, int]:
    """Kilobytes by kind."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Any], minilm: Path) -> Any:
    """A real sentence encoder in two workers; the tests of this file use it one after the other."""
    return start_server(f"minilm={minilm}", "--workers", "2")


@pytest.fixture
def processes(pair: Any) -> list[int]:
    return list(wait_for(lambda: len(found := workers_of(pair.process.pid)) == 2 and found))


async def ask_everywhere(server: Any, connections: int, path: str, body: Any = None) -> list[int]:
    """The statuses of as many requests as connections, which are open at the same time."""
    opened = await asyncio.gather(*(Connection.open(server) for _ in range(connections)))
    try:
        return [answer.status for answer in await asyncio.gather(*(one.ask(path, body) for one in opened))]
    finally:
        for one in opened:
            one.close()


def test_a_worker_has_little_memory_of_its_own(
    pair: Any, processes: list[int], record_property: Callable[[str, object], None]
) -> None:
    """The weights alone are 87 MB; they, torch and Python are in memory once. Batches need more, which is returned when
    no more come."""

    def private() -> list[int]:
        sizes = [memory(one).items() for one in processes]
        return [round(sum(size for kind, size in one if kind.startswith("Private")) / 1024) for one in sizes]

    for _ in range(3):
        statuses = asyncio.run(ask_everywhere(pair, 8, "/v1/embed", {"texts": TEXTS}))
        assert statuses == [200] * 8
    record_property("megabytes of a worker's own, busy", private())
    wait_for(lambda: max(private()) < PRIVATE_MEGABYTES / 2, 20)
    record_property("megabytes of a worker's own, idle", private())
    record_property("megabytes in proportion (PSS), idle", [round(memory(one)["Pss"] / 1024) for one in processes])


def test_connections_are_spread_evenly(pair: Any, processes: list[int]) -> None:
    def sockets(process: int) -> int:
        found = 0
        for one in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += str(one.readlink()).startswith("socket:")
        return found

    async def spread() -> list[int]:
        before = [sockets(one) for one in processes]
        opened = await asyncio.gather(*(Connection.open(pair) for _ in range(100)))
        for one in opened:
            assert (await one.ask("/health")).status == 200
        after = [sockets(one) for one in processes]
        for one in opened:
            one.close()
        return [now - then for now, then in zip(after, before, strict=True)]

    taken = asyncio.run(spread())
    assert sum(taken) == 100 and max(taken) - min(taken) <= 10, taken


def test_figures_of_all_workers_are_added(pair: Any, processes: list[int]) -> None:
    def counted() -> float:
        text = asyncio.run(metrics(pair))
        lines = [line for line in text.splitlines() if line.startswith('keel_requests_total{route="/v1/tokens"')]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    before = counted()
    asyncio.run(ask_everywhere(pair, 20, "/v1/tokens", {"texts": ["a"]}))
    wait_for(lambda: counted() == before + 20)
    os.kill(processes[0], signal.SIGKILL)
    wait_for(lambda: set(processes) != set(workers_of(pair.process.pid)))
    assert counted() == before + 20, "what a dead worker counted is not forgotten"


async def metrics(server: Any) -> str:
    connection = await Connection.open(server)
    text = (await connection.ask("/metrics")).body.decode()
    connection.close()
    return text


def test_killed_workers_are_replaced(
    pair: Any, processes: list[int], record_property: Callable[[str, object], None]
) -> None:
    """Both are killed at once; connections that they had not accepted yet are answered by those that follow."""

    async def kill() -> float:
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        opened = await asyncio.gather(*(Connection.open(pair) for _ in range(20)))
        for one in opened:
            await one.send(request("/v1/embed", {"texts": ["the gull"]}))
        began = time.monotonic()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        assert [(await one.answer()).status for one in opened] == [200] * 20
        return time.monotonic() - began

    seconds = asyncio.run(kill())
    record_property("seconds until a killed server answered all that waited", round(seconds, 2))
    assert seconds < SECONDS_TO_REPLACE
    assert pair.process.poll() is None


def test_workers_that_die_young_are_not_started_for_ever(tmp_path: Path) -> None:
    """Five in a row, with growing pauses; then one line."""
    script = """
import os, sys
from keel.errors import UserError
from keel.serving.workers import Supervisor
def work(place, parent):
    os.write(1, b"x")
    os.kill(os.getpid(), 9)
try:
    Supervisor(1, work, lambda place, process: None, 5).run()
except UserError as error:
    print(error)
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began > 0.7
    assert done.stdout.startswith("xxxxx5 workers in a row ended"), done
    assert "signal 9 (SIGKILL)" in done.stdout and done.stdout.count("\n") == 1 and not done.stderr


@pytest.fixture
def little_pair(start_server: Callable[..., Any], classifier: Path) -> Iterator[Any]:
    yield start_server(classifier, "--workers", "2", "--quiet")


def test_nobody_is_left_when_the_parent_is_killed(little_pair: Any) -> None:
    processes = workers_of(little_pair.process.pid)
    little_pair.stop(signal.SIGKILL)
    wait_for(lambda: not any(alive(one) for one in processes), 20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_all_workers_finish_what_they_have(little_pair: Any, number: int) -> None:
    """Requests on both workers while the signal comes: each is answered. Ctrl-C reaches the whole group at once."""
    processes = workers_of(little_pair.process.pid)

    async def stop() -> list[int]:
        opened = await asyncio.gather(*(Connection.open(little_pair) for _ in range(30)))
        for one in opened:
            await one.send(request("/v1/predict", {"inputs": TEXTS}))
        for process in [little_pair.process.pid, *(processes if number == signal.SIGINT else [])]:
            os.kill(process, number)
        return [(await one.answer()).status for one in opened]

    assert asyncio.run(stop()) == [200] * 30
    assert little_pair.process.wait(30) == 0
    assert not any(alive(one) for one in processes)
    assert little_pair.log.read_text() == ""
