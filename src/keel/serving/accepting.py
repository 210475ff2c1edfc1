"""Accepts connections from a socket that all workers share, so that each worker gets its part of them.

In: a listening socket, how many connections each worker has. Out: connections for uvicorn's protocol.

Notable choices
- One inherited socket instead of one per worker (SO_REUSEPORT): the kernel deals connections to sockets by a hash, not
  by load, and those that wait in the socket of a worker that dies are lost. Here they wait for whoever is free.
- A loop that accepts all it can would take a whole burst of clients for one worker. So the counts of all workers are in
  shared memory, and one that has more connections than another leaves a new one to the others for two milliseconds.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import socket
from collections.abc import Callable
from typing import Any

GIVE_WAY = 0.002  # seconds that a worker with more connections than another leaves a new one to the others
AT_ONCE = 64  # connections accepted before the loop does something else
SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE = 0.1  # seconds until the next try where there is no room for another connection
ABSENT = 1 << 30  # the count of a worker that does not accept


class Counts:
    """The number of connections of each worker, in memory that they share; each writes its own."""

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, 4 * workers)
        self._counts = memoryview(self._memory).cast("i")
        for place in range(workers):
            self._counts[place] = ABSENT

    def __getitem__(self, place: int) -> int:
        return self._counts[place]

    def __setitem__(self, place: int, count: int) -> None:
        self._counts[place] = count

    def least(self) -> int:
        return min(self._counts)


class Acceptor:
    """Accepts for one worker, the one at `place`. `connections` is the set of those that are open."""

    def __init__(self, listening: socket.socket, connections: set[Any], counts: Counts, place: int) -> None:
        self.listening, self.connections, self.counts, self.place = listening, connections, counts, place
        self._under_way = set[asyncio.Task[Any]]()
        self._open = False

    def start(self, loop: asyncio.AbstractEventLoop, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._loop, self._make_protocol, self._open = loop, make_protocol, True
        self.update()
        self._watch()

    def update(self) -> None:
        """Tells the other workers how many connections this one has."""
        if self._open:
            self.counts[self.place] = len(self.connections) + len(self._under_way)

    async def stop(self) -> None:
        """Accepts what waits, then no more."""
        if not self._open:
            return
        while self._accept():
            continue
        self._open = False
        self.counts[self.place] = ABSENT
        self._loop.remove_reader(self.listening)
        self.listening.close()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _watch(self) -> None:
        if self._open:
            self._loop.add_reader(self.listening, self._readable)

    def _readable(self) -> None:
        for _ in range(AT_ONCE):
            if self.counts[self.place] > self.counts.least():
                self._rest(GIVE_WAY, late=True)
                return
            if not self._accept():
                return

    def _rest(self, seconds: float, late: bool = False) -> None:
        self._loop.remove_reader(self.listening)
        self._loop.call_later(seconds, self._return, late)

    def _return(self, late: bool) -> None:
        if late and self._open:
            self._accept()
        self._watch()

    def _accept(self) -> bool:
        """Takes a connection; False if there is none."""
        try:
            connection, _ = self.listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno in SCARCE and self._open:
                self._rest(PAUSE)
            return False
        connection.setblocking(False)
        task = self._loop.create_task(self._connect(connection))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        self.update()
        return True

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # it was closed at once
            connection.close()
