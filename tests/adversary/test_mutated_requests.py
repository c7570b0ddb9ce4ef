"""A request with one value of another type is sent, or refused with the field's name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import InvalidField
from proxy.types import Endpoint, Json, RequestHead, Target, Upstream
from proxy.types.providers import PROVIDERS, Provider
from tests.for_each import for_each

ODD: list[Any] = [None, True, 2**70, "", "\ud800", "c_signed_QUFB", [], [None], ["x"], {}]
ODD += [{"type": ["x"], "id": {}}, [{"type": "x"}]]
USER: Json = {"role": "user", "content": "Where?"}
FUNCTION: Json = {"name": "f", "arguments": "{}"}
CALL: Json = {
    "id": "call_1",
    "type": "function",
    "function": FUNCTION,
    "extra_content": {"google": {"thought_signature": "s"}},
}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
FIELDS: Json = {"role": "assistant", "content": "x", "reasoning_content": "t", "tool_calls": [CALL]}
USED: Json = {"type": "tool_use", "id": "c_signed_QUFB", "name": "f", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "c_signed_QUFB", "content": "r"}
SHOWN: Json = {"type": "thinking", "thinking": "t", "signature": "s"}
ITEMS: list[Json] = [
    USER,
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
    {**FUNCTION, "type": "function_call", "call_id": "c_signed_QUFB"},
    {"type": "function_call_output", "call_id": "c_signed_QUFB", "output": "x"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {}}}
REQUESTS: dict[str, tuple[str, Endpoint, Json]] = {
    "chat": (
        *("openai", "chat"),
        {
            "messages": [
                {"role": "developer", "content": "d"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}, PICTURE]},
                FIELDS,
                {"role": "tool", "tool_call_id": "call_1", "content": "r"},
            ],
            **{"tools": [TOOL], "tool_choice": "auto", "reasoning_effort": "low", "n": 1},
            **{"seed": 1, "random_seed": 2, "max_tokens": 3, "max_completion_tokens": 4},
        },
    ),
    "messages": (
        *("anthropic", "chat"),
        {
            "messages": [
                USER,
                {"role": "assistant", "content": [SHOWN, USED]},
                {"role": "user", "content": [RESULT]},
            ],
            **{"max_tokens": 2048, "system": [{"type": "text", "text": "s"}], "random_seed": 1},
            **{"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "auto"}},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
    ),
    "responses": (
        *("openai", "responses"),
        {
            **{"input": ITEMS, "tools": [{**TOOL["function"], "type": "function"}]},
            **{"text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}},
            **{"max_output_tokens": 5, "random_seed": 3},
        },
    ),
}


def distinct_rows() -> Iterator[Provider]:
    observed = set[Any]()
    for row in PROVIDERS.values():
        traits = (row.renamed, row.thoughts, row.signs_calls, row.has_short_ids, row.is_plain)
        if (row.dialect, traits) not in observed:
            observed.add((row.dialect, traits))
            yield row


def mutated(value: Any) -> Iterator[Any]:
    """Yield copies of a value in which one member or item, at any depth, is odd."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for place, inner in members:
        replaced = [*ODD, *(mutated(inner) if isinstance(inner, dict | list) else ())]
        for other_value in replaced:
            document = copy.copy(value)
            document[place] = other_value
            yield document


@for_each("row", [*distinct_rows()])
@for_each("form", REQUESTS)
def test_mutated_request_is_sent_or_refused(form: str, row: Provider) -> None:
    dialect, endpoint, body = REQUESTS[form]
    spoken = row.dialect if row.dialect in DIALECTS else "openai"
    upstream = Upstream("own", spoken, "https://example.com/v1", traits=row)
    target, head = Target(upstream, "m"), RequestHead(dialect, endpoint, "/", "r")
    sent_value, refused = 0, list[str | None]()
    for document in (body, *mutated(body)):
        try:
            call = read_call(head, {"model": "m", **document}, 10)
            build_request(call, target, DIALECTS[dialect], DIALECTS[spoken])
        except InvalidField as error:
            refused.append(error.param)
        else:
            sent_value += 1
    assert sent_value
    assert all(refused)
