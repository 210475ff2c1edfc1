"""The page of `keel serve` in Chromium, watched: a test fails if the page says anything on its console, breaks its own
policy, or asks for anything that is not on the server that sent it.

    shown = page.open("fill", "zh", text="北京是[MASK]国的首都。", model="bert")
    shown.get_by_role("button", name="预测").click()
    page.settled()
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "there is no chromium: apt-get install chromium fonts-noto-cjk"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WINDOW = {"width": 1280, "height": 900}
SEEN_WITHIN = 20_000  # ms; a machine may be busy
WEB = Path(__file__).parents[1] / "src" / "keel" / "web"
TABS = re.findall(r"\w+", re.search(r"TABS = \[(.*?)\]", (WEB / "tabs/index.js").read_text("utf-8"), re.S)[1])  # type: ignore[index]
SENTENCE = "The gull remembers the keel at dawn."
# What tests that go over all tabs show in each of them: answers of every kind. A tab that is not named is shown as it
# opens.
SHOWN: dict[str, list[dict[str, Any]]] = {
    "fill": [{"model": "bert", "second": "early", "text": "The [MASK] remembers the [MASK] at dawn."}],
    "attention": [
        {"model": "minilm", "text": SENTENCE, "pair": "It was tired."},
        {"model": "translator", "text": "the captain sails"},
    ],
    "why": [
        {"model": "classifier", "text": SENTENCE},
        {"model": "minilm", "text": "A sailor.", "pair": "A ship.", "view": "heads"},
        {"model": "bert", "text": "The [MASK] remembers.", "view": "layers"},
    ],
    "tasks": [
        {"model": "classifier", "text": SENTENCE},
        {"model": "tagger", "text": SENTENCE},
        {"model": "reader", "text": "Who remembers?", "pair": SENTENCE},
        {"model": "scorer", "text": "A gull.", "pair": "A keel."},
        {"model": "chooser", "text": "Which?", "pair": "a gull\na keel"},
        {"model": "minilm", "lines": "A sailor mends a sail.\nSomebody repairs a ship.\nNoodles."},
        {"model": "translator", "text": "the captain sails"},
    ],
    "tokens": [{"model": "minilm", "second": "bert", "text": "Unbelievably, sailors 他们 sail."}],
    "search": [{"model": "minilm", "query": "mending a sail", "lines": "A sailor mends a sail.\nNoodles for lunch."}],
}
EVERY_TAB = [(tab, values) for tab in TABS for values in SHOWN.get(tab, [{}])]
EVERY_TAB_IDS = [f"{tab}-{values.get('model', '')}".strip("-") for tab, values in EVERY_TAB]
REPORT_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


class Page:
    """One window on one server. `tab` is playwright's page, for all that has no short form here."""

    def __init__(self, context: Any, url: str) -> None:
        self.url, self.complaints, self.requests = url, list[str](), list[str]()
        self.forgiven = list[str]()
        context.add_init_script(REPORT_VIOLATIONS)
        self.tab = context.new_page()
        self.tab.set_default_timeout(SEEN_WITHIN)
        self.tab.on("console", self._heard)
        self.tab.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        context.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {(message.location or {}).get('url', '')}")

    def _asked(self, request: Any) -> None:
        self.requests.append(f"{request.method} {request.url.removeprefix(self.url)}")
        if not request.url.startswith((f"{self.url}/", "data:", "blob:", "about:")):
            self.complaints.append(f"asked for {request.url}")

    def forgive(self, part: str) -> None:
        """A complaint that a test provokes, such as "status of 429"."""
        self.forgiven.append(part)

    def check(self) -> None:
        left = [one for one in self.complaints if not any(part in one for part in self.forgiven)]
        assert not left, "\n".join(left)

    def open(self, tab: str = "", lang: str = "en", **values: object) -> Any:
        """Shows a tab, with these values in the address; returns its panel."""
        query = urlencode({"lang": lang, **{name: str(value) for name, value in values.items()}})
        self.tab.goto("about:blank")  # another hash alone would not load the page again
        self.tab.goto(f"{self.url}/#{tab}?{query}")
        return self.settled()

    def settled(self) -> Any:
        """The panel that is shown, once nothing in it is under way."""
        self.tab.wait_for_selector('body[data-ready="true"]')
        panel = self.tab.locator("[role=tabpanel]:not([hidden])")
        panel.wait_for()
        self.quiet()
        return panel

    def quiet(self) -> None:
        """Waits until nothing that is shown is under way."""
        self.tab.wait_for_function(
            """() => !document.querySelector('[role=tabpanel]:not([hidden]) [aria-busy="true"]')"""
        )

    @property
    def hash(self) -> str:
        """The state in the address, once it is written."""
        self.tab.wait_for_timeout(200)
        return str(self.tab.evaluate("location.hash"))

    @property
    def said(self) -> str:
        """What a screen reader was told last."""
        return str(self.tab.locator("body > [role=status]").text_content())

    def answer(self, path: str, body: Any) -> Any:
        """What the server answers to a question, as the page itself would ask it."""
        ask = """async ([path, body]) => {
            const json = { "content-type": "application/json" };
            return await (await fetch(path, { method: "POST", headers: json, body })).text();
        }"""
        return json.loads(self.tab.evaluate(ask, [path, json.dumps(body)]))

    def picture(self, path: Path, whole: bool = True) -> None:
        self.tab.screenshot(path=str(path), full_page=whole, animations="disabled")
