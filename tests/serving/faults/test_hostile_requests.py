"""Requests that no client should send: each is refused with one clear line, and the server goes on as before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from raw_http import Answer, Connection, request

MEGABYTE = 1 << 20
HUGE = 100 * MEGABYTE
REFUSED = {400, 404, 405, 413, 422, 424, 431}
LONGEST_LINE = 400  # characters of an error


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Any], minilm: Path) -> Any:
    return start_server(f"minilm={minilm}", "--timeout", "20")


@pytest.fixture(autouse=True)
def unharmed(server: Any) -> Any:
    """After every test: it answers as before, and has written no traceback."""
    yield
    answer = ask(server, request("/v1/embed", {"texts": ["the gull"]}))
    assert answer.status == 200 and len(answer.json()["vectors"][0]) == 384
    lines = server.log.read_text().splitlines()
    assert all(json.loads(line)["event"] in ("request", "warning") for line in lines), lines[-3:]


def ask(server: Any, data: bytes, seconds: float = 20) -> Answer:
    async def one() -> Answer:
        connection = await Connection.open(server)
        try:
            await connection.send(data)
            return await asyncio.wait_for(connection.answer(), seconds)
        finally:
            connection.close()

    return asyncio.run(one())


def message(answer: Answer) -> str:
    """The line that a person reads, wherever the dialect has it."""
    error = answer.json()["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def check_refused(answer: Answer, *statuses: int) -> str:
    assert answer.status in (statuses or REFUSED), (answer.status, answer.body[:300])
    line = message(answer)
    assert line and "\n" not in line and len(line) <= LONGEST_LINE and "Traceback" not in line, line[:1000]
    assert "site-packages" not in line, "no path of the server is told"
    return line


@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
def test_a_hundred_megabytes(server: Any, chunked: bool) -> None:
    """Most clients write all of it before they read: the connection must not be reset before they see the refusal."""
    piece = b"x" * MEGABYTE

    async def send() -> Answer:
        connection = await Connection.open(server)
        size = {"transfer_encoding": "chunked"} if chunked else {"content_length": str(HUGE)}
        head = request("/v1/embed", None, "POST", **size)
        await connection.send(head.replace(b"content-length: 0\r\n", b"") if chunked else head)
        for _ in range(HUGE // MEGABYTE):
            await connection.send(b"%x\r\n%s\r\n" % (MEGABYTE, piece) if chunked else piece)
        answer = await connection.answer()
        assert await connection.closed(5)
        return answer

    assert "4,194,304 bytes" in check_refused(asyncio.run(asyncio.wait_for(send(), 60)), 413)


def test_a_client_that_waits_to_be_asked_for_its_body_is_told_at_once(server: Any) -> None:
    head = request("/v1/embed", None, "POST", expect="100-continue", content_length=str(HUGE))
    assert "4,194,304 bytes" in check_refused(ask(server, head), 413)


@pytest.mark.parametrize("where", ["value", "name", "many", "path"])
def test_a_megabyte_of_header(server: Any, where: str) -> None:
    long = "a" * MEGABYTE
    if where == "path":
        data = request(f"/health?{long}")
    elif where == "many":
        data = request("/health", **{f"x-{number}": "a" * 100 for number in range(10_000)})
    else:
        data = request("/health", **({"x-long": long} if where == "value" else {long: "x"}))
    assert ask(server, data).status == 431


NOT_JSON = {
    "deep list": b'{"texts": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep object": b'{"texts": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "deep and open": b"[" * 100_000,
    "NaN": b'{"texts": ["a"], "layers": [NaN]}',
    "Infinity": b'{"texts": ["a"], "layers": [-Infinity]}',
    "lone surrogate": b'{"texts": ["a \\ud83d b"]}',
    "surrogates in the wrong order": b'{"texts": ["\\ude00\\ud83d"]}',
    "surrogate as bytes": b'{"texts": ["\xed\xa0\xbd"]}',
    "not UTF-8": b'{"texts": ["\xff\xfe"]}',
    "UTF-16": '{"texts": ["a"]}'.encode("utf-16"),
    "control character": b'{"texts": ["a\x00b"]}',
    "open string": b'{"texts": ["a',
    "two values": b'{"texts": ["a"]} {"texts": ["b"]}',
    "comment": b'{"texts": ["a"]} // a',
    "empty": b" ",
    "huge number": b'{"texts": ["a"], "layers": [1' + b"0" * 5000 + b"]}",
    "huge exponent": b'{"texts": ["a"], "layers": [1e999999999]}',
}


@pytest.mark.parametrize("path", ["/v1/embed", "/embed", "/v1/embeddings", "/models/minilm"])
@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json(server: Any, name: str, path: str) -> None:
    """The body is `texts` everywhere: what is not JSON is refused before anything looks for a field."""
    check_refused(ask(server, request(path, NOT_JSON[name])), 400, 422)


WRONG: dict[str, tuple[Any, int]] = {
    "empty batch": ({"texts": []}, 422),
    "a million texts": ({"texts": ["a"] * 1_000_000}, 413),
    "a million empty texts": ({"texts": [""] * 1_000_000}, 413),
    "a million characters": ({"texts": ["a " * 500_000]}, 413),
    "a word of 400,000 letters": ({"texts": ["a" * 400_000]}, 413),  # no word of the model: one token, and then fine
    "400,000 characters": ({"texts": ["a " * 200_000]}, 413),
    "null": (None, 422),
    "a list": (["a"], 422),
    "a number": (7, 422),
    "a text": ("a", 422),
    "texts: null": ({"texts": None}, 422),
    "texts: numbers": ({"texts": [1, 2.5, True, None]}, 422),
    "texts: objects": ({"texts": [{"a": "b"}]}, 422),
    "texts: lists": ({"texts": [["a"]]}, 422),
    "layers: texts": ({"texts": ["a"], "layers": ["1"] * 3 + ["x"]}, 422),
    "layers: none": ({"texts": ["a"], "layers": []}, 422),
    "layers: too many": ({"texts": ["a"], "layers": [1] * 300}, 422),
    "layers: too high": ({"texts": ["a"], "layers": [1 << 62]}, 422),
    "layers: fractions": ({"texts": ["a"], "layers": [1.5]}, 422),
    "model: number": ({"texts": ["a"], "model": 1}, 422),
    "model: long": ({"texts": ["a"], "model": "m" * 100_000}, 404),
    "model: path": ({"texts": ["a"], "model": "../../etc/passwd"}, 404),
    "unknown field": ({"texts": ["a"], "x" * 100_000: 1}, 422),
    "prompt: none such": ({"texts": ["a"], "prompt": "p" * 100_000}, 422),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(server: Any, name: str) -> None:
    body, status = WRONG[name]
    answer = ask(server, request("/v1/embed", json.dumps(body).encode()))
    if name == "a word of 400,000 letters" and answer.status == 200:
        return
    check_refused(answer, status)


def test_of_two_fields_with_one_name_the_last_counts(server: Any) -> None:
    answer = ask(server, request("/v1/fill", b'{"texts": 5, "texts": [], "model": "minilm", "model": "nobody"}'))
    assert "nobody" in check_refused(answer, 404)


def test_every_route_refuses_what_it_does_not_know(server: Any) -> None:
    """Every route of the description, with other methods and with bodies of every type."""
    with httpx2.Client(base_url=server.url, timeout=20) as client:
        described = client.get("/openapi.json").json()["paths"]
        assert len(described) > 20
        for path, methods in described.items():
            concrete = path.replace("{name}", "minilm").replace("{id}", "0")
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"):
                if method.lower() in methods or (path, method) == ("/", "GET"):  # the page
                    continue
                found = client.request(method, concrete)
                assert found.status_code == 405, (method, path, found.status_code)
                assert method == "HEAD" or "\n" not in found.text
            if "post" not in methods:
                continue
            for body in (None, [], {}, 0, "a", True, [{}], {"inputs": 5}, {"inputs": {}}, {"texts": {"a": []}}):
                found = client.post(concrete, json=body)
                assert found.status_code in REFUSED, (path, body, found.text)
                check_refused(Answer(found.status_code, {}, found.content))
            for kind in ("text/plain", "multipart/form-data; boundary=a", "application/x-www-form-urlencoded"):
                found = client.post(concrete, content=b"inputs=a", headers={"content-type": kind})
                assert found.status_code in REFUSED, (path, kind, found.text)


def test_what_is_no_http(server: Any) -> None:
    """Refused with 400, or the connection is closed; never an answer that pretends to have understood."""
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"BREW /health HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 1000 + b"\x00" * 1000 + b"\r\n\r\n",
        request("/v1/embed", b"{}", content_length="-1"),
        request("/v1/embed", b"{}", content_length="1e3"),
        request("/v1/embed", b"{}", transfer_encoding="chunked"),  # and a length: request smuggling
    ):
        try:
            status = ask(server, data).status
        except (EOFError, ConnectionError):
            continue
        assert status in (400, 413), data[:60]
