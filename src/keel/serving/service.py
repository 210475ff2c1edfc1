"""What all routes share: the models, the queue, the limits, and the way from a request to an answer.

In: a function that makes a work (tokenizing). Out: its answer.

Notable choices
- Long texts are tokenized, and answers of many rows formatted, on a small pool of threads, never on the event loop;
  for a short text the way to another thread would take longer than the work.
- Explanations, translations and continued texts take seconds. They have a queue and one thread of their own, so that a
  short question never waits for them.
- A request is cancelled when its client goes away or its time is over.
- JSON is read and written by orjson: strict (no NaN, no lone surrogates, bounded depth), and float32 arrays are written
  with the fewest digits that give the same float32.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
import torch
from starlette.requests import Request
from starlette.responses import Response

from keel.errors import UserError
from keel.inference.work import Work
from keel.serving.batcher import Batcher
from keel.serving.errors import ClientGone, TooLarge
from keel.serving.metrics import Metrics
from keel.serving.models import Models
from keel.serving.settings import Settings

T = TypeVar("T")

LONG_QUEUE = 64  # requests that take seconds, waiting or computed; more get 429
PATIENCE = 1.0  # seconds for the last batch at the end
POOL = 2  # threads for tokenizing and formatting
SHORT = 2000  # characters that are tokenized at once on the event loop: less than a millisecond
FEW = 32  # rows that are formatted there


class Service:
    def __init__(self, models: Models, settings: Settings) -> None:
        self.models, self.settings = models, settings
        self.metrics = Metrics(pads=any(one.model.device.type != "cpu" for one in models))
        tokens, wait = settings.max_batch_tokens, settings.max_wait_ms
        self.batcher = Batcher("batches", tokens, wait, settings.max_queue, self.metrics)
        self.long = Batcher("long", tokens, 0.0, min(LONG_QUEUE, settings.max_queue), self.metrics)
        self.pool = ThreadPoolExecutor(POOL, "texts")
        self.draining = False
        self.waiting = 0  # requests that are under way

    @property
    def ready(self) -> bool:
        return self.healthy and not self.draining

    @property
    def healthy(self) -> bool:
        return self.batcher.healthy and self.long.healthy

    def start(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        """Both queues compute with all threads: torch's setting is one of the whole process, as far as MKL is
        concerned, so that one thread for `long` would be one for all."""
        for queue in (self.batcher, self.long):
            queue.start(loop, lambda: torch.set_num_threads(threads))

    def stop(self) -> bool:
        """Ends both threads; False if one of them computes on."""
        return self.batcher.stop(PATIENCE) & self.long.stop(PATIENCE)

    def check(self, texts: Sequence[str]) -> int:
        """Refuses more than the limits allow; returns the number of characters."""
        if not texts:
            raise UserError("no text was given")
        if len(texts) > self.settings.max_texts:
            raise TooLarge(f"{len(texts):,} texts in one request; this server takes {self.settings.max_texts:,}")
        size = sum(map(len, texts))
        if size > self.settings.max_characters:
            most = self.settings.max_characters
            raise TooLarge(f"{size:,} characters in one request; this server takes {most:,}; send fewer at a time")
        return size

    async def answer(
        self, request: Request, texts: Sequence[str], make: Callable[[], Work[T]], queue: Batcher | None = None
    ) -> T:
        """The answer to a request whose work `make` prepares; `texts` are what it is about, for the limits. What takes
        seconds goes into the queue `long`, with the model of `ServedModel.apart`."""
        if self.settings.log_texts:
            request.scope.setdefault("state", {})["log"] = {"texts": list(texts)}
        size = self.check(texts)
        task = asyncio.ensure_future(self._answer(size, make, queue or self.batcher))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((task, gone), timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientGone if gone.done() else TimeoutError
        finally:
            gone.cancel()
            task.cancel()

    async def _answer(self, size: int, make: Callable[[], Work[T]], queue: Batcher) -> T:
        work = await self._run("tokenize", make, size <= SHORT)
        outputs = await queue.compute(work)
        return await self._run("format", lambda: work.finish(outputs), len(outputs) <= FEW)

    async def _run(self, stage: str, function: Callable[[], T], here: bool) -> T:
        began = time.perf_counter()
        try:
            if here:
                return function()
            return await asyncio.get_running_loop().run_in_executor(self.pool, function)
        finally:
            self.metrics.stage(stage, time.perf_counter() - began)


async def _disconnected(request: Request) -> None:
    """Returns when the client goes away; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def respond(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(content, status, headers, "application/json")


def alone(compute: Callable[[], T]) -> Work[T]:
    """A work that is computed by itself."""
    return Work(object(), [None], [1], lambda rows: [compute()], lambda outputs: outputs[0])


def done(value: T) -> Work[T]:
    """A work that needs no model."""
    return Work("", [], [], list, lambda outputs: value)
