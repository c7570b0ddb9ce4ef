"""Fields of SDK request types that refer outside the request are refused."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from proxy.dialects.requests.field_filter import permitted
from proxy.errors import InvalidField
from proxy.types import Json, Upstream
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
    {"annotations", "configs", "content", "filters", "headers", "input_schema", "logit_bias"}
    | {"output_schema", "parameters", "schema", "tools", "trigger", "variables"}
)
"""Fields of any JSON in which names are checked: schemas except for their properties, tools that
are chosen and what a server says of them, headers, and options."""
QUOTATIONS = frozenset({"annotations", "citations", "from", "results", "svg_usage", "to"})
TYPED = frozenset({"arguments", "input_examples", "metadata"})
"""Fields of the client's data for which the SDKs have a type."""


def read_fields() -> list[tuple[str, bool, str, Json]]:
    """Return each path of a request type, whether it is any JSON, its API path and a body."""
    needs(PYTHON)
    command = [str(PYTHON), "-m", "tests.sdks.request_types"]
    run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def fields() -> list[tuple[str, bool]]:
    """The paths of the SDKs' request types, and whether each may be any JSON."""
    return sorted({(path, is_free) for path, is_free, _, _ in read_fields()})


def body_of(path: str) -> Json:
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
    except InvalidField:
        return True
    return False


def is_free(path: str) -> bool:
    """Return True if a field may have members of any name. Items of a conversation are an input."""
    return not is_refused(body_of(re.sub(r"^items\b", "input", path) + ".server_url"))


def test_each_field_that_refers_outside_is_refused(fields: list[tuple[str, bool]]) -> None:
    passing = []
    for path, _ in fields:
        outer, _, name = path.replace("[]", "").rpartition(".")
        if not REFERS.search(name) or name in HARMLESS or path == "model":
            continue
        if not is_refused(body_of(path)) and not is_free(outer):
            passing.append(path)

    assert len(fields) > 1_500
    assert passing == []


def test_free_form_json_is_free_in_the_sdks(fields: list[tuple[str, bool]]) -> None:
    """A field with members of any name is any JSON in the types, a quotation, or within one."""
    free = {path.replace("[]", ""): any_json for path, any_json in fields if is_free(path)}
    outermost = {path for path in free if path.rpartition(".")[0] not in free}
    checked = {path.replace("[]", "") for path, any_json in fields if any_json} - free.keys()

    typed = {path.split(".")[-1] for path in outermost if not free[path]}
    assert typed <= QUOTATIONS | TYPED
    assert {path.split(".")[-1] for path in checked} <= CHECKED_FREE
    assert len(outermost) >= 20


def test_quotations_are_no_requests(fields: list[tuple[str, bool]]) -> None:
    """Quotations occur within messages and items alone, where servers read no options."""
    outer = {
        path.split(".")[0]
        for path, _ in fields
        if path.replace("[]", "").split(".")[-1] in QUOTATIONS and is_free(path)
    }

    assert outer <= {"input[]", "items[]", "messages[]", "system[]"}
