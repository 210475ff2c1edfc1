"""How a browser gives the key of `--api-key`: a form at `/`, then a cookie.

In: a request for `/`. Out: the form, with status 401; for the form with the right key a cookie and the way back to the
page.

Notable choices
- The cookie does not have the key, but what only its owner can compute from it: it opens this server's page, and cannot
  be given to another server that has the same key. It ends with the browser (HttpOnly, SameSite=Lax).
- Cookies do not know ports, so the name of the cookie does: two servers on one machine would take it from each other.
- The form is sent to the page's own address, so that what stands behind the # there is kept.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

COOKIE = "keel_key"
PURPOSE = b"keel serve: a session of the page, "
FORM = b"application/x-www-form-urlencoded"
MOST_BYTES = 4096  # of the form
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: light-dark(#f6f7f9, #12171d);
  color: light-dark(#1c2733, #e5eaf0); font: 16px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; }
main { width: min(100% - 32px, 380px); padding: 24px; border: 1px solid light-dark(#dfe4ea, #2f3a45);
  border-radius: 10px; background: light-dark(#ffffff, #1a2129); box-sizing: border-box; }
h1 { font-size: 1.35rem; margin: 0 0 4px; }
p { margin: 0 0 16px; color: light-dark(#53606d, #a6b3c0); }
p.bad { color: light-dark(#b4232a, #ff9b9b); font-weight: 600; }
label { display: block; font-weight: 600; font-size: 0.9rem; margin-bottom: 4px; }
input { width: 100%; box-sizing: border-box; font: inherit; color: inherit; padding: 7px 10px; border-radius: 6px;
  border: 1px solid light-dark(#7d8996, #7a8895); background: light-dark(#ffffff, #12171d); }
button { margin-top: 16px; font: inherit; font-weight: 600; padding: 7px 20px; border: 0; border-radius: 6px;
  cursor: pointer; background: light-dark(#1d63c4, #7db4ff); color: light-dark(#ffffff, #0d1620); }
:focus-visible { outline: 3px solid light-dark(#1d63c4, #7db4ff); outline-offset: 2px; }
"""
PAGE = """<!doctype html>
<html lang="{lang}">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Keel</title>
    <link rel="icon" href="data:," />
    <style>{style}</style>
  </head>
  <body>
    <main>
      <h1>Keel</h1>
      {note}
      <form method="post">
        <label for="key">{label}</label>
        <input id="key" name="key" type="password" autocomplete="current-password" required autofocus />
        <button>{button}</button>
      </form>
    </main>
  </body>
</html>
"""
TEXTS = {
    "en": {
        "note": "<p>This server needs a key. Who started it chose it with --api-key.</p>",
        "wrong": '<p class="bad" role="alert">This is not the key of this server.</p>',
        "label": "Key",
        "button": "Open the page",
    },
    "zh-CN": {
        "note": "<p>此服务器需要密钥，由启动者用 --api-key 设定。</p>",
        "wrong": '<p class="bad" role="alert">密钥不正确。</p>',
        "label": "密钥",
        "button": "打开页面",
    },
}
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    + ("frame-ancestors 'none'")
)
Headers = Mapping[bytes, bytes]
Answer = tuple[int, dict[str, str], bytes]


class Login:
    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.session = hmac.new(self._key, PURPOSE, hashlib.sha256).hexdigest()

    def knows(self, headers: Headers) -> bool:
        """Whether the request has the cookie."""
        try:
            found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(_cookie(headers))
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(self.session.encode(), found.value.encode("utf-8"))

    @staticmethod
    def is_form(method: str, path: str, headers: Headers) -> bool:
        """A form, sent to `/`; Hugging Face's clients send JSON there."""
        return method == "POST" and path == "/" and headers.get(b"content-type", b"").lower().startswith(FORM)

    @staticmethod
    def is_visit(method: str, path: str, headers: Headers) -> bool:
        """Somebody opens the page in a browser."""
        return method == "GET" and path == "/" and b"text/html" in headers.get(b"accept", b"")

    async def try_key(self, headers: Headers, receive: Receive) -> Answer:
        """The answer to the form."""
        body, more = b"", True
        while more and len(body) <= MOST_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        given = parse_qs(body[:MOST_BYTES].decode("latin-1")).get("key", [""])[0].strip()
        if not hmac.compare_digest(self._key, given.encode()):
            return self.form(headers, "wrong")
        secure = "; Secure" if headers.get(b"x-forwarded-proto") == b"https" else ""
        cookie = f"{_cookie(headers)}={self.session}; Path=/; HttpOnly; SameSite=Lax{secure}"
        return 303, {"location": "/", "set-cookie": cookie, "cache-control": "no-store"}, b""

    @staticmethod
    def form(headers: Headers, note: str = "note") -> Answer:
        wanted = re.search(rb"\b(en|zh)\b", headers.get(b"accept-language", b""))
        lang = "zh-CN" if wanted and wanted[1] == b"zh" else "en"
        texts = TEXTS[lang]
        content = PAGE.format(lang=lang, style=STYLE, **{**texts, "note": texts[note]}).encode()
        kind = {"content-type": "text/html; charset=utf-8", "www-authenticate": "Bearer"}
        return 401, {**kind, "content-security-policy": POLICY, "cache-control": "no-store"}, content


def _cookie(headers: Headers) -> str:
    port = re.search(rb":(\d+)$", headers.get(b"host", b""))
    return f"{COOKIE}_{port[1].decode()}" if port else COOKIE
