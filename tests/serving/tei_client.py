"""A client of text-embeddings-inference as its published OpenAPI document (1.7) describes it: every field of a request
is sent, and every answer must have the form that the document promises for its status.

In: the address of a server. Out: statuses and bodies; an answer of another form is an AssertionError.
"""

from __future__ import annotations

from typing import Any

import httpx2
import jsonschema_rs

STRING, BOOLEAN, NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "number"}
NATURAL = {"type": "integer", "minimum": 0}
MAYBE_NATURAL, MAYBE_STRING = {"type": ["integer", "null"], "minimum": 0}, {"type": ["string", "null"]}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(*optional: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [name for name in fields if name not in optional]}


ERROR = record(
    error=STRING,
    error_type={"enum": ["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]},
)
LABELS = record(
    id2label={"type": "object", "additionalProperties": STRING},
    label2id={"type": "object", "additionalProperties": NATURAL},
)
MODEL_TYPE = {
    "oneOf": [record(classifier=LABELS), record(embedding=record(pooling=STRING)), record(reranker=LABELS)],
}
INFO = record(
    "model_sha",
    "max_batch_requests",
    model_id=STRING,
    model_sha=MAYBE_STRING,
    model_dtype=STRING,
    model_type=MODEL_TYPE,
    max_concurrent_requests=NATURAL,
    max_input_length=NATURAL,
    max_batch_tokens=NATURAL,
    max_batch_requests=MAYBE_NATURAL,
    max_client_batch_size=NATURAL,
    auto_truncate=BOOLEAN,
    tokenization_workers=NATURAL,
    version=STRING,
)
PREDICTIONS = listed(record(score=NUMBER, label=STRING))
TOKEN = record("start", "stop", id=NATURAL, text=STRING, special=BOOLEAN, start=MAYBE_NATURAL, stop=MAYBE_NATURAL)
ANSWERS = {
    "/embed": listed(listed(NUMBER)),
    "/embed_all": listed(listed(listed(NUMBER))),
    "/embed_sparse": listed(listed(record(index=NATURAL, value=NUMBER))),
    "/rerank": listed(record("text", index=NATURAL, score=NUMBER, text=MAYBE_STRING)),
    "/predict": {"oneOf": [{**PREDICTIONS, "minItems": 1}, listed(PREDICTIONS)]},
    "/similarity": listed(NUMBER),
    "/tokenize": listed(listed(TOKEN)),
    "/decode": listed(STRING),
    "/info": INFO,
}
ERROR_TYPES = {400: "Empty", 424: "Backend", 429: "Overloaded", 503: "Unhealthy"}

CUT = {"truncate": False, "truncation_direction": "Right"}
READ = {**CUT, "prompt_name": None}
DEFAULTS: dict[str, dict[str, Any]] = {
    "/embed": {**READ, "normalize": True},
    "/embed_all": READ,
    "/embed_sparse": READ,
    "/rerank": {**CUT, "raw_scores": False, "return_text": False},
    "/predict": {**CUT, "raw_scores": False},
    "/similarity": {"parameters": READ},
    "/tokenize": {"add_special_tokens": True, "prompt_name": None},
    "/decode": {"skip_special_tokens": True},
}


class TeiClient:
    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=60)

    def ask(self, route: str, **fields: Any) -> tuple[int, Any]:
        """The status, and the answer of that status's form."""
        return read(route, self.http.post(route, json={**DEFAULTS[route], **fields}))

    def __call__(self, route: str, **fields: Any) -> Any:
        status, answer = self.ask(route, **fields)
        assert status == 200, answer
        return answer

    def info(self) -> Any:
        return read("/info", self.http.get("/info"))[1]


def read(route: str, response: httpx2.Response) -> tuple[int, Any]:
    answer = response.json()
    assert response.headers["content-type"] == "application/json"
    jsonschema_rs.validate(ANSWERS[route] if response.status_code == 200 else ERROR, answer)
    if response.status_code in ERROR_TYPES:
        assert answer["error_type"] == ERROR_TYPES[response.status_code]
    return response.status_code, answer
