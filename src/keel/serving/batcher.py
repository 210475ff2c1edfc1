"""Dynamic batching: the rows of many requests are computed together, in flat batches of bounded size.

In: works (`inference/work.py`) from the event loop. Out: their answers.

Notable choices
- One thread computes; requests that arrive meanwhile form the next batch, so batches grow with the load by themselves.
- The works that wait take turns, row by row: a request with a thousand texts does not delay one with a single text.
- Works with different keys (other models, other questions) take turns, batch by batch.
- A request whose client has gone, or whose time is over, leaves the queue; what was computed of it is dropped.
- If a batch fails, its works are computed one by one, so that only the one at fault fails.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from keel.inference.work import Work
from keel.serving.metrics import Metrics

T = TypeVar("T")


class Overloaded(Exception):
    """The queue is full."""


@dataclass(eq=False)
class Job:
    """A work in the queue."""

    work: Work[Any]
    future: asyncio.Future[list[Any]]
    arrived: float
    order: list[int] = field(init=False)  # the rows, longest first
    taken: int = 0  # rows that were put into a batch
    outputs: list[Any] = field(init=False)
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        rows = len(self.work.rows)
        self.order = sorted(range(rows), key=lambda row: -self.work.sizes[row])
        self.outputs, self.missing = [None] * rows, rows


class Part(NamedTuple):
    """A row of a job, in a batch."""

    job: Job
    row: int


class Batcher:
    def __init__(self, name: str, max_batch_tokens: int, max_wait_ms: float, max_queue: int, metrics: Metrics) -> None:
        self.max_batch_tokens, self.max_wait, self.max_queue = max_batch_tokens, max_wait_ms / 1000, max_queue
        self.name, self.metrics = name, metrics.of_queue(name)
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[Job]] = {}  # by the works' keys; the first has its turn
        self._tokens = self._jobs = 0
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop, prepare: Callable[[], None]) -> None:
        """Starts the thread that computes, which calls `prepare` first."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(prepare,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Ends the thread after the batch that it computes; False if that takes longer than so many seconds."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(patience)
        return not self.healthy

    @property
    def healthy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def full(self) -> bool:
        return self._jobs >= self.max_queue

    async def compute(self, work: Work[T]) -> list[Any]:
        """The outputs of the work's rows. Cancelling it takes the work out of the queue."""
        if not len(work.rows):
            return []
        job = Job(work, self._loop.create_future(), time.perf_counter())
        with self._changed:
            if self.full:
                raise Overloaded
            self._queues.setdefault(work.key, deque()).append(job)
            self._count(1, sum(work.sizes))
            self._changed.notify()
        try:
            return await job.future
        finally:
            with self._changed:
                self._count(-1, -sum(work.sizes[row] for row in job.order[job.taken :]))
                job.taken = len(job.order)

    def _count(self, jobs: int, tokens: int) -> None:
        self._jobs += jobs
        self._tokens += tokens
        self.metrics.requests.set(self._jobs)
        self.metrics.tokens.set(self._tokens)

    def _run(self, prepare: Callable[[], None]) -> None:
        prepare()
        while (batch := self._next()) is not None:
            self._compute(batch)

    def _next(self) -> list[Part] | None:
        """Waits for the next batch; None: the server stops."""
        with self._changed:
            while not self._stopped:
                if (key := next(iter(self._queues), None)) is None:
                    self._changed.wait()
                elif (wait := self._time_to_wait(self._queues[key])) > 0:
                    self._changed.wait(wait)
                elif batch := self._take(key):
                    return batch
        return None

    def _time_to_wait(self, queue: deque[Job]) -> float:
        """How long more rows may still join the next batch."""
        if not self.max_wait or self._tokens >= self.max_batch_tokens:
            return 0.0
        return queue[0].arrived + self.max_wait - time.perf_counter()

    def _take(self, key: Hashable) -> list[Part]:
        """A batch of the jobs with this key, each of which gives one row in turn; the next turn is another key's."""
        jobs, batch, tokens = self._queues.pop(key), list[Part](), 0
        while jobs:
            job = jobs.popleft()
            if job.taken == len(job.order):  # cancelled
                continue
            row = job.order[job.taken]
            if batch and tokens + job.work.sizes[row] > self.max_batch_tokens:
                jobs.appendleft(job)
                break
            batch.append(Part(job, row))
            tokens += job.work.sizes[row]
            job.taken += 1
            if job.taken < len(job.order):
                jobs.append(job)
        if jobs:
            self._queues[key] = jobs
        self._count(0, -tokens)
        return batch

    def _compute(self, batch: list[Part]) -> None:
        began = time.perf_counter()
        for part in batch:
            if part.row == part.job.order[0]:
                self.metrics.waited.observe(began - part.job.arrived)
        try:
            outputs = batch[0].job.work.compute([job.work.rows[row] for job, row in batch])
        except Exception as error:
            jobs = list(dict.fromkeys(job for job, _ in batch))
            if len(jobs) > 1:
                for one in jobs:
                    self._compute([part for part in batch if part.job is one])
            else:
                self._deliver([(jobs[0], error)])
            return
        ended = time.perf_counter()
        self.metrics.batch([job.work.sizes[row] for job, row in batch], ended - began)
        done = list[tuple[Job, Exception | None]]()
        for (job, row), output in zip(batch, outputs, strict=True):
            job.outputs[row] = output
            job.missing -= 1
            if not job.missing:
                done.append((job, None))
        self._deliver(done)

    def _deliver(self, done: list[tuple[Job, Exception | None]]) -> None:
        """Hands finished jobs to the event loop."""

        def resolve() -> None:
            for job, error in done:
                if job.future.done():  # cancelled
                    continue
                if error is None:
                    job.future.set_result(job.outputs)
                else:
                    job.future.set_exception(error)

        if done:
            self._loop.call_soon_threadsafe(resolve)
