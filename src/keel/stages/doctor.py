"""`keel doctor`: checks what determines training speed on this machine, and what could crash a run.

In: nothing. Out: a list of checks, each with what was found, a verdict (ok, note, warn) and what to do about it.

Notable choices
- torch is never imported here. Child processes report torch's properties and measure its speed, because a bf16 matmul
  may kill the process that tries it (see `machine.py`), and this process has to survive that.
- The speeds of fp32 and bf16 are medians of alternating products in one process, so a busy machine slows both.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keel import machine

PROBE_SECONDS = 20.0
GIGABYTE = 1 << 30
BF16_WORTH_IT = 1.15

# extra -> (distribution, what it is for)
EXTRAS = {
    "zh": ("rjieba", "whole-word masking of Chinese"),
    "hf": ("transformers", "comparison with Hugging Face models"),
    "hub": ("huggingface_hub", "published models by name (keel fetch)"),
    "parquet": ("pyarrow", ".parquet files"),
    "fast": ("numba", "word2vec and fastText"),
    "translate": ("sacrebleu", "BLEU and chrF of translations"),
    "track": ("tensorboard", "the log of a run for TensorBoard (--track)"),
    "plot": ("matplotlib", "pictures of attention as .png"),
    "serve": ("fastapi", "answers over HTTP and the page (keel serve)"),
}

SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
    "TOKENIZERS_PARALLELISM",
    "RAYON_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    machine.ISA_VARIABLE,
)

# argv: threads, dtypes to multiply (comma separated). Prints one JSON object.
MEASURE = """
import json, statistics, sys, time
import torch
torch.set_num_threads(int(sys.argv[1]))
mps = getattr(torch.backends, "mps", None)
facts = {
    "version": torch.__version__,
    "threads": torch.get_num_threads(),
    "capability": torch.backends.cpu.get_cpu_capability(),
    "blas": "MKL" if torch.backends.mkl.is_available() else "other",
    "onednn": torch.backends.mkldnn.is_available(),
    "cuda_build": torch.version.cuda or torch.version.hip or "",
    "gpus": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    "mps": bool(mps and mps.is_available()),
}
n = 1024
pairs = {t: torch.randn(n, n).to(getattr(torch, t)) for t in sys.argv[2].split(",")}
times = {t: [] for t in pairs}
with torch.inference_mode():
    for a in pairs.values():
        a @ a
    end = time.perf_counter() + 1.2
    while not times["float32"] or (time.perf_counter() < end and len(times["float32"]) < 40):
        for t, a in pairs.items():
            start = time.perf_counter()
            a @ a
            times[t].append(time.perf_counter() - start)
facts["gflops"] = {t: 2e-9 * n**3 / statistics.median(s) for t, s in times.items()}
print(json.dumps(facts))
"""

Check = dict[str, str]


def examine(
    trap: Callable[[], str] | None = None, measure: Callable[[int, bool, bool], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """All checks, the worst verdict, and the measured figures. Takes a few seconds and changes nothing."""
    start = time.monotonic()
    threads = machine.default_threads()
    verdict = (trap or _trap)()
    usable = verdict in (machine.FINE, machine.TRAPPED)
    facts = (measure or _measure)(threads, usable, verdict == machine.TRAPPED)
    checks = [
        _python(),
        _torch(facts),
        _cpu(),
        _cores(),
        _threads(threads),
        _load(),
        _settings(),
        _memory(),
        _disk(),
        _gpus(facts),
        _trap_check(verdict),
        *_speed(facts),
        _tokenizers(),
        *_extras(),
    ]
    worst = max((c["verdict"] for c in checks), key=("ok", "note", "warn").index)
    return {"verdict": worst, "checks": checks, "measured": facts, "seconds": round(time.monotonic() - start, 2)}


def _check(name: str, value: str, verdict: str = "ok", advice: str = "") -> Check:
    return {"name": name, "value": value, "verdict": verdict, "advice": advice}


def _trap() -> str:
    return machine.bf16_trap(lambda capped: machine.bf16_survives(capped, seconds=PROBE_SECONDS))


def _measure(threads: int, bf16: bool, capped: bool) -> dict[str, Any]:
    """torch's properties and its matmul speed; only the reason, under `error`, if the child process failed."""
    environment = dict(os.environ) | ({machine.ISA_VARIABLE: machine.ISA_CAP} if capped else {})
    command = [sys.executable, "-c", MEASURE, str(threads), "float32,bfloat16" if bf16 else "float32"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error).splitlines()[0]}
    if done.returncode:
        return {
            "error": (done.stderr.strip().splitlines() or [f"the child process exited with code {done.returncode}"])[-1]
        }
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _python() -> Check:
    return _check("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch(facts: dict[str, Any]) -> Check:
    if "error" in facts:
        return _check(
            "torch", f"does not work: {facts['error']}", "warn", "reinstall it: pip install --force-reinstall torch"
        )
    parts = [facts["version"], facts["blas"], "oneDNN" if facts["onednn"] else "without oneDNN"]
    parts.append(f"CUDA {facts['cuda_build']}" if facts["cuda_build"] else "CPU build")
    if not facts["onednn"]:
        return _check(
            "torch", ", ".join(parts), "warn", "this build lacks oneDNN and will be slow: install an official wheel"
        )
    return _check("torch", ", ".join(parts))


def _cpu() -> Check:
    flags = machine.cpu_flags()
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "bf16", "sve")
    found = [flag for flag in known if flag in flags]
    value = f"{machine.cpu_model()} ({', '.join(found) or 'instruction sets unknown'})"
    if flags and not {"avx2", "asimd"} & flags:
        return _check("cpu", value, "warn", "without AVX2 training is several times slower: use another machine")
    return _check("cpu", value)


