"""Every route does what `/openapi.json` says, whatever it is asked: schemathesis against a running server.

In full (`KEEL_FAULTS=all`) 2,000 requests that the document does not allow, and 500 that it does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from raw_http import FULL
from schemathesis import GenerationMode, checks

NEGATIVE, POSITIVE = GenerationMode.NEGATIVE, GenerationMode.POSITIVE
CASES = {NEGATIVE: 2000 if FULL else 100, POSITIVE: 500 if FULL else 50}
CONFORMS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
REFUSED = [*CONFORMS, checks.negative_data_rejection]
MODELS = ["minilm", "bert", "classifier", "tagger", "reader", "scorer", "chooser", "writer", "translator"]


@pytest.fixture(scope="module")
def operations(server: Any) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return [found.ok() for found in schema.get_all_operations()]


def takes_input(operation: Any) -> bool:
    """Other than names in its path, any of which is allowed."""
    return any(len(list(part)) for part in (operation.query, operation.body))


@st.composite
def requests_of(draw: Any, operation: Any, mode: Any) -> Any:
    """Half of them to models that exist, as random names would be."""
    case = draw(operation.as_strategy(generation_mode=mode))
    if draw(st.booleans()):
        name = draw(st.sampled_from(MODELS))
        if "name" in case.path_parameters:
            case.path_parameters["name"] = name
        if isinstance(case.body, dict) and "model" in case.body and mode == POSITIVE:
            case.body["model"] = name
    return case


@pytest.mark.timeout(1800 if FULL else 300)
@pytest.mark.parametrize("mode", [NEGATIVE, POSITIVE], ids=["negative", "positive"])
def test_answers_are_as_described(server: Any, operations: list[Any], mode: Any, record_property: Any) -> None:
    asked = [one for one in operations if takes_input(one)] if mode == NEGATIVE else operations
    busy = sum(map(takes_input, operations))
    statuses, problems = Counter[int](), list[str]()
    session = requests.Session()
    for operation in asked:

        @hypothesis.settings(
            max_examples=-(-CASES[mode] // busy) if takes_input(operation) else 2,
            database=None,
            deadline=None,
            derandomize=not FULL,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        @hypothesis.given(requests_of(operation, mode))
        def ask(case: Any) -> None:
            response = case.call(session=session, timeout=60)
            statuses[response.status_code] += 1
            case.validate_response(response, checks=REFUSED if mode == NEGATIVE else CONFORMS)

        try:
            ask()
        except* Exception as found:
            problems += [f"{operation.label}: {one}" for one in found.exceptions]
    assert not problems, "\n\n".join(problems)
    assert server.process.poll() is None
    assert sum(statuses.values()) >= CASES[mode] * 0.9 and max(statuses) < 500, statuses
    counted = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    record_property(f"answers to schemathesis, {mode.value}", counted)


def test_every_route_is_described(server: Any, operations: list[Any]) -> None:
    """In words, and with its own errors: FastAPI's form of a mistake is nobody's here."""
    document = requests.get(f"{server.url}/openapi.json", timeout=30).json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, routes in document["paths"].items():
        for method, route in routes.items():
            assert route.get("description"), (method, path)
            assert {"401", "403"} <= set(route["responses"]), (method, path)


def test_every_example_is_answered(server: Any) -> None:
    """The bodies that the document shows."""
    document = requests.get(f"{server.url}/openapi.json", timeout=30).json()
    tried = 0
    for path, routes in document["paths"].items():
        if "post" not in routes or "200" not in routes["post"]["responses"]:
            continue
        kind = routes["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for body in document["components"]["schemas"][kind]["examples"]:
            address = server.url + path.format(name="minilm", task="feature-extraction")
            response = requests.post(address, json=body, timeout=60)
            assert response.status_code == 200, (path, response.text)
            tried += 1
    assert tried > 15
