"""Errors as answers: a status, and a body in the dialect of the route that was asked.

In: an exception. Out: a JSON response. text-embeddings-inference's clients read `error` and `error_type`, OpenAI's an
object under `error`, Hugging Face's a sentence under `error`.

Notable choice: what is wrong with a body is 422, but 400 where OpenAI's own route says so (`/v1/embeddings`): its
clients have an exception class for each status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from keel.configs import brief
from keel.errors import UserError
from keel.inference.model import TooLong
from keel.serving.batcher import Overloaded
from keel.serving.models import NotServed

RETRY_AFTER = "1"  # seconds
LONGEST = 400  # characters of a message
OPENAI_TYPES = {429: "rate_limit_error"}
OPENAI_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
TEI_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}
BAD_REQUESTS = {413: 400, 422: 400}  # how OpenAI's routes say it


class TooLarge(UserError):
    """More than a limit of this server allows."""


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def answer_of(path: str, error: BaseException, folders: Mapping[str, str]) -> Answer:
    """What the route with this path answers. `folders` are those of the models, with their names."""
    status, message = status_of(error)
    message = shown(message, folders)
    if is_openai(path):
        status = BAD_REQUESTS.get(status, status)
    body = body_of(path, status, message)
    if path.startswith("/v1/"):
        body["error"]["param"] = _param(error)
        if isinstance(error, NotServed):
            body["error"]["code"] = "model_not_found"
    return Answer(status, body, headers_of(status))


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


def shown(message: str, folders: Mapping[str, str]) -> str:
    """A message as a client sees it: one line of bounded length, and a model's name where its folder was."""
    for folder, name in folders.items():
        if message.startswith(f"{folder}: "):
            message = name + message[len(folder) :]
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def body_of(path: str, status: int, message: str) -> dict[str, Any]:
    if path.startswith("/v1/"):
        kind = OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": OPENAI_CODES.get(status)}}
    if path.startswith("/models/"):
        return {"error": message}
    return {"error": message, "error_type": TEI_TYPES.get(status, "Validation")}


def headers_of(status: int) -> dict[str, str]:
    if status in (429, 503):
        return {"retry-after": RETRY_AFTER}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


def is_openai(path: str) -> bool:
    return path == "/v1/embeddings" or path.startswith("/v1/models")


def _param(error: BaseException) -> str | None:
    """The field with the first mistake."""
    if not isinstance(error, RequestValidationError):
        return None
    return next((part for part in _place(error.errors()[0]) if isinstance(part, str)), None)


def _place(mistake: dict[str, Any]) -> tuple[str | int, ...]:
    return tuple(mistake.get("loc", ())[1:])


def _first_mistake(error: RequestValidationError) -> str:
    """Where the first mistake is, and what is wrong; input is quoted shortly."""
    first = error.errors()[0]
    place = ".".join(str(part)[:100] for part in _place(first) if isinstance(part, str | int))
    kind, given = first.get("type"), first.get("input")
    if kind == "json_invalid":
        return f"the body is not JSON: {first.get('ctx', {}).get('error', '')}, at character {place}"
    if not place and isinstance(given, bytes):
        return "the body must be JSON, and sent with `Content-Type: application/json`"
    if kind == "extra_forbidden":
        return f"{place}: there is no such field"
    found = "" if kind == "missing" else f"; found {brief(given)}"
    return f"{place or 'body'}: {first.get('msg', 'invalid')}{found}"
