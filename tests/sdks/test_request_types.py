"""Each field of the SDKs' own request types that refers to something outside of the request is
refused, wherever the types have it. A field of a new SDK fails here until it is classified."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from proxy.dialects.permitted import permitted
from proxy.errors import BadField
from proxy.types import Json, Upstream
from proxy.types.target import FREE_FORM
from tests.sdks.conftest import PYTHON, TOP, needs

UPSTREAM = Upstream("a", "openai", "https://llm.example")
REFERS = re.compile(
    r"(?:^|_)(?:ids?|urls?|uri|headers?|auth\w*|models?|secrets?|domains?|tokens?|keys?|path|host"
    r"|address|endpoint|credentials?|connector|file|source|server\w*)$"
)
"""Last names of fields that may refer to an address, a secret, a model or data of an account."""
WITHIN_THE_REQUEST = frozenset(
    {"approval_request_id", "call_id", "caller_id", "id", "mcp_server_name", "server_label"}
    | {"server_name", "tab_id", "tool_call_id", "tool_id", "tool_use_id", "download_id"}
)
"""Names of tools, calls and parts of the same request. Ids of items are sealed elsewhere."""
FOR_THE_MODEL = frozenset(
    {"allowed_domains", "blocked_domains", "file_url", "image_url", "path", "source", "url"}
    | {"file", "server_description", "server_tool_results", "user_id"}
)
"""What the model reads or searches, or a description."""
OTHER_MEANINGS = frozenset(
    {"budget_tokens", "hold_key", "input_tokens", "key", "keys", "output_tokens", "token"}
    | {"max_completion_tokens", "max_content_tokens", "max_output_tokens", "max_tokens"}
    | {"prompt_cache_key", "reasoning_tokens", "total_tokens"}
)
"""Counts, keyboard keys, names in filters, and words of a model."""
HARMLESS = WITHIN_THE_REQUEST | FOR_THE_MODEL | OTHER_MEANINGS
CHECKED_FREE = frozenset(
    {"configs", "content", "filters", "headers", "input_schema", "logit_bias", "output_schema"}
    | {"parameters", "schema", "tools", "trigger", "variables"}
)
"""Fields of any JSON in which names are checked: schemas except for their properties, tools that
are chosen, headers, and options."""
QUOTATIONS = frozenset({"citations", "from", "results", "svg_usage", "to"})
SCHEMA_WORDS = frozenset({"$defs", "const", "default", "definitions", "enum", "examples"})
PLAIN_DATA = frozenset({"documents"})  # of rerank and of chat templates


@pytest.fixture(scope="module")
def fields() -> list[tuple[str, bool]]:
    """The paths of the SDKs' request types, and whether each may be any JSON."""
    needs(PYTHON)
    command = [str(PYTHON), "-m", "tests.sdks.request_types"]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in run.stdout.splitlines()]


def body_of(path: str) -> Json:
    """Return a request with one field."""
    value: object = "other"
    for step in reversed(path.split(".")):
        name = step.replace("[]", "")
        for _ in range(step.count("[]")):
            value = [value]
        value = {name: value}
    assert isinstance(value, dict)
    return value


def is_refused(body: Json) -> bool:
    try:
        permitted(body, UPSTREAM, "gpt-4o")
    except BadField:
        return True
    return False


def test_each_field_that_refers_outside_is_refused(fields: list[tuple[str, bool]]) -> None:
    passing = []
    for path, _ in fields:
        steps = path.replace("[]", "").split(".")
        is_free = not FREE_FORM.isdisjoint(steps[:-1]) or path == "model"
        if REFERS.search(steps[-1]) and not is_free and steps[-1] not in HARMLESS:
            passing += [] if is_refused(body_of(path)) else [path]

    assert len(fields) > 1_500
    assert passing == []


def test_free_form_json_is_free_in_the_sdks(fields: list[tuple[str, bool]]) -> None:
    free = {path.split(".")[-1].replace("[]", "") for path, is_free in fields if is_free}

    assert free >= FREE_FORM - QUOTATIONS - SCHEMA_WORDS - PLAIN_DATA
    assert free - FREE_FORM - {"input"} <= CHECKED_FREE


def test_quotations_are_no_requests(fields: list[tuple[str, bool]]) -> None:
    """Names of quotations occur within messages and items alone, where servers read no options; the
    ``citations`` of a tool are a switch."""
    outer = {
        path.split(".")[0]
        for path, _ in fields
        if not QUOTATIONS.isdisjoint(path.replace("[]", "").split("."))
    }

    assert outer <= {"input[]", "items[]", "messages[]", "system[]", "tools[]"}