def _cores() -> Check:
    quota, logical, physical = machine.cpu_quota(), len(machine.available_cpus()), machine.physical_cores()
    value = f"{physical} cores, {logical} logical" + (f", quota {quota:g}" if quota is not None else "")
    total = os.cpu_count() or logical
    if quota is not None and quota < physical:
        return _check("cores", value, "note", f"the container is limited to {quota:g} CPUs: raise its CPU limit")
    if logical < total:
        return _check("cores", f"{value} of {total}", "note", "CPU affinity restricts this process to some of the CPUs")
    return _check("cores", value)


def _threads(threads: int) -> Check:
    quota = machine.cpu_quota()
    room = len(machine.available_cpus()) if quota is None else max(1, int(quota))
    if threads > room:
        advice = f"more threads than CPUs slows every step: export OMP_NUM_THREADS={room}"
        return _check("threads", str(threads), "warn", advice)
    if threads < min(machine.physical_cores(), room):
        return _check("threads", str(threads), "note", "OMP_NUM_THREADS leaves cores idle: unset it, or pass --threads")
    return _check("threads", str(threads))


def _load() -> Check:
    if not hasattr(os, "getloadavg"):
        return _check("load", "unknown")
    load, cpus = os.getloadavg()[0], len(machine.available_cpus())
    if load > 0.5 * cpus:
        advice = (
            "other processes are busy; training threads wait for each other, so even one slows training several times"
        )
        return _check("load", f"{load:.1f} on {cpus} CPUs", "note", advice)
    return _check("load", f"{load:.1f} on {cpus} CPUs")


def _settings() -> Check:
    found = [f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)]
    return _check("settings", ", ".join(found) or "no environment variable that affects speed is set")


def _memory() -> Check:
    free, limit = machine.available_memory(), machine.memory_limit()
    if free is None:
        return _check("memory", "unknown")
    room = free if limit is None else min(free, limit)
    value = f"{free / GIGABYTE:.1f} GB available" + (f", container limit {limit / GIGABYTE:.1f} GB" if limit else "")
    if room < 2 * GIGABYTE:
        return _check("memory", value, "warn", "enough for tiny models only: close programs or raise the limit")
    return _check("memory", value)


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    value = f"{free / GIGABYTE:.1f} GB free in {here}"
    if free < GIGABYTE:
        return _check("disk", value, "warn", "checkpoints need space: free some, or choose --out on another disk")
    return _check("disk", value)


def _gpus(facts: dict[str, Any]) -> Check:
    if facts.get("gpus"):
        return _check("gpu", ", ".join(facts["gpus"]))
    if facts.get("mps"):
        return _check("gpu", "Apple MPS")
    if shutil.which("nvidia-smi"):
        advice = "an NVIDIA driver is installed, but torch finds no GPU: install the CUDA build of torch"
        return _check("gpu", "none usable", "warn", advice)
    return _check("gpu", "none: training runs on the CPU")


def _trap_check(verdict: str) -> Check:
    cap = f"{machine.ISA_VARIABLE}={machine.ISA_CAP}"
    if verdict == machine.TRAPPED:
        advice = f"Keel sets {cap} for itself; for other programs: export {cap}"
        return _check("bf16 trap", "yes: AMX is advertised, but a bf16 matmul kills the process", "warn", advice)
    if verdict == machine.BROKEN:
        return _check("bf16 trap", "bf16 does not work here at all", "warn", "keep training.precision at fp32")
    if verdict == machine.UNKNOWN:
        return _check(
            "bf16 trap", "the test did not finish", "note", f"to be safe Keel sets {cap} where AMX is advertised"
        )
    return _check("bf16 trap", "no: bf16 matmuls are safe")


def _speed(facts: dict[str, Any]) -> list[Check]:
    speeds = facts.get("gflops", {})
    if "float32" not in speeds:
        return []
    full = speeds["float32"]
    checks = [_check("fp32 speed", f"{full:.0f} GFLOP/s with {facts['threads']} threads")]
    if "bfloat16" in speeds:
        gain = speeds["bfloat16"] / full
        worth = gain >= BF16_WORTH_IT
        value = (
            f"{speeds['bfloat16']:.0f} GFLOP/s, {gain:.2f} x fp32: {'worth trying' if worth else 'not worth it here'}"
        )
        advice = "training.precision=bf16 may be faster: measure a few hundred steps of each" if worth else ""
        checks.append(_check("bf16 speed", value, "note" if worth else "ok", advice))
    return checks


def _tokenizers() -> Check:
    setting = os.environ.get("TOKENIZERS_PARALLELISM", "").lower()
    if setting in ("0", "false", "off", "no", "f", "n"):
        advice = "training a vocabulary will use one core: unset TOKENIZERS_PARALLELISM"
        return _check("tokenizers", "one thread (switched off)", "note", advice)
    threads = os.environ.get("RAYON_NUM_THREADS") or str(len(machine.available_cpus()))
    return _check("tokenizers", f"{importlib.metadata.version('tokenizers')}, {threads} threads")


def _extras() -> list[Check]:
    checks = []
    for extra, (distribution, gives) in EXTRAS.items():
        try:
            version = importlib.metadata.version(distribution)
            checks.append(_check(f"extra {extra}", f"{distribution} {version}: {gives}"))
        except importlib.metadata.PackageNotFoundError:
            cure = f"for {gives}: pip install 'keel-nlp[{extra}]'"
            checks.append(_check(f"extra {extra}", f"{distribution} is not installed", "note", cure))
    return checks
