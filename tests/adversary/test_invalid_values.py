"""Searches for JSON values of a wrong type that cause an internal error or hide text from guards.

One member at any depth of a request or a response is replaced by an odd value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import pytest

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.dialects.responses.schema import find_failure
from proxy.errors import BadRequest
from proxy.guards.engine import build_prompt_context
from proxy.guards.signed_thoughts import remove_changed_thoughts
from proxy.guards.text.documents import collect_request_texts
from proxy.types import Endpoint, RequestHead, Target, Upstream
from proxy.types.events import FamilyName
from proxy.types.providers import PROVIDERS, Provider
from tests.adversary.api_responses import CARD, inspect_frames, read_whole_frames
from tests.adversary.invalid_values import (
    ODD_VALUES,
    SURROGATES,
    find_internal_errors,
    iter_odd_documents,
    list_paths,
    replace_at,
)
from tests.dialects.responses.test_items import NUMBERS, RICH, drop_members, numbered
from tests.dialects.test_responses import FUNCTION_CALL as CALL_ITEM
from tests.dialects.vendors.test_anthropic import STREAM, THOUGHT, TOOL_USE
from tests.doubles import Json, chat, item_events, message, response, response_events, text_item
from tests.for_each import for_each
from tests.golden.pipeline import Pipeline, written

TEXT = {"type": "text", "text": "Hi"}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
USER: Json = {"role": "user", "content": "Where?"}
SCHEMA = {"type": "json_schema", "schema": {}}
MESSAGES: Json = {
    **{"model": "gpt-5", "max_tokens": 2048, "system": [TEXT], "random_seed": 1},
    **{"metadata": {"user_id": "u1"}, "service_tier": "auto"},
    "output_config": {"effort": "high", "format": SCHEMA},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "messages": [
        {
            "role": "user",
            "content": [
                TEXT,
                {"type": "image", "source": PNG},
                {"type": "document", "title": "t", "context": "c", "source": PNG},
                {"type": "document", "source": {"type": "text", "data": "x"}},
                {"type": "document", "source": {"type": "content", "content": [TEXT]}},
                {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "c_signed_QUFB", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c_signed_QUFB", "content": [TEXT]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "x", "is_error": True},
            ],
        },
    ],
}
FUNCTION: Json = {"name": "f", "description": "d", "parameters": {"type": "object"}}
CALL: Json = {
    **{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    "extra_content": {"google": {"thought_signature": "s"}},
}
CHAT: Json = {
    **{"model": "gpt-5", "user": "u1", "stop": ["."], "metadata": {"a": "b"}, "n": 1},
    **{"reasoning_effort": "high", "output_config": {}, "service_tier": "default"},
    **{"seed": 1, "random_seed": 2, "max_tokens": 3, "max_completion_tokens": 4},
    **{"parallel_tool_calls": False, "tools": [{"type": "function", "function": FUNCTION}]},
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                TEXT,
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "file", "file": {"filename": "a", "file_data": "data:a/b;base64,AA"}},
            ],
        },
        {"role": "assistant", "content": "x", "reasoning_content": "t", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
RESPONSES: Json = {
    **{"model": "gpt-5", "instructions": "Be brief.", "store": False, "top_logprobs": 2},
    **{"max_output_tokens": 64, "parallel_tool_calls": False, "random_seed": 3},
    "include": ["message.output_text.logprobs"],
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {**SCHEMA, "name": "n"}, "verbosity": "low"},
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "custom", "name": "g"}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, PICTURE]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c_signed_QUFB", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c_signed_QUFB", "output": [PICTURE]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ],
}
REQUESTS: Mapping[str, tuple[str, Endpoint, Json]] = {
    "chat": ("openai", "chat", CHAT),
    "messages": ("anthropic", "chat", MESSAGES),
    "responses": ("openai", "responses", RESPONSES),
}


def distinct_providers() -> Iterator[Provider]:
    """Yield a provider for each dialect and set of traits."""
    found = set[Any]()
    for row in PROVIDERS.values():
        traits = (
            row.renamed,
            row.thoughts,
            row.signs_calls,
            row.has_short_ids,
            row.is_openai_compatible,
        )
        if (row.dialect, traits) not in found:
            found.add((row.dialect, traits))
            yield row


def send_request(head: RequestHead, target: Target, body: Json) -> None:
    """Read a request, collect its texts and build what its target gets."""
    call = read_call(head, body, 10)
    build_prompt_context(call.body)
    collect_request_texts(call.body)
    remove_changed_thoughts(call.body, {**call.body, "instructions": ""})
    build_request(call, target)


def find_request_errors(form: str, target: Target, odd_values: Sequence[Any]) -> Any:
    dialect, endpoint, document = REQUESTS[form]
    send = partial(send_request, RequestHead(dialect, endpoint, "/", "r"), target)
    return find_internal_errors(iter_odd_documents(document, odd_values), send, BadRequest)


@pytest.mark.parametrize("endpoint", ["chat", "responses", "messages"])
@for_each("form", REQUESTS)
def test_odd_request_is_translated_or_refused(form: str, endpoint: str) -> None:
    dialect = "anthropic" if endpoint == "messages" else "openai"
    upstream = Upstream("own", dialect, "https://example.com/v1")
    target = Target(upstream, "m", None if endpoint == "messages" else endpoint)  # type: ignore[arg-type]

    assert find_request_errors(form, target, ODD_VALUES) == []


@for_each("row", [*distinct_providers()])
@for_each("form", REQUESTS)
def test_odd_request_is_adapted_to_its_provider_or_refused(form: str, row: Provider) -> None:
    dialect = row.dialect if row.dialect in DIALECTS else "openai"
    target = Target(Upstream("own", dialect, "https://example.com/v1", traits=row), "m")

    assert find_request_errors(form, target, [None, "\ud800", 2**70, ["x"], {"type": ["x"]}]) == []


CITED = {"type": "text", "text": "a", "citations": [{"cited_text": "c"}]}
USED = {
    **{"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 1},
    **{"cache_creation_input_tokens": 2, "output_tokens_details": {"thinking_tokens": 1}},
}
TEXT_AND_CALL = {
    "role": "assistant",
    "content": "a",
    "reasoning_content": "r",
    "tool_calls": [CALL],
}
DETAILS = {"cached_tokens": 1, "cache_write_tokens": 1}
CHAT_USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": DETAILS}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}, TEXT]
REASONING: Json = {
    **{"id": "rs_1", "type": "reasoning", "encrypted_content": "c"},
    "summary": [{"type": "summary_text", "text": "a thought"}],
}
RESPONSE = response(
    *(REASONING, text_item("a text"), CALL_ITEM),
    usage=response()["usage"] | {"input_tokens_details": {"cached_tokens": 1}},
    instructions="Hm.",
)


def build_chat(member: str, delta: Json) -> Json:
    choices = [{"index": 0, member: delta, "finish_reason": "stop"}]
    return chat(choices=choices, usage=CHAT_USAGE)


DOCUMENTS: Mapping[FamilyName, Sequence[Json]] = {
    "chat": [build_chat("message", TEXT_AND_CALL), build_chat("message", {"content": PARTS})],
    "messages": [message(THOUGHT, CITED, TOOL_USE, usage=USED)],
    "responses": [RESPONSE],
}
STREAMS: Mapping[FamilyName, Sequence[Sequence[Json]]] = {
    "chat": [[build_chat("delta", TEXT_AND_CALL)], [build_chat("delta", {"content": PARTS})]],
    "messages": [STREAM],
    "responses": [
        response_events(
            item_events(0, text_item("a text"), "a ", "text"),
            item_events(1, CALL_ITEM, '{"place":', ' "Paris"}'),
            [{"type": "response.output_item.done", "output_index": 2, "item": REASONING}],
            document=response(text_item("a text"), CALL_ITEM, REASONING),
        )
    ],
}
PAIRS: Sequence[tuple[FamilyName, FamilyName]] = (
    *(("messages", "messages"), ("messages", "chat"), ("chat", "messages")),
    *(("responses", "responses"), ("responses", "chat"), ("chat", "responses")),
)


@for_each(("upstream", "client"), PAIRS)
@for_each("stream", [True, False])
def test_odd_whole_response_is_written_or_refused(
    upstream: FamilyName, client: FamilyName, stream: bool
) -> None:
    def write(document: Json) -> None:
        raw = json.dumps(document).encode()
        frames = read_whole_frames(client, upstream, raw, stream=stream, inspect=True)
        written(client, frames, stream=stream)

    for document in DOCUMENTS[upstream]:
        assert find_internal_errors(iter_odd_documents(document), write) == []


def odd_streams(events: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield a stream with each odd value at each path of each event."""
    for index, event in enumerate(events):
        for odd in iter_odd_documents(event, (*ODD_VALUES, *SURROGATES)):
            yield [*events[:index], odd, *events[index + 1 :]]


