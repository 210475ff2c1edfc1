"""The resources of this machine: the device, the cores and memory that a run may use, and a CPU made safe for bf16.

In: `/proc`, the cgroup limits, and one child process. Out: a number of threads, a number of bytes, and (only on
machines that trap AMX) the environment variable that caps the instruction set.

Notable choices
- Some virtual machines advertise AMX but trap it: the first bf16 matmul then kills the process with SIGILL, without a
  message, while `torch.cpu._is_amx_tile_supported()` still returns True. A child process that is allowed to die tries
  it. Machines whose CPU does not list AMX pay nothing.
- The result is cached per boot, CPU model and torch version: a home folder may be shared by machines with the same CPU,
  of which only some trap, and a virtual machine may run on other hardware after a restart.
- The result is also kept for the lifetime of the process: the cap that this sets must not be taken for the user's own.
- If the child gives no result in time, the cap is set: it costs some bf16 speed, whereas a wrong guess the other way
  costs the run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from keel.errors import UserError
from keel.files.folders import write_file

if TYPE_CHECKING:
    import torch

ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
ISA_CAP = "AVX512_CORE_BF16"
PROBE_SECONDS = 60.0
CACHED_ANSWERS = 16
THREADS_PER_CPU = 4

# glibc's constants M_MMAP_THRESHOLD (blocks from this size on are mapped separately), M_TRIM_THRESHOLD (free space at
# the top of the heap that is returned to the kernel) and M_TOP_PAD (extra space requested at once).
MAPPED, TRIMMED, PADDED = -3, -1, -2

FINE, TRAPPED, BROKEN, UNKNOWN = "fine", "trapped", "broken", "unknown"

# Two sizes, because small products use a different kernel from large ones; the sums are exact in bf16, so a machine
# that computes wrong numbers instead of crashing is detected too.
PROBE = """
import torch
for n in (64, 256):
    ones = torch.ones(n, n, dtype=torch.bfloat16)
    product = torch.nn.functional.linear(ones, ones) + ones @ ones
    assert product.eq(2 * n).all(), "bf16 matmul gave wrong numbers"
"""

Survives = Callable[[bool], bool | None]


def find_device(name: str) -> torch.device:
    """The torch device of this name; `auto`: an accelerator if there is one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(f"--device {name}: not available here; `keel doctor` lists the available devices") from None
    return device


@cache
def prepare_cpu() -> str:
    """Makes bf16 safe in this process; call before the first matmul. Returns FINE, TRAPPED, BROKEN or UNKNOWN."""
    if os.environ.get(ISA_VARIABLE) or not any(flag.startswith("amx") for flag in cpu_flags()):
        return FINE
    answer = _remembered(_cache_file(), _cache_key(), bf16_trap)
    if answer != FINE:
        os.environ[ISA_VARIABLE] = ISA_CAP
    return answer


