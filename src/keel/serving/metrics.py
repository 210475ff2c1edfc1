"""Prometheus metrics of a server. In: what happened. Out: the text of `/metrics`.

Notable choice: with several workers each writes its figures into files in a folder (prometheus_client's multiprocess
mode), and whichever worker is asked adds them up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from keel.serving.workers import SHARED_METRICS

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass
class QueueMetrics:
    """The figures of one queue and of the thread that works on it."""

    requests: Gauge
    tokens: Gauge
    batch_tokens: Histogram
    batch_rows: Histogram
    waited: Histogram
    computed: Histogram
    padding: Counter
    pads: bool
    batches: int = 0

    def batch(self, sizes: Sequence[int], seconds: float) -> None:
        """`sizes`: the tokens of each row."""
        self.batches += 1
        self.batch_tokens.observe(sum(sizes))
        self.batch_rows.observe(len(sizes))
        self.computed.observe(seconds)
        if self.pads:
            self.padding.inc(len(sizes) * max(sizes) - sum(sizes))


class Metrics:
    def __init__(self, pads: bool = False) -> None:
        """`pads`: rows are padded to the longest of their batch, as attention on an accelerator does, but not on a
        CPU."""
        self.pads = pads
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("keel_requests", "Requests answered", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "keel_request_seconds", "Time to an answer", ["route"], buckets=SECONDS, registry=registry
        )
        self._stages = Histogram("keel_stage_seconds", "Time by stage", ["stage"], buckets=SECONDS, registry=registry)
        shared: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livesum"}
        self._queue_requests = Gauge("keel_queue_requests", "Requests that wait or are computed", ["queue"], **shared)
        self._queue_tokens = Gauge("keel_queue_tokens", "Tokens that wait", ["queue"], **shared)
        self._batch_tokens = Histogram(
            "keel_batch_tokens", "Tokens of a batch", ["queue"], buckets=TOKENS, registry=registry
        )
        self._batch_rows = Histogram("keel_batch_rows", "Rows of a batch", ["queue"], buckets=ROWS, registry=registry)
        self._padding = Counter("keel_padding_tokens", "Tokens that were padding", ["queue"], registry=registry)
        self.queues = list[QueueMetrics]()
        self._stage = {name: self._stages.labels(name) for name in ("tokenize", "format")}

    def of_queue(self, name: str) -> QueueMetrics:
        """The figures of one queue. Its stages are `queue` and `compute`, with the name before them if it is not the
        first."""
        before = f"{name} " if self.queues else ""
        self.queues.append(
            QueueMetrics(
                self._queue_requests.labels(name),
                self._queue_tokens.labels(name),
                self._batch_tokens.labels(name),
                self._batch_rows.labels(name),
                self._stages.labels(f"{before}queue"),
                self._stages.labels(f"{before}compute"),
                self._padding.labels(name),
                self.pads,
            )
        )
        return self.queues[-1]

    @property
    def batches(self) -> int:
        return sum(one.batches for one in self.queues)

    def stage(self, name: str, seconds: float) -> None:
        self._stage[name].observe(seconds)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        if SHARED_METRICS in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
            return generate_latest(registry)
        return generate_latest(self.registry)
