"""Bodies of requests as strict JSON: no NaN, no lone surrogates, bounded depth, and declared as JSON.

In: a request. Out: what its body says; a mistake is a `JSONDecodeError`, which FastAPI turns into one of validation.

Notable choice: a route class that every router has to name, because `include_router` keeps the class that a route was
made with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
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
