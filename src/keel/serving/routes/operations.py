"""For those who run the server, and its page: `/health` (it lives), `/health/ready` (it takes requests), `/metrics`,
`/v1/server` (version and limits), `/v1/models`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from keel import __version__
from keel.serving.service import Service, respond


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["Operations"])

    @routes.get("/health")
    async def health() -> Response:
        healthy = service.healthy
        return respond({"status": "ok" if healthy else "failing"}, 200 if healthy else 503)

    @routes.get("/health/ready")
    async def ready() -> Response:
        return respond({"ready": service.ready}, 200 if service.ready else 503)

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/v1/server")
    async def server() -> Response:
        settings = service.settings
        limits = {"texts": settings.max_texts, "characters": settings.max_characters, "bytes": settings.max_body}
        needs_key = settings.api_key is not None
        return respond({"version": __version__, "needs_key": needs_key, "limits": limits})

    @routes.get("/v1/models")
    async def models() -> Response:
        return respond({"object": "list", "data": [one.listed() for one in service.models]})

    return routes
