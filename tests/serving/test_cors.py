"""Pages of other origins: nothing unless an origin is named, and then what a browser needs to let its script read."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

PAGE, STRANGER, KEY = "https://notes.example", "https://elsewhere.example", "a-key-for-tests"


def asked_by_page(url: str, origin: str, path: str, **headers: str) -> httpx2.Response | None:
    """What a script of this origin gets from `fetch` with a JSON body, as browsers do it: first permission is asked
    for, without credentials, for the method and for headers that no form could send; then the answer is read only if it
    names the origin. None: a TypeError for the script."""
    given = {"content-type": "application/json", **headers}
    asked = ",".join(sorted(given))
    with httpx2.Client(base_url=url, headers={"origin": origin}) as browser:
        flight = {"access-control-request-method": "POST", "access-control-request-headers": asked}
        permission = browser.options(path, headers=flight)
        allowed = permission.headers.get("access-control-allow-headers", "").lower().replace(" ", "").split(",")
        if not (permission.is_success and names(permission, origin) and set(given) <= set(allowed)):
            return None
        answer = browser.post(path, json={"texts": ["a gull"]}, headers=given)
        return answer if names(answer, origin) else None


def names(answer: httpx2.Response, origin: str) -> bool:
    return answer.headers.get("access-control-allow-origin") in (origin, "*")


@pytest.fixture(scope="module")
def open_server(start_server: Any, folders: dict[str, Any]) -> Any:
    return start_server(f"bert={folders['bert']}", "--cors", PAGE, "--api-key", KEY)


def test_a_named_origin_may_ask(open_server: Any) -> None:
    answer = asked_by_page(open_server.url, PAGE, "/v1/embed", authorization=f"Bearer {KEY}")
    assert answer is not None and len(answer.json()["vectors"][0]) == 32
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "retry-after" in exposed and "access-control-allow-credentials" not in answer.headers


def test_refusals_can_be_read_too(open_server: Any) -> None:
    answer = asked_by_page(open_server.url, PAGE, "/v1/embed", authorization="Bearer wrong")
    assert answer is not None and answer.status_code == 401 and "key" in answer.json()["error"]["message"]
    answer = asked_by_page(open_server.url, PAGE, "/v1/fill", **{"x-api-key": KEY})
    assert answer is not None and answer.status_code == 422


def test_other_origins_may_not(open_server: Any) -> None:
    assert asked_by_page(open_server.url, STRANGER, "/v1/embed", authorization=f"Bearer {KEY}") is None
    assert asked_by_page(open_server.url, f"{PAGE}.evil.example", "/v1/embed", authorization=f"Bearer {KEY}") is None
    assert asked_by_page(open_server.url, PAGE, "/v1/embed", authorization=f"Bearer {KEY}", **{"x-other": "1"}) is None


def test_without_the_option_no_origin_may(server: Any) -> None:
    for origin in (PAGE, "null", "http://localhost:3000", server.url):
        assert asked_by_page(server.url, origin, "/v1/embed") is None
        plain = httpx2.get(f"{server.url}/v1/models", headers={"origin": origin})
        assert not [name for name in plain.headers if name.startswith("access-control-")]
