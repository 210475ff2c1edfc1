"""The cost of predictions: texts per second and peak memory, measured in a process of its own.

    python -m keel.comparing.cost MODEL FILE DEVICE THREADS

In: a fine-tuned model and labelled data. Out: one JSON object. The first batch is not timed.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

WARM_UP = 16


def cost(model: str, data: str, device: str, threads: int) -> dict[str, float]:
    import torch

    from keel.inference.tasks import open_task
    from keel.values import Examples

    torch.set_num_threads(threads)
    loaded = open_task(model, device=device)
    task = loaded.need_task()
    found = Examples.of(task.open(data))
    loaded.task, examples = type(task)(task.config, found.data), found.examples
    loaded.answer(examples[:WARM_UP])
    began = time.perf_counter()
    loaded.answer(examples)
    spent = time.perf_counter() - began
    return {"per_second": len(examples) / spent, "megabytes": peak_kilobytes() / 1024}


def peak_kilobytes(status: Path = Path("/proc/self/status")) -> float:
    """Peak memory of this process. On Linux, `ru_maxrss` starts at the parent's value, so /proc is read instead."""
    lines = status.read_text().splitlines() if status.is_file() else []
    for line in lines:
        if line.startswith("VmHWM"):
            return float(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak  # macOS reports bytes


if __name__ == "__main__":
    _, folder, file, where, count = sys.argv
    json.dump(cost(folder, file, where, int(count)), sys.stdout)
