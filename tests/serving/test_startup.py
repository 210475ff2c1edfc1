"""How long `keel serve` takes from its start to its first answer, with a model of MiniLM's size."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECONDS = 3.0  # without the import of torch
TIMES = 2  # the fastest counts
IMPORT = "import time; began = time.perf_counter(); import torch; print(time.perf_counter() - began)"


@pytest.mark.clock
def test_it_answers_within_three_seconds(
    start_server: Callable[..., Any], minilm: Path, record_property: Callable[[str, object], None]
) -> None:
    def start() -> float:
        began = time.monotonic()
        server = start_server(f"minilm={minilm}", "--quiet")
        question = urllib.request.Request(
            f"{server.url}/v1/embed", json.dumps({"texts": ["the gull"]}).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(question, timeout=30) as answer:
            assert len(json.load(answer)["vectors"][0]) == 384
        seconds = time.monotonic() - began
        server.stop()
        return seconds

    def import_torch() -> float:
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        return float(done.stdout)

    imports, starts = min(import_torch() for _ in range(TIMES)), min(start() for _ in range(TIMES))
    record_property("seconds to the first vector", round(starts, 2))
    record_property("of which torch's import", round(imports, 2))
    assert starts - imports < SECONDS
