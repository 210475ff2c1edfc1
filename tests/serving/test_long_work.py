"""Explanations take seconds; who only wants a vector does not wait for them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_http import Connection

from keel.serving.models import Models
from keel.serving.service import Service, alone
from keel.serving.settings import Settings

LONG_QUEUE = 64  # explanations that wait or are computed
TEXT = "the old captain watches seven lanterns near an island before the storm " * 4
EXPLANATION = {"text": TEXT, "method": "heads"}
SHORT = {"texts": ["the gull"]}
SECONDS = 4.0


@pytest.fixture
def server(start_server: Callable[..., Any], minilm: Path) -> Any:
    return start_server(f"minilm={minilm}", "--quiet")


async def ask(server: Any, path: str, body: Any) -> tuple[int, float, Any]:
    """Status, seconds, answer."""
    connection, began = await Connection.open(server), time.monotonic()
    try:
        answer = await connection.ask(path, body)
        return answer.status, time.monotonic() - began, answer.json()
    finally:
        connection.close()


def test_vectors_do_not_wait_for_explanations(server: Any, record_property: Callable[[str, object], None]) -> None:
    """More explanations than the queue takes: those beyond are refused at once; meanwhile vectors come, and the same.
    In the end the clients go away, and the server stops in time although an explanation is under way."""

    async def everything() -> None:
        _, _, expected = await ask(server, "/v1/embed", SHORT)
        explanations = [asyncio.ensure_future(ask(server, "/v1/explain", EXPLANATION)) for _ in range(LONG_QUEUE + 4)]
        waits, began = list[float](), time.monotonic()
        while time.monotonic() - began < SECONDS or sum(one.done() for one in explanations) < 5:
            assert time.monotonic() - began < 60
            status, seconds, answer = await ask(server, "/v1/embed", SHORT)
            assert (status, answer) == (200, expected)
            waits.append(seconds)
        done = [one.result() for one in explanations if one.done()]
        statuses = Counter(status for status, _, _ in done)
        record_property("explanations meanwhile, by status", dict(statuses))
        record_property("vectors meanwhile", len(waits))
        some = sorted(waits)
        record_property("ms to a vector, p50", round(1000 * some[len(some) // 2]))
        record_property("ms to a vector, p99", round(1000 * some[int(0.99 * (len(some) - 1))]))
        assert statuses[429] == 4 and set(statuses) == {200, 429}
        assert len(waits) > 5 * statuses[200], "they do not take turns on one thread"
        for one in explanations:
            one.cancel()
        await asyncio.gather(*explanations, return_exceptions=True)

    asyncio.run(everything())
    began = time.monotonic()
    os.kill(server.process.pid, signal.SIGTERM)
    assert server.process.wait(20) == 0
    record_property("seconds from SIGTERM to the end, an explanation under way", round(time.monotonic() - began, 1))
    assert server.log.read_text() == ""


def test_both_queues_compute_with_the_threads_that_were_asked_for() -> None:
    """MKL's number of threads belongs to the process: who sets it last sets it for both."""

    async def seen() -> list[dict[str, str]]:
        service = Service(Models([]), Settings())
        service.start(asyncio.get_running_loop(), 3)
        try:
            read = [queue.compute(alone(torch.__config__.parallel_info)) for queue in (service.batcher, service.long)]
            found = [(await one)[0] for one in read]
        finally:
            service.stop()
        return [dict(re.findall(r"(omp|mkl)_get_max_threads\(\) : (\d+)", text)) for text in found]

    before = torch.get_num_threads()
    try:
        for threads in asyncio.run(seen()):
            assert set(threads.values()) == {"3"}, threads
    finally:
        torch.set_num_threads(before)
