"""Who gets in, and to what: the key on every route, no way to the file system, other origins kept out."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import Answer, Connection, request

from keel.serving.login import Login

KEY = "a-key-of-the-tests"
OPEN = {"/health", "/health/ready"}
SECRET = "never to be seen"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with one run, and a file beside it that nobody may read."""
    folder = tmp_path_factory.mktemp("access")
    (folder / "secret.json").write_text(SECRET)
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text("name: one\ntraining: {steps: 1}\n")
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    (run / "report.html").write_text("<p>report</p>")
    return run.parent


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Any], minilm: Path, runs: Path) -> Any:
    origin = ("--cors", "https://page.example")
    return start_server(f"minilm={minilm}", "--api-key", KEY, "--runs", runs, *origin)


def ask(server: Any, *requests: bytes) -> list[Answer]:
    async def all_of_them() -> list[Answer]:
        connection = await Connection.open(server)
        answers = []
        for one in requests:
            await connection.send(one)
            answers.append(await connection.answer(body=not one.startswith(b"HEAD ")))
            if answers[-1].headers.get("connection") == "close":
                connection.close()
                connection = await Connection.open(server)
        connection.close()
        return answers

    return asyncio.run(all_of_them())


def routes_of_the_app() -> Iterator[tuple[str, str]]:
    """Every method and path, from the application itself: also those that its description leaves out."""
    from keel.serving.app import make_app
    from keel.serving.models import Models
    from keel.serving.service import Service
    from keel.serving.settings import Settings

    def walk(routes: Any) -> Iterator[tuple[str, str]]:
        for route in routes:
            if hasattr(route, "original_router"):
                yield from walk(route.original_router.routes)
            else:
                yield from ((method, route.path) for method in sorted(route.methods))

    yield from walk(make_app(Service(Models([]), Settings())).app.routes)


def test_every_route_needs_the_key(server: Any) -> None:
    found = sorted(set(routes_of_the_app()))
    paths = {path for _, path in found}
    assert len(paths) > 25 and {"/", "/metrics", "/v1/embed", "/page/{name:path}", "/openapi.json"} <= paths
    concrete = [
        (method, path.replace("{name:path}", "main.js").replace("{", "").replace("}", "")) for method, path in found
    ]
    concrete += [("GET", "/no-such-route"), ("DELETE", "/v1/embed"), ("OPTIONS", "/v1/embed")]
    without = ask(server, *(request(path, None, method) for method, path in concrete))
    wrong = ask(server, *(request(path, None, method, authorization=f"Bearer {KEY}x") for method, path in concrete))
    for (method, path), *answers in zip(concrete, without, wrong, strict=True):
        for answer in answers:
            if path in OPEN:
                assert answer.status == 200, (method, path)
            else:
                assert answer.status == 401, (method, path, answer.status)
                assert answer.headers["www-authenticate"] == "bearer"


@pytest.mark.parametrize(
    "header",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY}"},
        {"x_api_key": KEY},
        {"cookie": f"other=1; keel_key={Login(KEY).session}"},
        {"authorization": "Bearer other", "x_api_key": KEY},
    ],
    ids=["bearer", "lower case", "x-api-key", "cookie", "one of two"],
)
def test_the_key_opens(server: Any, header: dict[str, str]) -> None:
    (answer,) = ask(server, request("/v1/models", **header))
    assert answer.status == 200


