"""The ASGI application: all routes behind the gate, errors in the dialect of the route.

In: a `Service`. Out: an application for uvicorn, or for a test. `/openapi.json` describes every route.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from keel import __version__
from keel.errors import UserError
from keel.serving.batcher import Overloaded
from keel.serving.errors import ClientGone, answer_of
from keel.serving.gate import OPEN, Gate
from keel.serving.routes import hugging_face, openai, operations, page, runs, tei
from keel.serving.routes import keel as keel_routes
from keel.serving.service import Service, respond

EXPECTED = (UserError, RequestValidationError, HTTPException, Overloaded, TimeoutError, ClientGone)


ABOUT = "Language encoders: their answers, vectors and reasons, for clients of several kinds."


class Application(FastAPI):
    keyed = False  # whether a key is needed

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        if self.keyed:
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": list[str]()}]
            for path in OPEN:
                document["paths"][path]["get"]["security"] = []
        return document


def make_app(service: Service) -> Any:
    app = Application(
        title="Keel",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.keyed = service.settings.api_key is not None
    for module in (keel_routes, openai, tei, hugging_face, operations, runs, page):
        router = module.router(service)
        app.include_router(router)

    async def explain(request: Request, error: Exception) -> Response:
        status, body, headers = answer_of(request.url.path, error, folders)
        more = (error.headers if isinstance(error, HTTPException) else None) or {}  # Allow, where the method is wrong
        return respond(body, status, {**more, **headers})

    folders = {str(one.model.path): one.name for one in service.models}
    for kind in (*EXPECTED, Exception):
        app.add_exception_handler(kind, explain)
    gate = Gate(app, service)
    if not service.settings.cors:
        return gate
    # Outside the gate: a browser asks whether it may send a key before it sends one.
    return CORSMiddleware(
        gate,
        allow_origins=list(service.settings.cors),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-api-key", "x-request-id"],
        expose_headers=["retry-after", "x-request-id"],
    )