@for_each(("upstream", "client"), PAIRS)
def test_odd_event_is_written_or_refused(upstream: FamilyName, client: FamilyName) -> None:
    def write(events: Any) -> None:
        pipeline = Pipeline(upstream, client, inspect=True)
        written(client, pipeline.frames([json.dumps(event).encode() for event in events]))

    for events in STREAMS[upstream]:
        assert find_internal_errors(odd_streams(events), write) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [(), NUMBERS], ids=["numbered", "without numbers"])
def test_odd_event_is_numbered_or_refused(missing: tuple[str, ...]) -> None:
    events = [drop_members(event, *missing) for event in RICH]

    def number(odd: Any) -> None:
        json.dumps(numbered(*odd))

    assert find_internal_errors(odd_streams(events), number) == []  # type: ignore[arg-type]


def test_failure_of_any_shape_is_found() -> None:
    assert find_internal_errors(iter_odd_documents(RESPONSE), find_failure) == []


def test_guards_read_values_of_another_type() -> None:
    number, [events] = CARD.replace(" ", ""), STREAMS["responses"]
    values: list[Any] = [[number], {"a": [number], number: 1}]
    for index, event in enumerate(events):
        for path in list_paths(event):
            for value in values:
                odd = [*events[:index], replace_at(event, path, value), *events[index + 1 :]]
                pipeline = Pipeline("responses", "responses", inspect=True)
                frames = pipeline.frames([orjson.dumps(document) for document in odd])
                raw = written("responses", inspect_frames(frames)[0])
                assert number.encode() not in raw, (event, path, value)
