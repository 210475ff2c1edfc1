"""The settings of a server. In: the options of `keel serve`. Out: one checked value that every part reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from keel.errors import UserError

LEAST_KEY = 8  # characters of an API key
ORIGIN = re.compile(r"https?://[^\s/?#@]+")


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = None
    workers: int = 1
    threads: int | None = None  # for computing, in each worker
    device: str = "auto"
    allow_pickle: bool = False
    max_batch_tokens: int = 4096
    max_wait_ms: float = 0.0
    max_queue: int = 512  # requests that wait or are computed
    max_body: int = 4 << 20  # bytes
    max_texts: int = 1024  # of a request
    max_characters: int = 1 << 19  # of a request
    header_timeout: float = 10.0  # seconds, for all header lines of a request
    body_timeout: float = 25.0  # for its body
    timeout: float = 60.0  # for its answer
    drain: float = 25.0  # for the requests that are under way when the server is told to stop
    cors: tuple[str, ...] = ()  # origins
    runs: Path | None = None
    log_texts: bool = False
    quiet: bool = False

    def check(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UserError(f"--port {self.port}: a port is a number from 1 to 65535; 0 takes a free one")
        if self.api_key is not None and (len(self.api_key) < LEAST_KEY or not self.api_key.isascii()):
            raise UserError(
                f"--api-key: give at least {LEAST_KEY} ASCII characters; `openssl rand -hex 16` makes a key"
            )
        if self.runs is not None and not self.runs.is_dir():
            raise UserError(f"--runs {self.runs}: no such folder")
        for origin in self.cors:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise UserError(f"--cors {origin}: an origin is like https://example.org or http://localhost:3000")
        if "*" in self.cors and self.api_key is None:
            raise UserError("--cors '*' lets every web page ask this server; name the origins, or set --api-key")
