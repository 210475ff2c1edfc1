"""The bodies of Hugging Face's tasks: inputs, and the parameters of each task.

Notable choice: a parameter that a task does not have here is an error, as the answer would not be what was asked for.
Parameters that are off (null, false) are ignored; InferenceClient sends some of them without being asked.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from keel.configs import brief
from keel.serving.routes._documents import example


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class QuestionInputs(Strict):
    question: str
    context: str


class SimilarityInputs(Strict):
    source_sentence: str
    sentences: list[str]


class TextPair(Strict):
    text: str
    text_pair: str


class Parameters(Strict):
    model_config = ConfigDict(extra="forbid")


class FillMask(Parameters):
    top_k: int = Field(5, ge=1, le=1000)
    targets: list[str] | None = Field(None, min_length=1, max_length=100)


class TextClassification(Parameters):
    top_k: int | None = Field(None, ge=1)
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class TokenClassification(Parameters):
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = None
    ignore_labels: list[str] = ["O"]


class QuestionAnswering(Parameters):
    top_k: int = Field(1, ge=1)
    handle_impossible_answer: bool = False


class Similarity(Parameters):
    truncate: bool = False
    truncation_direction: Literal["right", "left", "Right", "Left"] = "right"
    prompt_name: str | None = None


class FeatureExtraction(Similarity):
    normalize: bool | None = None
    dimensions: int | None = Field(None, ge=1)
    encoding_format: Literal["float"] = "float"


class Translation(Parameters):
    clean_up_tokenization_spaces: bool = True


class TextGeneration(Parameters):
    max_new_tokens: int = Field(60, ge=1, le=2048)
    temperature: float = Field(1.0, gt=0)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    do_sample: bool | None = None
    seed: int = Field(1, ge=0, lt=1 << 63)
    return_full_text: bool = True


class TaskBody(Strict):
    """`parameters` are those of the task; feature-extraction has its own beside `inputs`."""

    model_config = ConfigDict(json_schema_extra=example(inputs="The keel is laid."))
    inputs: str | list[str] | QuestionInputs | SimilarityInputs | TextPair | list[TextPair]
    parameters: dict[str, Any] | None = Field(None, description="Those of the task.")
    normalize: bool | None = Field(None, description="Of feature-extraction, as are the next five.")
    prompt_name: str | None = None
    truncate: bool | None = None
    truncation_direction: Literal["right", "left", "Right", "Left"] | None = None
    dimensions: int | None = Field(None, ge=1)
    encoding_format: Literal["float"] | None = None
    stream: Literal[False] | None = Field(None, description="Answers are sent whole.")

    def beside_inputs(self) -> dict[str, Any]:
        return self.model_dump(include=set(FeatureExtraction.model_fields))


def read_parameters(kind: type[Parameters], given: dict[str, Any], task: str) -> Any:
    set_ones = {name: value for name, value in given.items() if value is not None}
    known = kind.model_fields
    for name, value in set_ones.items():
        if name not in known and value is not False:
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise HTTPException(422, f"parameters: {task} has no {brief(name)} here; {have}")
    try:
        return kind.model_validate({name: value for name, value in set_ones.items() if name in known})
    except ValidationError as error:
        mistakes = [{**one, "loc": ("body", "parameters", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(mistakes) from None