@pytest.mark.parametrize(
    "header",
    [
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"x_api_key": ""},
        {"x_api_key": KEY[:-1]},
        {"x_api_key": KEY.upper()},
        {"x_api_key": "\xe9" * 10},
        {"cookie": f'keel_key="{KEY}'},
        {"cookie": f"keel_key={KEY}"},  # the cookie has what follows from the key, not the key
        {"cookie": f"keel_key={Login(KEY + 'x').session}"},
        {"cookie": "\xe9=\xe9; keel_key"},
    ],
)
def test_what_is_no_key_does_not(server: Any, header: dict[str, str]) -> None:
    (answer,) = ask(server, request("/v1/models", **header))
    assert answer.status == 401


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key that is given goes through `hmac.compare_digest`, also after one was right."""
    from keel.serving import gate, login
    from keel.serving.models import Models
    from keel.serving.service import Service
    from keel.serving.settings import Settings

    seen = list[bytes]()

    def compare(own: bytes, given: bytes) -> bool:
        assert own in (KEY.encode(), Login(KEY).session.encode())
        seen.append(given)
        return hmac.compare_digest(own, given)

    inside = gate.Gate(None, Service(Models([]), Settings(api_key=KEY)))
    watched = {"compare_digest": staticmethod(compare), "new": staticmethod(hmac.new)}
    for module in (gate, login):
        monkeypatch.setattr(module, "hmac", type("", (), watched))
    given = {b"authorization": b"Bearer " + KEY.encode(), b"x-api-key": b"second", b"cookie": b"keel_key=third"}
    assert inside._has_key(given)
    assert seen == [KEY.encode(), b"second", b"third"]


ESCAPES = [
    "../secret.json",
    "..%2fsecret.json",
    "..%2Fsecret.json",
    "%2e%2e/secret.json",
    "%2e%2e%2fsecret.json",
    "..%252fsecret.json",
    "..%c0%afsecret.json",
    "..\\secret.json",
    "..%5csecret.json",
    "....//secret.json",
    "../../../../../../../../etc/passwd",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "//etc/passwd",
    "file:///etc/passwd",
    "page.js%00.html",
    "%00",
    "one/../../secret.json",
    "C:%5cWindows",
    "a" * 5000,
]


@pytest.mark.parametrize("before", ["/page/", "/v1/runs/", "/models/", "/v1/models/", "/"])
def test_no_path_reaches_the_file_system(server: Any, before: str, runs: Path) -> None:
    """The secret lies beside the folder of runs; the paths are sent as they are, which no browser does."""
    paths = [before + path for path in [*ESCAPES, str(runs.parent / "secret.json"), str(runs / "one")]]
    if before == "/v1/runs/":
        paths += [f"{path}{end}" for path in paths for end in ("/metrics", "/report")]
    for path, answer in zip(paths, ask(server, *(request(path, x_api_key=KEY) for path in paths)), strict=True):
        assert answer.status in (404, 405, 422) or (answer.status, path) == (200, "//"), (path, answer.status)
        assert (
            SECRET.encode() not in answer.body and b"root:" not in answer.body and str(runs).encode() not in answer.body
        )


@pytest.mark.parametrize(
    "given", ["bytes=0-99999999999999999999", "bytes=-5", "bytes=" + "0-1," * 5000, "bytes=5-1", "x"]
)
def test_ranges_are_ignored(server: Any, given: str) -> None:
    """A whole answer, whatever part is asked for: nothing is computed from the numbers."""
    (run,) = json.loads(ask(server, request("/v1/runs", x_api_key=KEY))[0].body)["runs"]
    for path in ("/", "/page/main.js", f"/v1/runs/{run['id']}/report", f"/v1/runs/{run['id']}/metrics"):
        plain, part = ask(server, request(path, x_api_key=KEY), request(path, x_api_key=KEY, range=given))
        assert (plain.status, plain.body) == (200, part.body) and part.status == 200, path


def test_only_named_origins_may_ask(server: Any) -> None:
    """A browser asks first, and without the key, whether a page may send one."""
    question = {"access_control_request_method": "POST", "access_control_request_headers": "authorization"}
    named, other, answered, foreign = ask(
        server,
        request("/v1/embed", None, "OPTIONS", origin="https://page.example", **question),
        request("/v1/embed", None, "OPTIONS", origin="https://other.example", **question),
        request("/v1/models", x_api_key=KEY, origin="https://page.example"),
        request("/v1/models", x_api_key=KEY, origin="https://other.example"),
    )
    assert named.status == 200 and named.headers["access-control-allow-origin"] == "https://page.example"
    assert "authorization" in named.headers["access-control-allow-headers"]
    assert other.status == 400 and "access-control-allow-origin" not in other.headers
    assert answered.headers["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-origin" not in foreign.headers


@pytest.fixture(scope="module")
def open_server(start_server: Callable[..., Any], minilm: Path) -> Any:
    """Without a key, as it is started first."""
    return start_server(f"minilm={minilm}")


def test_without_a_key_only_this_machine_asks(open_server: Any) -> None:
    """It listens on a loopback address, answers to loopback names only, and lets no page of another origin read."""
    assert open_server.host == "127.0.0.1"
    question = {"origin": "https://page.example", "access_control_request_method": "POST"}
    own, rebound, asked, nameless = ask(
        open_server,
        request("/v1/models", origin="https://page.example"),
        request("/v1/models", host="attacker.example"),
        request("/v1/embed", None, "OPTIONS", **question),
        request("/v1/models", host=""),
    )
    assert own.status == 200 and not any(name.startswith("access-control") for name in own.headers)
    assert rebound.status == 403 and "loopback" in json.dumps(rebound.json())
    assert asked.status == 405 and not any(name.startswith("access-control") for name in asked.headers)
    assert nameless.status == 403
