"""Mistakes on the command line of `keel serve` are one line each; every option is a variable of the environment too."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keel.cli.commands import serve
from keel.errors import UserError

Refused = Callable[..., str]
KEY = "a-key-of-the-tests"
TEXT = "Nobody but the log may see this."


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_folders_that_are_no_model(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("no folder")
    free = ("--port", "0")
    assert "empty: there is no config.json" in refused("serve", "empty", *free)
    assert "missing: no such model folder" in refused("serve", "missing", *free)
    assert "file.txt: no such model folder" in refused("serve", "file.txt", *free)
    assert "two models are called 'empty'" in refused("serve", "empty", "other/../empty", *free)
    assert "two models are called 'a'" in refused("serve", "a=empty", "a=missing", *free)
    assert "serve needs MODEL" in refused("serve")


def test_ports_that_cannot_be_had(refused: Refused, minilm: Path, taken: int) -> None:
    assert f"127.0.0.1:{taken}: another program has this port" in refused("serve", minilm, "--port", taken)
    for port in (-1, 65536, 1 << 40):
        assert f"--port {port}: a port is a number" in refused("serve", minilm, "--port", port)
    assert "no such address" in refused("serve", minilm, "--host", "no.such.host.invalid")
    assert "does not have this address" in refused("serve", minilm, "--host", "192.0.2.1", "--port", "0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs another user")
def test_ports_of_the_administrator() -> None:
    """As a user who has no rights: another process, because rights do not come back."""
    from keel.serving.server import listen

    first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not first.exists() or int(first.read_text()) <= 81:
        pytest.skip("this system lets everybody have low ports")
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            listen("127.0.0.1", 81)
            os.write(write, b"it listens")
        except UserError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).startswith(b"127.0.0.1:81: ports below 1024 need rights")
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("missing", serve.NEEDED)
def test_a_missing_extra(refused: Refused, minilm: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    assert refused("serve", minilm) == f"keel: keel serve needs {missing}: pip install 'keel-nlp[serve]'"


WRONG = [
    ("--workers", "0", "greater than or equal to 1"),
    ("--workers", "two", "valid integer"),
    ("--threads", "100000", "--threads 100000"),
    ("--max-queue", "0", "greater than or equal to 1"),
    ("--max-wait-ms", "inf", "less than or equal to"),
    ("--timeout", "nan", "or equal to"),
    ("--timeout", "soon", "valid number"),
    ("--header-timeout", "1e30", "less than or equal to"),
    ("--api-key", "short", "at least 8 ASCII characters"),
    ("--api-key", "schlüssel", "at least 8 ASCII characters"),
    ("--runs", "nowhere", "no such folder"),
    ("--cors", "*", "--api-key"),
    ("--cors", "example.org", "an origin is like"),
    ("--device", "gpu9", "not available here"),
    ("--quiet", "maybe", "valid boolean"),
]


@pytest.mark.parametrize(("flag", "value", "said"), WRONG)
def test_wrong_values(
    refused: Refused, minilm: Path, flag: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line, and in the environment, where the line names the variable."""
    if flag != "--quiet":
        assert said in refused("serve", minilm, "--port", "0", flag, value)
    variable = "KEEL_" + flag.removeprefix("--").replace("-", "_").upper()
    monkeypatch.setenv(variable, value)
    line = refused("serve", minilm, "--port", "0")
    assert said in line and (variable in line or f"{flag}" in line)
    if "Invalid value" in line:
        assert variable in line


def test_every_option_has_a_variable() -> None:
    command = serve.COMMAND.build("serve")
    options = [p for p in command.params if p.opts[0].startswith("--") and p.name != "help"]
    assert len(options) > 20
    for option in options:
        assert option.envvar == "KEEL_" + option.opts[0].removeprefix("--").replace("-", "_").upper()


