"""Errors as answers: a status, and a body in the dialect of the route that was asked.

In: an exception. Out: a JSON response. text-embeddings-inference's clients read `error` and `error_type`, OpenAI's an
object under `error`, Hugging Face's a sentence under `error`.
"""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from keel.configs import brief
from keel.errors import UserError
from keel.inference.model import TooLong
from keel.serving.batcher import Overloaded
from keel.serving.models import NotServed

RETRY_AFTER = "1"  # seconds
OPENAI_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
TEI_TYPES = {404: "not_found", 424: "backend", 429: "overloaded", 401: "unauthorized"}


class TooLarge(UserError):
    """More than a limit of this server allows."""


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


def status_of(error: BaseException) -> tuple[int, str]:
    """The status of an exception, and a message without internals."""
    if isinstance(error, TooLarge | TooLong):
        return 413, str(error)
    if isinstance(error, NotServed):
        return 404, str(error)
    if isinstance(error, UserError):
        return 422, str(error)
    if isinstance(error, RequestValidationError):
        return 422, _first_mistake(error)
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, Overloaded):
        return 429, "the server is overloaded: its queue is full; ask again later"
    if isinstance(error, TimeoutError):
        return 503, "the answer took longer than this server's --timeout; send fewer or shorter texts"
    if isinstance(error, ClientGone):
        return 499, "the client has gone"
    return 500, "internal error; the server's log has the reason under this request id"


def body_of(path: str, status: int, message: str) -> dict[str, Any]:
    if path.startswith("/v1/"):
        kind = OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": status}}
    if path.startswith(("/models/", "/pipeline/")):
        return {"error": message}
    kind = TEI_TYPES.get(status, "unhealthy" if status >= 500 else "validation")
    return {"error": message, "error_type": kind}


def headers_of(status: int) -> dict[str, str]:
    if status in (429, 503):
        return {"retry-after": RETRY_AFTER}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


def _first_mistake(error: RequestValidationError) -> str:
    """Where the first mistake is, and what is wrong; input is quoted shortly."""
    mistakes = error.errors()
    first = mistakes[0]
    place = ".".join(str(part)[:100] for part in first.get("loc", ())[1:] if isinstance(part, str | int))
    detail = str(first.get("ctx", {}).get("error", "")) if first.get("type") == "json_invalid" else ""
    found = "" if detail or first.get("type") == "missing" else f"; found {brief(first.get('input'))}"
    return f"{place or 'body'}: {first.get('msg', 'invalid')}{f' ({detail})' if detail else ''}{found}"