@cache
def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next step instead of returning it to the kernel; True on success.

    A step frees and allocates the same hundreds of megabytes; each time the kernel has to clear new pages, which takes
    up to a sixth of a long run's time. malloc settings of the user are respected; other C libraries have no such call.
    """
    import ctypes

    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Older versions reject more than half of an arena. If both values are rejected, the others must not be set: they
    # would disable malloc's dynamic threshold.
    if not (mallopt(MAPPED, 2**30) or mallopt(MAPPED, 2**25)):
        return False
    return bool(mallopt(TRIMMED, 2**31 - 1) and mallopt(PADDED, 2**26))


def return_freed_memory() -> None:
    """Returns free memory inside the heap to the kernel, where the C library can (glibc).

    Tensors of ever-changing sizes leave holes that no later one fits into: without this a prediction of a million rows
    grew by half a gigabyte. It takes about 20 ms, and the pages are cleared again when they are needed.
    """
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def bf16_trap(survives: Survives | None = None) -> str:
    """FINE: bf16 works. TRAPPED: only with the cap. BROKEN: not even with it. UNKNOWN: no result from the child."""
    survives = survives or bf16_survives
    free = survives(False)
    if free is None:
        return UNKNOWN
    if free:
        return FINE
    return TRAPPED if survives(True) else BROKEN


def bf16_survives(capped: bool, code: str = PROBE, seconds: float = PROBE_SECONDS) -> bool | None:
    """Whether a child process survives a bf16 matmul; None if it could not be started or did not end in time."""
    environment = {k: v for k, v in os.environ.items() if k != ISA_VARIABLE}
    if capped:
        environment[ISA_VARIABLE] = ISA_CAP
    try:
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode == 0


def _cache_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "keel" / "cpu.json"


def _cache_key() -> str:
    return " | ".join(
        (cpu_model(), f"torch {importlib.metadata.version('torch')}", _read("/proc/sys/kernel/random/boot_id"))
    )


def _remembered(file: Path, key: str, ask: Callable[[], str]) -> str:
    """The cached result, or a new one. A cache that cannot be read or written only costs time."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        answer = known[key]
        if answer in (FINE, TRAPPED, BROKEN):
            return str(answer)
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    answer = ask()
    if answer != UNKNOWN:
        try:
            kept = dict(list(known.items())[-CACHED_ANSWERS:]) if isinstance(known, dict) else {}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, json.dumps(kept | {key: answer}, indent=2))
        except OSError:
            return answer
    return answer


@cache
def cpu_flags(cpuinfo: str = "/proc/cpuinfo") -> frozenset[str]:
    """The instruction sets that the kernel reports; empty without `/proc` (macOS, Windows)."""
    return frozenset(_cpuinfo("flags", cpuinfo).split() or _cpuinfo("Features", cpuinfo).split())


def cpu_model(cpuinfo: str = "/proc/cpuinfo") -> str:
    import platform

    return _cpuinfo("model name", cpuinfo) or platform.processor() or platform.machine()


def _cpuinfo(field: str, cpuinfo: str) -> str:
    for line in _read(cpuinfo).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""


def default_threads() -> int:
    """The default number of threads: OMP_NUM_THREADS if set, else the available physical cores, within the quota."""
    wish = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if wish.isdecimal() and len(wish) < 10 and int(wish) > 0:
        check_threads(int(wish), "OMP_NUM_THREADS=")
        return int(wish)
    quota = cpu_quota()
    return max(1, physical_cores() if quota is None else min(physical_cores(), int(quota)))


def check_threads(threads: int, option: str = "--threads ") -> None:
    """Raises for a number of threads that would only exhaust the machine."""
    most = THREADS_PER_CPU * max(os.cpu_count() or 1, 16)
    if not 0 < threads <= most:
        raise UserError(f"{option}{threads}: give 1 to {most}; this machine has {os.cpu_count()} CPUs")


def available_cpus() -> list[int]:
    """The logical CPUs the scheduler lets this process use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Available CPUs, hyper-threads of one core counted once: matmuls gain nothing from the second one."""
    siblings = (
        _read(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in available_cpus()
    )
    return len(set(siblings))


def cpu_quota(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> float | None:
    """The cgroup's (v2 or v1) limit in CPUs, the lowest of it and its parents; None if there is no limit."""
    limits = []
    for folder in _cgroup_folders("cpu", root, membership):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> int | None:
    """The cgroup's limit in bytes; None if there is no limit (which v1 writes as a huge number)."""
    limits = []
    for folder in _cgroup_folders("memory", root, membership):
        value = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if value.isdigit() and int(value) < 1 << 60:
            limits.append(int(value))
    return min(limits, default=None)


def available_memory() -> int | None:
    """The kernel's estimate of the bytes available without swapping."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_folders(controller: str, root: str, membership: str) -> list[Path]:
    """The folders of this process's cgroup and its parents. Inside a container the path is the host's and may not
    exist here; the root then has the container's own limits."""
    folders = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = Path(root) / controller if controllers else Path(root)
        inner = base / path.lstrip("/")
        folders += [inner, *(p for p in inner.parents if p.is_relative_to(base))]
    return folders


def _read(path: str | Path) -> str:
    """The content of a small kernel file; empty if it does not exist."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
