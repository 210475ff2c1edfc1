"""Routes whose bodies are strict JSON: no NaN, no lone surrogates, no other encoding than UTF-8, bounded depth.

In: a request. Out: its value, or an error that says where the JSON ends. FastAPI alone reads what Python's json module
takes, which is more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute


class StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return orjson.loads(await self.body())
        except orjson.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, "", error.pos) from None


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def new_router(**options: Any) -> APIRouter:
    """The application's own route class would not reach the routers that it includes."""
    return APIRouter(route_class=StrictRoute, **options)
