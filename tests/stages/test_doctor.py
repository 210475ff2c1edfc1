"""The bf16 trap is found without falling into it, and the limits of containers are read as the kernel writes them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keel import machine
from keel.stages import doctor

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
DIES_UNLESS_CAPPED = f"import os\nif os.environ.get({machine.ISA_VARIABLE!r}) != {machine.ISA_CAP!r}:\n    {DIES}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # monkeypatch must know the variable to take away what prepare_cpu sets
    monkeypatch.setenv(machine.ISA_VARIABLE, "")
    monkeypatch.delenv(machine.ISA_VARIABLE)
    machine.prepare_cpu.cache_clear()
    yield
    machine.prepare_cpu.cache_clear()
    os.environ.pop(machine.ISA_VARIABLE, None)


def advertise_amx(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"avx512f", "amx_tile", "amx_bf16"}))
    real = machine.bf16_survives
    monkeypatch.setattr(machine, "bf16_survives", lambda capped: real(capped, code))


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("", machine.FINE),
        (DIES_UNLESS_CAPPED, machine.TRAPPED),
        (DIES, machine.BROKEN),
        ("raise AssertionError('wrong numbers')", machine.BROKEN),
    ],
)
def test_a_child_that_dies_of_sigill_gives_the_verdict(
    code: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertise_amx(monkeypatch, code)
    assert machine.prepare_cpu() == verdict
    assert os.environ.get(machine.ISA_VARIABLE) == (None if verdict == machine.FINE else machine.ISA_CAP)
    assert machine.prepare_cpu() == verdict, "the cap it set itself does not change its mind"


def test_a_child_that_does_not_answer_is_no_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.bf16_survives(False, "import time; time.sleep(9)", seconds=0.2) is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    advertise_amx(monkeypatch, "")
    assert machine.prepare_cpu() == machine.UNKNOWN
    assert os.environ[machine.ISA_VARIABLE] == machine.ISA_CAP
    assert not (tmp_path / "cache").exists(), "not knowing is not remembered"


def test_the_answer_is_remembered_and_a_damaged_memory_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    advertise_amx(monkeypatch, DIES_UNLESS_CAPPED)
    assert machine.prepare_cpu() == machine.TRAPPED
    del os.environ[machine.ISA_VARIABLE]
    machine.prepare_cpu.cache_clear()
    monkeypatch.setattr(machine, "bf16_survives", lambda capped: pytest.fail("asked again"))
    assert machine.prepare_cpu() == machine.TRAPPED
    (file,) = (tmp_path / "cache").rglob("*.json")
    for damage in ("{", "[]", "3", json.dumps(dict.fromkeys(json.loads(file.read_text()), "perfect"))):
        file.write_text(damage)
        del os.environ[machine.ISA_VARIABLE]
        machine.prepare_cpu.cache_clear()
        monkeypatch.setattr(machine, "bf16_survives", lambda capped: capped)
        assert machine.prepare_cpu() == machine.TRAPPED


def test_an_unwritable_cache_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is wanted")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    advertise_amx(monkeypatch, "")
    assert machine.prepare_cpu() == machine.FINE


def test_machines_without_amx_and_users_who_chose_pay_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "bf16_survives", lambda capped: pytest.fail("asked"))
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"avx2"}))
    assert machine.prepare_cpu() == machine.FINE
    machine.prepare_cpu.cache_clear()
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"amx_tile"}))
    monkeypatch.setenv(machine.ISA_VARIABLE, "AVX2")
    assert machine.prepare_cpu() == machine.FINE
    assert os.environ[machine.ISA_VARIABLE] == "AVX2"


@pytest.mark.clock  # a probe that takes too long counts as a crash
def test_the_real_probe_does_not_kill_the_one_who_asks() -> None:
    assert machine.bf16_trap() in (machine.FINE, machine.TRAPPED)


def test_cpuinfo_of_intel_and_arm(tmp_path: Path) -> None:
    intel, arm = tmp_path / "intel", tmp_path / "arm"
    intel.write_text("processor\t: 0\nmodel name\t: Xeon 8481C\nflags\t\t: fpu avx2 amx_tile\n")
    arm.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert machine.cpu_flags(str(intel)) == {"fpu", "avx2", "amx_tile"}
    assert machine.cpu_model(str(intel)) == "Xeon 8481C"
    assert "asimd" in machine.cpu_flags(str(arm))
    assert machine.cpu_flags(str(tmp_path / "none")) == frozenset()


def test_cgroup_2_takes_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    inner = tmp_path / "cg" / "pod" / "box"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    (inner / "memory.max").write_text("1073741824\n")
    (inner.parent / "memory.max").write_text("max\n")
    (tmp_path / "self").write_text("0::/pod/box\n")
    assert machine.cpu_quota(str(tmp_path / "cg"), str(tmp_path / "self")) == 1.5
    assert machine.memory_limit(str(tmp_path / "cg"), str(tmp_path / "self")) == 1 << 30


def test_cgroup_1_and_its_way_of_saying_no_limit(tmp_path: Path) -> None:
    for controller, files in {
        "cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
        "memory": {"memory.limit_in_bytes": "9223372036854771712"},
    }.items():
        (tmp_path / controller).mkdir()
        for name, text in files.items():
            (tmp_path / controller / name).write_text(text)
    (tmp_path / "self").write_text("4:memory:/host/only\n1:cpu,cpuacct:/host/only\n")
    assert machine.cpu_quota(str(tmp_path), str(tmp_path / "self")) is None
    assert machine.memory_limit(str(tmp_path), str(tmp_path / "self")) is None
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    assert machine.cpu_quota(str(tmp_path), str(tmp_path / "self")) == 0.5


@pytest.mark.parametrize(
    ("wish", "quota", "threads"), [("3", 1.0, 3), ("", 1.9, 1), ("", 0.5, 1), ("", None, 4), ("x", 2.0, 2)]
)
def test_default_threads(wish: str, quota: float | None, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", wish)
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    monkeypatch.setattr(machine, "physical_cores", lambda: 4)
    assert machine.default_threads() == threads


FACTS: dict[str, Any] = {
    "version": "2.9.0",
    "threads": 2,
    "blas": "MKL",
    "onednn": True,
    "cuda_build": "",
    "gpus": [],
    "mps": False,
    "gflops": {"float32": 100.0, "bfloat16": 95.0},
}


def checks(verdict: str, facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    result = doctor.examine(trap=lambda: verdict, measure=lambda threads, bf16, capped: facts)
    assert json.loads(json.dumps(result)) == result
    return {check["name"]: check for check in result["checks"]}


def test_the_doctor_names_the_trap_and_its_cure() -> None:
    found = checks(machine.TRAPPED, FACTS)["bf16 trap"]
    assert found["verdict"] == "warn"
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in found["advice"]
    assert checks(machine.FINE, FACTS)["bf16 trap"]["verdict"] == "ok"


def test_bf16_is_measured_only_where_it_cannot_kill() -> None:
    asked = []
    for verdict in (machine.FINE, machine.TRAPPED, machine.BROKEN, machine.UNKNOWN):
        doctor.examine(trap=lambda v=verdict: v, measure=lambda *question: asked.append(question[1:]) or FACTS)
    assert asked == [(True, False), (True, True), (False, False), (False, False)]


def test_whether_bf16_is_worth_it_follows_the_measurement() -> None:
    assert "not worth it" in checks(machine.FINE, FACTS)["bf16 speed"]["value"]
    faster = FACTS | {"gflops": {"float32": 100.0, "bfloat16": 210.0}}
    assert "2.10 x fp32: worth" in checks(machine.FINE, faster)["bf16 speed"]["value"]


def test_the_doctor_survives_a_torch_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MEASURE", "raise ImportError('libgomp.so.1 is missing')")
    found = checks(machine.UNKNOWN, doctor._measure(1, True, False))
    assert found["torch"]["verdict"] == "warn" and "libgomp" in found["torch"]["value"]
    assert "fp32 speed" not in found


def test_too_many_threads_and_idle_cores_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: [0, 1])
    monkeypatch.setattr(machine, "physical_cores", lambda: 2)
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert [doctor._threads(n)["verdict"] for n in (1, 2, 3)] == ["note", "ok", "warn"]


def test_a_missing_extra_comes_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "zh", ("no-such-distribution", "Chinese"))
    found = checks(machine.FINE, FACTS)["extra zh"]
    assert found["verdict"] == "note" and "pip install 'keel-nlp[zh]'" in found["advice"]


def test_every_extra_that_a_user_may_need_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - {"dev", "docs"}
    assert all(
        any(needed.startswith(package) for needed in extras[name]) for name, (package, _) in doctor.EXTRAS.items()
    )


@pytest.mark.clock
def test_the_whole_examination_is_quick() -> None:
    result = doctor.examine()
    assert result["seconds"] < 20  # about 4 on an idle machine; a test machine is rarely idle
    assert result["measured"]["gflops"]["float32"] > 1
    assert {"python", "torch", "cpu", "cores", "threads", "memory", "disk", "gpu", "bf16 trap", "tokenizers"} <= {
        c["name"] for c in result["checks"]
    }


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_freed_by_one_step_is_there_for_the_next() -> None:
    """Pages the kernel has to clear for taking and freeing 64 MiB twenty times: a third at most with the setting."""
    code = (
        "import ctypes, resource\nfrom keel.machine import keep_freed_memory\n{}\nc = ctypes.CDLL(None)\n"
        "c.malloc.restype = ctypes.c_void_p\nc.free.argtypes = [ctypes.c_void_p]\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "def step():\n  place = c.malloc(1 << 26)\n  ctypes.memset(place, 1, 1 << 26)\n  c.free(place)\n"
        "before = faults()\nfor _ in range(20): step()\nprint(faults() - before)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    without, kept = (
        int(subprocess.run([sys.executable, "-c", c], env=environment, capture_output=True, check=True).stdout)
        for c in (code.format(""), code.format("assert keep_freed_memory()"))
    )
    assert kept < without / 3
