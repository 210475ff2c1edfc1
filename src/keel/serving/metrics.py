"""Prometheus metrics of a server. In: what happened. Out: the text of `/metrics`.

Notable choice: with several workers each writes its figures into files in a folder (prometheus_client's multiprocess
mode), and whichever worker is asked adds them up.
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from keel.serving.workers import SHARED_METRICS

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("keel_requests", "Requests answered", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "keel_request_seconds", "Time to an answer", ["route"], buckets=SECONDS, registry=registry
        )
        self._stages = Histogram("keel_stage_seconds", "Time by stage", ["stage"], buckets=SECONDS, registry=registry)
        self.queue_requests = Gauge(
            "keel_queue_requests", "Requests that wait or are computed", registry=registry, multiprocess_mode="livesum"
        )
        self.queue_tokens = Gauge(
            "keel_queue_tokens", "Tokens that wait", registry=registry, multiprocess_mode="livesum"
        )
        self._batch_tokens = Histogram("keel_batch_tokens", "Tokens of a batch", buckets=TOKENS, registry=registry)
        self._batch_rows = Histogram("keel_batch_rows", "Rows of a batch", buckets=ROWS, registry=registry)
        self.batches = 0
        self._stage = {name: self._stages.labels(name) for name in ("tokenize", "queue", "compute", "format")}

    def stage(self, name: str, seconds: float) -> None:
        self._stage[name].observe(seconds)

    def batch(self, tokens: int, rows: int, seconds: float) -> None:
        self.batches += 1
        self._batch_tokens.observe(tokens)
        self._batch_rows.observe(rows)
        self.stage("compute", seconds)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        if SHARED_METRICS in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
            return generate_latest(registry)
        return generate_latest(self.registry)
