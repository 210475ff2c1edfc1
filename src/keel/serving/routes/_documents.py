"""What `/openapi.json` says of answers: their forms, and the errors of each dialect.

In: the routes name these as their response models. Out: the document; answers themselves are written by `respond` and
are not validated, which tests do (`tests/serving/test_schema.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel


class TeiError(BaseModel):
    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class OpenAIErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    error: OpenAIErrorDetail


class HuggingFaceError(BaseModel):
    error: str


REASONS = {
    400: "A mistake in the body, as OpenAI's clients expect it; for other clients an empty batch",
    401: "No key, or a wrong one",
    403: "A host name that is not this machine's own, at a server without a key",
    404: "No such model, or it cannot do this",
    413: "More bytes, texts, characters or tokens than a limit allows",
    422: "A mistake in the body",
    424: "No model of this server can do this",
    429: "The queue is full; Retry-After says when to ask again",
    500: "A fault of the server; its log has the reason",
    503: "The answer took longer than the server allows",
}
EVERYWHERE = (401, 403, 500)
OF_BODIES = (413, 422, 429, 503)


def errors(kind: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route: those that every one has, and these."""
    return {status: {"model": kind, "description": REASONS[status]} for status in sorted({*EVERYWHERE, *statuses})}


def example(**body: Any) -> dict[str, Any]:
    """A body that shows how a route is asked."""
    return {"examples": [body]}


def written(media_type: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is no JSON, for a route whose response class is `Response`."""
    return {200: {"description": "Text", "content": {media_type: {"schema": {"type": "string"}}}}}


class Answers(BaseModel):
    model: str
    answers: list[dict[str, Any]] = Field(description="One per input, as `keel predict` writes them.")
    truncated_texts: int = Field(0, description="Only if texts were truncated, as in training.")
    truncated_tokens: int = 0


class Prediction(BaseModel):
    token: str
    id: int
    probability: float


class FilledText(BaseModel):
    text: str
    masks: list[list[Prediction]] = Field(description="For each [MASK] its predictions, the best first.")


class Filled(BaseModel):
    model: str
    results: list[FilledText]


class Vectors(BaseModel):
    model: str
    vectors: list[list[float]]


class GeneratedText(BaseModel):
    text: str
    tokens: int
    ended: bool = Field(description="Whether the model ended the text, not the limit.")


class Generated(BaseModel):
    model: str
    texts: list[GeneratedText]


class CrossAttention(BaseModel):
    written: list[str]
    read: list[str]
    weights: list[Any] = Field(description="layers x heads x written x read")


class Translations(BaseModel):
    model: str
    answers: list[dict[str, Any]]
    attention: CrossAttention | None = Field(None, description="Only if it was asked for.")


class Explanation(BaseModel):
    model_config = ConfigDict(extra="allow")
    model: str


class TextToken(BaseModel):
    text: str
    id: int
    start: int = Field(description="Of the characters that it covers, the first.")
    end: int = Field(description="And the one after the last.")
    word_start: bool


class TokenizedText(BaseModel):
    text: str
    tokens: list[TextToken]


class Tokenized(BaseModel):
    model: str
    texts: list[TokenizedText]


class ListedModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str | None
    labels: list[str] | None
    max_length: int
    abilities: list[str]
    prompts: list[str]


class ListedModels(BaseModel):
    object: Literal["list"]
    data: list[ListedModel]


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers; in base64 those of float32, little-endian.")


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Label(BaseModel):
    label: str
    score: float


class Labels(RootModel[list[Label] | list[list[Label]]]):
    """Of a single input its labels, the best first; of a batch one such list for each."""


class Rank(BaseModel):
    index: int
    score: float
    text: str | None = Field(None, description="With return_text.")


class TeiToken(BaseModel):
    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(BaseModel):
    """About the first model, and the limits of the server."""

    model_config = ConfigDict(extra="allow")
    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str


class TaskAnswer(RootModel[list[Any] | dict[str, Any]]):
    """What the task answers with: see https://huggingface.co/docs/inference-providers/tasks"""


class Health(BaseModel):
    status: Literal["ok", "failing"]


class Readiness(BaseModel):
    ready: bool


class Limits(BaseModel):
    texts: int
    characters: int
    bytes: int


class Server(BaseModel):
    version: str
    needs_key: bool
    limits: Limits


class Runs(BaseModel):
    enabled: bool = Field(description="Whether the server was started with --runs.")
    runs: list[dict[str, Any]]


class RunLog(BaseModel):
    entries: list[Any] = Field(description="Lines of metrics.jsonl.")
    next: int = Field(description="Where to continue.")
