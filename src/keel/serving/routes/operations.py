"""For those who run the server, and its page: `/health` (it lives), `/health/ready` (it takes requests), `/metrics`,
`/v1/server` (version and limits), `/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from keel import __version__
from keel.serving.routes._documents import (
    Health,
    ListedModels,
    OpenAIError,
    Readiness,
    Server,
    TeiError,
    errors,
    written,
)
from keel.serving.service import Service, respond


def failing(kind: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return {503: {"model": kind, "description": "Not now"}}


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["Operations"])

    @routes.get("/health", response_model=Health, responses=errors(TeiError) | failing(Health))
    async def health() -> Response:
        """Whether the process lives; asked without a key."""
        healthy = service.healthy
        return respond({"status": "ok" if healthy else "failing"}, 200 if healthy else 503)

    @routes.get("/health/ready", response_model=Readiness, responses=errors(TeiError) | failing(Readiness))
    async def ready() -> Response:
        """Whether it takes requests; asked without a key."""
        return respond({"ready": service.ready}, 200 if service.ready else 503)

    @routes.get("/metrics", response_class=Response, responses=errors(TeiError) | written("text/plain"))
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/v1/server", response_model=Server, responses=errors(OpenAIError))
    async def server() -> Response:
        """The version, whether a key is needed, and the limits."""
        settings = service.settings
        limits = {"texts": settings.max_texts, "characters": settings.max_characters, "bytes": settings.max_body}
        needs_key = settings.api_key is not None
        return respond({"version": __version__, "needs_key": needs_key, "limits": limits})

    @routes.get("/v1/models", response_model=ListedModels, responses=errors(OpenAIError))
    async def models() -> Response:
        """All models, what each is and what it can do."""
        return respond({"object": "list", "data": [one.listed() for one in service.models]})

    return routes
