"""uvicorn's HTTP protocol with limits on time and size: half a request does not hold a connection for ever.

In: bytes of a connection. Out: requests for the application; connections that are too slow are closed.

Notable choices
- A timer for all header lines together, and one for the whole body. Timers that restart with every byte would let a
  client that sends one byte a second hold its connection.
- Who is refused in the middle of a request is still listened to, for at most the time of a body. If the server closed
  at once, the system would answer the next bytes with a reset, and most clients, which write everything before they
  read, would report a broken pipe instead of the reason.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEADER_BYTES = 1 << 16
IDLE, HEADERS, BODY, REFUSED = range(4)


class LingeringTransport:
    """A transport whose `close` in the middle of a request ends the answer, and reads on until the client has finished
    too."""

    def __init__(self, transport: Any, protocol: LimitedProtocol) -> None:
        self.transport, self.protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def is_closing(self) -> bool:
        return self.protocol.phase == REFUSED or self.transport.is_closing()

    def close(self) -> None:
        if (
            self.protocol.phase in (HEADERS, BODY)
            and not self.transport.is_closing()
            and self.transport.can_write_eof()
        ):
            self.transport.write_eof()
            self.protocol.linger()
        else:
            self.transport.close()


class LimitedProtocol(HttpToolsProtocol):
    header_timeout, body_timeout = 10.0, 25.0  # seconds
    phase, size, refused = IDLE, 0, False
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._enter(HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(IDLE)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.phase == REFUSED:
            return
        if self.phase == IDLE:
            self._enter(HEADERS)
        if self.phase == HEADERS:
            self.size += len(data)
        super().data_received(data)
        if self.refused or (self.phase == HEADERS and self.size > HEADER_BYTES):
            self._refuse()

    def linger(self) -> None:
        """Nothing more is written; what still comes is dropped."""
        self._enter(REFUSED)
        self.flow.resume_reading()

    def on_message_begin(self) -> None:
        if self.phase != HEADERS:  # a pipelined request
            self._enter(HEADERS)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.refused = self.refused or sum(len(n) + len(v) for n, v in self.headers[-1:]) > HEADER_BYTES
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self.refused = self.refused or size > HEADER_BYTES
        if not self.refused:
            self._enter(BODY)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.refused:
            self._enter(IDLE)
            super().on_message_complete()

    def _enter(self, phase: int) -> None:
        self.phase, self.size = phase, 0
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if phase != IDLE:
            seconds = self.header_timeout if phase == HEADERS else self.body_timeout
            self.timer = self.loop.call_later(seconds, self._close)

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[431] + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def _close(self) -> None:
        if self.phase == REFUSED or not self.transport.is_closing():
            self.transport.abort()


def limited(header_timeout: float, body_timeout: float) -> type[LimitedProtocol]:
    """The protocol with these limits, in seconds."""
    return type("Limited", (LimitedProtocol,), {"header_timeout": header_timeout, "body_timeout": body_timeout})
