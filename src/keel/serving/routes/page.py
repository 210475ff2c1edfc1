"""The page: `/` and its files under `/page/`, and the API's description.

In: a name. Out: one of the files that were read when the server started; no name reaches the file system, and ranges
are ignored.
"""

from __future__ import annotations

import hashlib

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keel.serving.service import Service
from keel.web import page_files

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " + (
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def router(service: Service) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = {
        name: (content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        for name, (content, kind) in page_files().items()
    }

    def send(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, "the page has no such file")
        content, kind, tag = files[name]
        headers = {"etag": tag, "cache-control": "no-cache", "content-security-policy": POLICY}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, 200, headers, kind)

    @routes.get("/")
    async def index(request: Request) -> Response:
        return send("index.html", request)

    @routes.get("/page/{name:path}")
    async def file(name: str, request: Request) -> Response:
        return send(name, request)

    return routes