@pytest.fixture(scope="module")
def configured(start_server: Callable[..., Any], minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose settings are all in the environment; a flag has precedence."""
    runs = tmp_path_factory.mktemp("runs")
    return start_server(
        f"minilm={minilm}",
        "--max-texts",
        "3",
        KEEL_API_KEY=KEY,
        KEEL_MAX_TEXTS="1",
        KEEL_MAX_CHARACTERS="100",
        KEEL_MAX_BODY="1000",
        KEEL_CORS="https://a.example https://b.example",
        KEEL_RUNS=str(runs),
        KEEL_LOG_TEXTS="1",
        KEEL_HEADER_TIMEOUT="0.5",
        KEEL_DEVICE="cpu",
        KEEL_ALLOW_PICKLE="",
    )


def test_the_environment_sets_a_server_up(configured: Any) -> None:
    client = httpx2.Client(base_url=configured.url, headers={"authorization": f"Bearer {KEY}"})
    assert httpx2.get(f"{configured.url}/v1/models").status_code == 401
    assert client.get("/v1/runs").json() == {"enabled": True, "runs": []}
    assert client.get("/v1/models", headers={"origin": "https://b.example"}).headers["access-control-allow-origin"]
    assert client.post("/v1/embed", json={"texts": ["a"] * 3}).status_code == 200
    assert "takes 3" in client.post("/v1/embed", json={"texts": ["a"] * 4}).text
    assert "takes 100" in client.post("/v1/embed", json={"texts": ["a" * 101]}).text
    assert "1,000 bytes" in client.post("/v1/embed", json={"texts": ["a" * 1001]}).text
    with socket.create_connection((configured.host, configured.port), timeout=10) as silent:
        began = time.monotonic()
        assert silent.recv(1) == b"" and time.monotonic() - began < 5


def logged(running: Any, id: str) -> dict[str, Any]:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for line in running.log.read_text().splitlines():
            if (entry := json.loads(line)).get("id") == id:
                return dict(entry)
        time.sleep(0.02)
    raise AssertionError(running.log.read_text())


def test_each_request_is_a_line_of_json(configured: Any, start_server: Callable[..., Any], minilm: Path) -> None:
    """With the request's id, which the answer has too; its texts only if that was asked for."""
    body = {"texts": [TEXT]}
    for running, key in ((configured, KEY), (start_server(f"minilm={minilm}"), None)):
        headers = {"x-request-id": "from-the-client"} | ({"x-api-key": key} if key else {})
        found = httpx2.post(f"{running.url}/v1/embed", json=body, headers=headers)
        assert found.headers["x-request-id"] == "from-the-client"
        line = logged(running, "from-the-client")
        assert {name: line[name] for name in ("event", "method", "route", "status")} == {
            "event": "request",
            "method": "POST",
            "route": "/v1/embed",
            "status": 200,
        }
        assert line["ms"] > 0 and line["time"].endswith("Z")
        assert line.get("texts") == ([TEXT] if key else None)
        forged = {**headers, "x-request-id": 'a" b\\'}
        wrong = httpx2.post(f"{running.url}/v1/embed", json={"texts": [TEXT, 5]}, headers=forged)
        assert wrong.status_code == 422 and wrong.headers["x-request-id"] != forged["x-request-id"]
        assert logged(running, wrong.headers["x-request-id"])["status"] == 422
        assert (TEXT in running.log.read_text()) == bool(key)
        assert KEY not in running.log.read_text()


def test_prometheus_can_read_the_figures(configured: Any) -> None:
    """Requests, queue, batches and the time of every stage, in a text that its own parser takes."""
    from prometheus_client.parser import text_string_to_metric_families

    client = httpx2.Client(base_url=configured.url, headers={"x-api-key": KEY})

    def figures() -> dict[tuple[str, str], float]:
        found = {}
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                found[sample.name, "".join(sample.labels.get(name, "") for name in ("stage", "route", "queue"))] = (
                    sample.value
                )
        return found

    before = figures()
    for _ in range(3):
        assert client.post("/embed", json={"inputs": ["the ship", "a mast and a keel"]}).status_code == 200
    after = figures()

    def grown(name: str, label: str = "") -> float:
        return after[name, label] - before.get((name, label), 0.0)

    assert grown("keel_requests_total", "/embed") == grown("keel_request_seconds_count", "/embed") == 3
    assert grown("keel_batch_tokens_sum", "batches") == 3 * (4 + 7)
    assert grown("keel_batch_rows_sum", "batches") == 6
    assert grown("keel_padding_tokens_total", "batches") == 0, "on a CPU rows of different lengths are not padded"
    for stage in ("tokenize", "queue", "compute", "format"):
        assert grown("keel_stage_seconds_count", stage) >= 3
        assert grown("keel_stage_seconds_sum", stage) > 0
    for queue in ("batches", "long"):
        assert after["keel_queue_requests", queue] == after["keel_queue_tokens", queue] == 0


def test_padding_is_what_the_longest_row_of_a_batch_costs_the_others() -> None:
    from keel.serving.metrics import Metrics

    metrics = Metrics(pads=True)
    queue = metrics.of_queue("batches")
    for sizes in ([4, 7], [5], [1, 1, 9]):
        queue.batch(sizes, 0.001)
    assert 'keel_padding_tokens_total{queue="batches"} 19.0' in metrics.text().decode()
