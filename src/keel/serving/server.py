"""Runs the server: a socket, uvicorn, signals, an orderly end; in this process, or in several.

In: models and settings. Out: an exit when a signal told it to stop: first `/health/ready` says no and answers close
their connections, then the socket is closed, and every request that was accepted is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from keel.errors import UserError
from keel.machine import default_threads, find_device, return_freed_memory
from keel.serving.accepting import ABSENT, Acceptor, Counts
from keel.serving.app import make_app
from keel.serving.gate import log
from keel.serving.models import Models
from keel.serving.protocol import limited
from keel.serving.service import Service
from keel.serving.settings import Settings
from keel.serving.workers import SHARED_METRICS, Supervisor

BACKLOG = 2048
NOTICE = 0.5  # seconds in which clients see that the server goes away
LAST_BYTES = 0.2  # seconds for requests that are on their way when the socket is closed
MARGIN = 3.0  # seconds beyond --drain after which a worker is killed
IDLE_TICKS = 10  # tenths of a second without a batch after which memory is returned
SWITCH_INTERVAL = 0.0005  # seconds that a thread may keep the interpreter from the event loop


@dataclass
class Place:
    """Where a server runs: alone, or as one of several workers."""

    number: int = 0
    parent: int | None = None  # a descriptor that can be read when the parent process has ended
    counts: Counts = field(default_factory=lambda: Counts(1))


class Server(uvicorn.Server):
    """uvicorn's server, which tells clients before it closes their connections, leaves signals to its caller, and
    shares its socket."""

    def __init__(self, config: uvicorn.Config, service: Service, listening: socket.socket, place: Place) -> None:
        super().__init__(config)
        self.service, self.place = service, place
        self._batches_before = self._batches_returned = 0
        self.acceptor = Acceptor(listening, self.server_state.connections, place.counts, place.number)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.service.start(loop, threads_of(self.service.settings))
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self.stop)
        if self.place.parent is not None:
            loop.add_reader(self.place.parent, self._abandoned, loop, self.place.parent)
        await super().startup(sockets=[])
        self.acceptor.start(loop, self._make_protocol)

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(self.config, self.server_state, self.lifespan.state)
        return made

    def stop(self) -> None:
        """Ends the server; a second time, without waiting."""
        self.force_exit = self.should_exit
        self.should_exit = True

    def _abandoned(self, loop: asyncio.AbstractEventLoop, parent: int) -> None:
        """The parent was killed: this worker ends, and removes what the parent would have."""
        loop.remove_reader(parent)
        self.should_exit = True
        shutil.rmtree(os.environ.get(SHARED_METRICS, ""), ignore_errors=True)

    async def on_tick(self, counter: int) -> bool:
        self.acceptor.update()
        if counter % IDLE_TICKS == 0:
            self._return_memory()
        return await super().on_tick(counter)

    def _return_memory(self) -> None:
        """After work, once there is none: batches of ever-changing sizes leave 200 MB of holes in the heap."""
        batches, self._batches_before = self._batches_before, self.service.metrics.batches
        if batches == self._batches_before != self._batches_returned:
            self._batches_returned = batches
            self.service.pool.submit(return_freed_memory)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.draining = True
        await asyncio.sleep(NOTICE)
        await self.acceptor.stop()
        await asyncio.sleep(LAST_BYTES)
        await super().shutdown([])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; a port that cannot be had is an error in one line."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError):
        raise UserError(
            f"--host {host}: no such address; 127.0.0.1 is this machine, 0.0.0.0 all its networks"
        ) from None
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        reasons = {
            errno.EADDRINUSE: "another program has this port; choose another with --port, 0 takes a free one",
            errno.EACCES: "ports below 1024 need rights that this user does not have; choose a higher one",
            errno.EADDRNOTAVAIL: "this machine does not have this address",
        }
        raise UserError(f"{host}:{port}: {reasons.get(error.errno or 0, error.strerror)}") from None
    found.listen(BACKLOG)
    found.setblocking(False)
    return found


def serve(models: Models, settings: Settings, listening: socket.socket) -> None:
    """Serves until a signal comes."""
    raise_file_limit()
    if settings.workers == 1:
        work(models, settings, listening, Place())
        return
    counts = Counts(settings.workers)

    def ended(place: int, process: int) -> None:
        counts[place] = ABSENT
        mark_process_dead(process)

    gc.collect()
    gc.freeze()  # so that a worker's search for garbage does not touch, and copy, what it shares
    Supervisor(
        settings.workers,
        lambda place, parent: work(models, settings, listening, Place(place, parent, counts)),
        ended,
        settings.drain + NOTICE + LAST_BYTES + MARGIN,
    ).run()


def work(models: Models, settings: Settings, listening: socket.socket, place: Place) -> None:
    """One process that serves."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    log_library_warnings(logging.ERROR if settings.quiet else logging.WARNING)
    service = Service(models, settings)
    config = uvicorn.Config(
        make_app(service),
        http=limited(settings.header_timeout, settings.body_timeout),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.drain),
        proxy_headers=False,
    )
    server = Server(config, service, listening, place)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve())
    if not service.stop():  # nobody waits for what is still computed, and Python would wait for its thread
        sys.stderr.flush()
        os._exit(0)


class JsonLog(logging.Handler):
    """What uvicorn and asyncio have to say, as the server's own lines; without traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        log({"event": "warning", "from": record.name, "message": " ".join(record.getMessage().split())[:400]})


def log_library_warnings(level: int) -> None:
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [JsonLog(level)], False


def check_device(settings: Settings) -> None:
    """Several workers share a CPU, not a GPU; and loading must not start threads, which a fork would not copy."""
    if settings.workers > 1:
        if find_device(settings.device).type != "cpu":
            raise UserError(
                f"--workers {settings.workers}: one process keeps a GPU busy; leave --workers out, or add --device cpu"
            )
        torch.set_num_threads(1)


def threads_of(settings: Settings) -> int:
    """The threads that a worker computes with: by default the cores are divided among the workers."""
    return settings.threads or max(1, default_threads() // settings.workers)


def address(listening: socket.socket) -> str:
    """As a browser takes it."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def raise_file_limit() -> None:
    """As many connections as this user may have."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))


def summary(models: Models) -> dict[str, Any]:
    return {one.name: ", ".join(one.abilities) for one in models}
