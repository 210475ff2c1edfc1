"""What answers cost: texts per second and memory of a process that does nothing else.

    python -m keel.stages.cost MODEL FILE

In: a fine-tuned model and labelled data. Out: one JSON object. The first batch is not timed.
"""

from __future__ import annotations

import json
import resource
import sys
import time

WARM_UP = 16


def cost(model: str, data: str) -> dict[str, float]:
    from keel.stages.evaluate import open_task

    loaded = open_task(model)
    examples, _ = loaded.task.bind(data).read(data)
    loaded.answer(examples[:WARM_UP])
    began = time.perf_counter()
    loaded.answer(examples)
    spent = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobytes = peak / 1024 if sys.platform == "darwin" else peak  # bytes there
    return {"per_second": len(examples) / spent, "megabytes": kilobytes / 1024}


if __name__ == "__main__":
    json.dump(cost(*sys.argv[1:3]), sys.stdout)
