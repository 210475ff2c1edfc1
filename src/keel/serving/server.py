"""Runs the server in this process: a socket, uvicorn, signals, an orderly end.

In: models and settings. Out: an exit when a signal told it to stop: first `/health/ready` says no and answers close
their connections, then the socket is closed, and every request that was accepted is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import torch
import uvicorn

from keel.errors import UserError
from keel.serving.app import make_app
from keel.serving.models import Models
from keel.serving.protocol import limited
from keel.serving.service import Service
from keel.serving.settings import Settings

BACKLOG = 2048
NOTICE = 0.5  # seconds in which clients see that the server goes away
SWITCH_INTERVAL = 0.0005  # seconds that a thread may keep the interpreter from the event loop


class Server(uvicorn.Server):
    """uvicorn's server, which tells clients before it closes their connections, and leaves signals to its caller."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        threads = self.service.settings.threads
        self.service.batcher.start(loop, lambda: torch.set_num_threads(threads or torch.get_num_threads()))
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self.stop)
        await super().startup(sockets)

    def stop(self) -> None:
        """Ends the server; a second time, without waiting."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.draining = True
        await asyncio.sleep(NOTICE)
        await super().shutdown(sockets)


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
    sys.setswitchinterval(SWITCH_INTERVAL)
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
    server = Server(config, service)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([listening]))
    service.batcher.stop()


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
