"""Chromium, and the page of a running `keel serve` in it. Without chromium these tests are skipped, visibly.

The browser belongs to a module, not to the session: playwright's event loop would be in the way of tests with loops of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browsing import ARGUMENTS, CHROMIUM, NO_CHROMIUM, WINDOW, Page

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """`open_page(url, locale="zh-CN", color_scheme="dark")`: a fresh window, which complains at the end."""
    opened = list[tuple[Any, Page]]()

    def start(url: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": WINDOW, "locale": "en-US", **options})
        opened.append((context, Page(context, url)))
        return opened[-1][1]

    yield start
    for context, _ in opened:
        context.close()
    for _, page in opened:
        page.check()


@pytest.fixture
def page(open_page: Open, server: Any) -> Page:
    """A fresh window on the server with all models."""
    return open_page(server.url)
