"""A server with --api-key, in Chromium: the page asks for the key, keeps it as a cookie that scripts cannot read, and
works with it on every tab; without it nothing of the page is sent."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from browsing import EVERY_TAB, TABS, WEB
from served import Running, Start

KEY = "a key: with+signs & 'quotes' % #"
MODELS = ("minilm", "bert", "classifier")
FILES = [path.relative_to(WEB).as_posix() for path in sorted(WEB.rglob("*")) if path.suffix in (".js", ".css", ".svg")]


@pytest.fixture(scope="module")
def locked(start_server: Start, folders: dict[str, Path]) -> Running:
    models = [f"{name}={folders[name]}" for name in MODELS]
    return start_server(*models, "--api-key", KEY)


def answer(url: str, headers: dict[str, str] | None = None, form: dict[str, str] | None = None) -> Any:
    """Status, headers and body; redirects are not followed."""
    request = urllib.request.Request(url, urlencode(form).encode() if form else None, headers or {})

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return

    try:
        with urllib.request.build_opener(Stay).open(request, timeout=20) as found:
            return found.status, found.headers, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_no_file_of_the_page_is_sent_without_the_key(locked: Running) -> None:
    assert len(FILES) > 40
    for path in ("", "page/index.html", "v1/models", "v1/server", "v1/runs", *(f"page/{name}" for name in FILES)):
        for headers in ({}, {"cookie": f"keel_key={KEY[:8]}; keel_key_{locked.port}=x"}, {"authorization": "Bearer x"}):
            status, _, body = answer(f"{locked.url}/{path}", {"accept": "text/html, */*", **headers})
            assert status == 401, path
            assert not any(name in body for name in (*MODELS, "/page/")), path
    assert answer(f"{locked.url}/", {"accept": "application/json"})[1]["content-type"] == "application/json"


def test_the_form_answers_a_wrong_key_the_right_key_and_rubbish(locked: Running) -> None:
    for key in ("wrong", "", f"{KEY}x", KEY[:-1], "é" * 9000):
        status, headers, body = answer(f"{locked.url}/", {}, {"key": key})
        assert status == 401 and "set-cookie" not in headers and 'role="alert"' in body
    status, headers, body = answer(f"{locked.url}/", {}, {"key": KEY})
    assert (status, headers["location"], body) == (303, "/", "")
    cookie, _, attributes = headers["set-cookie"].partition(";")
    assert KEY not in headers["set-cookie"] and "HttpOnly" in attributes and "SameSite=Lax" in attributes
    assert answer(f"{locked.url}/v1/models", {"cookie": cookie})[0] == 200
    assert answer(f"{locked.url}/v1/models", {"cookie": f"{cookie[:-1]}-"})[0] == 401
    name = cookie.partition("=")[0]
    assert answer(f"{locked.url}/v1/models", {"cookie": f"{name}={KEY}"})[0] == 401
    assert "密钥" in answer(f"{locked.url}/", {"accept": "text/html", "accept-language": "zh-CN,zh;q=0.9,en"})[2]


def test_a_person_enters_the_key_and_every_tab_works(open_page: Any, locked: Running) -> None:
    page = open_page(locked.url)
    page.forgive("status of 401")
    text = "The [MASK] sails."
    page.tab.goto(f"{locked.url}/#fill?lang=en&text=The+%5BMASK%5D+sails.&model=bert")
    key = page.tab.get_by_label("Key")
    assert page.tab.evaluate("document.activeElement.id") == "key"
    key.fill("not the right one")
    key.press("Enter")
    assert page.tab.get_by_role("alert").inner_text() == "This is not the key of this server."
    assert not page.tab.context.cookies()
    key.fill(KEY)
    page.tab.get_by_role("button", name="Open the page").click()
    panel = page.settled()
    assert panel.locator("textarea").input_value() == text and panel.locator(".bar").count() == 5
    assert page.tab.evaluate("document.cookie") == ""
    page.tab.reload()
    assert page.settled().locator(".bar").count() == 5
    shown = {tab: values for tab, values in reversed(EVERY_TAB) if values.get("model", "bert") in MODELS}
    assert shown.keys() == set(TABS)
    for tab, values in shown.items():
        panel = page.open(tab, **{name: value for name, value in values.items() if name != "second"})
        assert panel.get_by_role("alert").count() == 0 and panel.locator("form, .card").count() > 0, tab
        assert tab != "runs" or "keel serve MODEL --runs DIR" in panel.inner_text()
    page.open("fill", text=text, model="bert")
    page.tab.get_by_role("tab", name="API").click()
    line = page.settled().locator("code").first.text_content()
    done = subprocess.run(
        ["bash", "-c", line], env={**os.environ, "KEEL_API_KEY": KEY}, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["results"][0]["text"] == text and KEY not in line
    page.tab.context.clear_cookies()
    page.tab.get_by_role("tab", name="Tokens").click()  # the key was taken back in the meantime
    page.tab.get_by_role("alert").get_by_role("button", name="Enter the key").click()
    page.tab.get_by_label("Key").fill(KEY)
    page.tab.get_by_label("Key").press("Enter")
    assert page.settled().locator(".piece").count() > 3
