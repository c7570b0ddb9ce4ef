"""No JSON value anywhere in a request or a response causes an internal error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.dialects.families import FAMILIES, crosses_families
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.messages import from_chat as chat_to_messages
from proxy.dialects.messages import to_chat as messages_to_chat
from proxy.dialects.responses import requests as responses_requests
from proxy.dialects.responses.schema import RULES, find_failure
from proxy.dialects.vendors.anthropic import read_user
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import BadRequest
from proxy.fields.checks import check_body
from proxy.guards.engine import build_prompt_context
from proxy.guards.signed_thoughts import remove_changed_thoughts
from proxy.guards.text.documents import collect_request_texts
from proxy.types.events import FamilyName, replace_at_slot
from tests.adversary.invalid_values import SURROGATES, internal_errors, places, with_odd
from tests.adversary.random_streams import CARD, SAYS, cut, frames_of, guarded
from tests.dialects.test_responses import FUNCTION_CALL as CALL_ITEM
from tests.dialects.test_responses import accumulated
from tests.dialects.vendors.test_anthropic import STREAM, THOUGHT, TOOL_USE
from tests.doubles import Json, chat, item_events, message, response, response_events, text_item
from tests.for_each import for_each
from tests.golden.pipeline import CLIENTS as SERVERS
from tests.golden.pipeline import Pipeline, call_of, written

TEXT = {"type": "text", "text": "Hi"}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
MESSAGES = {
    "model": "gpt-5",  # a reasoning model
    "max_tokens": 64,
    "system": [TEXT],
    "metadata": {"user_id": "u1"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "service_tier": "auto",
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
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT], "is_error": True},
                {"type": "tool_result", "tool_use_id": "t2", "content": "x"},
            ],
        },
    ],
}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
CHAT = {
    "model": "gpt-5",
    "user": "u1",
    "stop": ["."],
    "metadata": {"a": "b"},
    "reasoning_effort": "high",
    "output_config": {},
    "service_tier": "default",
    "parallel_tool_calls": False,
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                TEXT,
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "file", "file": {"filename": "a", "file_data": "data:a/b;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
}


PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
RESPONSES: Json = {
    "model": "gpt-5",
    "instructions": "Be brief.",
    "include": ["message.output_text.logprobs"],
    "max_output_tokens": 64,
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low", "summary": "auto"},
    "store": False,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "custom", "name": "g"}],
    "top_logprobs": 2,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, PICTURE]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": [PICTURE]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ],
}


def messages_as_chat(body: Json) -> None:
    check_body(CHECKED_FIELDS["anthropic"]["chat"], body)
    read_user(body)
    for keeps_thoughts in (True, False):
        messages_to_chat.convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def messages_as_messages(body: Json) -> None:
    check_body(CHECKED_FIELDS["anthropic"]["chat"], body)
    chat_to_messages.rename_chat_fields(body)


def chat_as_messages(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["chat"], body)
    chat_to_messages.convert_from_chat(body)


def chat_as_responses(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["chat"], body)
    responses_requests.convert_from_chat(body)


def check_responses(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["responses"], body)
    for rule in RULES:
        rule(body)


def responses_as_chat(body: Json) -> None:
    check_responses(body)
    for keeps_thoughts in (True, False):
        responses_requests.convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def responses_as_responses(body: Json) -> None:
    check_responses(body)
    responses_requests.rename_chat_fields(body)
    build_prompt_context(body)
    collect_request_texts(body)
    remove_changed_thoughts(RESPONSES, {**RESPONSES, "instructions": ""})


@pytest.mark.parametrize(
    ("document", "handle"),
    [
        (MESSAGES, messages_as_chat),
        (MESSAGES, messages_as_messages),
        (CHAT, chat_as_messages),
        (CHAT, chat_as_responses),
        (RESPONSES, responses_as_chat),
        (RESPONSES, responses_as_responses),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_odd_request_is_translated_or_refused(
    document: Json, handle: Callable[[Json], None]
) -> None:
    handle(document)

    assert internal_errors(with_odd(document), handle, BadRequest) == []


CITED = {"type": "text", "text": "a", "citations": [{"cited_text": "c"}]}
USED = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_input_tokens": 1,
    "cache_creation_input_tokens": 2,
    "output_tokens_details": {"thinking_tokens": 1},
}
TOOL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SPOKEN = {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [TOOL]}
DETAILS = {"cached_tokens": 1, "cache_write_tokens": 1}
CHAT_ANSWER = {
    **chat(),
    "choices": [{"index": 0, "message": SPOKEN, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": DETAILS},
}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]},
    {"type": "text", "text": "a"},
]
PARTS_CHOICE = {"index": 0, "message": {"content": PARTS}, "finish_reason": "stop"}
CHUNKS = (
    {**CHAT_ANSWER, "choices": [{"index": 0, "delta": SPOKEN, "finish_reason": "stop"}]},
    {**CHAT_ANSWER, "choices": [{"index": 0, "delta": {"content": PARTS}}]},
)
SUMMARY: Json = {"type": "summary_text", "text": "a thought"}
REASONING: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [SUMMARY],
    "encrypted_content": "c",
}
RESPONSE = response(
    REASONING,
    text_item("a text"),
    CALL_ITEM,
    usage=response()["usage"] | {"input_tokens_details": {"cached_tokens": 1}},
    instructions="Hm.",
)
DOCUMENTS: Mapping[FamilyName, Sequence[Json]] = {
    "chat": (CHAT_ANSWER, {**CHAT_ANSWER, "choices": [PARTS_CHOICE]}),
    "messages": (message(THOUGHT, CITED, TOOL_USE, usage=USED),),
    "responses": (RESPONSE,),
}
STREAMS: Mapping[FamilyName, Sequence[Json]] = {
    "messages": STREAM,
    "responses": response_events(
        item_events(0, text_item("a text"), "a ", "text"),
        item_events(1, CALL_ITEM, '{"place":', ' "Paris"}'),
        [{"type": "response.output_item.done", "output_index": 2, "item": REASONING}],
        document=response(text_item("a text"), CALL_ITEM, REASONING),
    ),
}
PAIRS: Sequence[tuple[FamilyName, FamilyName]] = (
    ("messages", "messages"), ("messages", "chat"), ("chat", "messages"),
    ("responses", "responses"), ("responses", "chat"), ("chat", "responses"),
)  # fmt: skip


def read_whole(upstream: FamilyName, client: FamilyName, stream: bool, document: Json) -> None:
    """Read and write a whole response, which may become a stream."""
    options = ReadOptions(
        call_of(client, stream=stream),
        whole=True,
        stream=stream,
        inspect=True,
        crossing=crosses_families(client, upstream),
        shown_as=FAMILIES[client].shown_as,
    )
    server = DIALECTS[SERVERS[upstream][0]].server
    reader = FamilyFrameReader(FAMILIES[upstream], options, server, DocumentParser(), limit=10**6)
    reader.feed(json.dumps(document).encode())
    frames = [frame for data in reader.close() for frame in reader.read(data)]
    written(client, frames, stream=stream)


def read_stream(upstream: FamilyName, client: FamilyName, documents: Sequence[Json]) -> None:
    pipeline = Pipeline(upstream, client, inspect=True)
    written(client, pipeline.frames([json.dumps(document).encode() for document in documents]))


@for_each(("upstream", "client"), PAIRS)
@for_each("stream", [True, False])
def test_whole_response_is_written_or_refused(
    upstream: FamilyName, client: FamilyName, stream: bool
) -> None:
    for document in DOCUMENTS[upstream]:
        read = partial(read_whole, upstream, client, stream)
        assert internal_errors(with_odd(document), read) == []


@for_each(("upstream", "client"), [pair for pair in PAIRS if pair[0] != "chat"])
def test_streamed_event_is_written_or_refused(upstream: FamilyName, client: FamilyName) -> None:
    events = STREAMS[upstream]
    for index, event in enumerate(events):

        def read(odd: Json, index: int = index) -> None:
            read_stream(upstream, client, [*events[:index], odd, *events[index + 1 :]])

        assert internal_errors(with_odd(event, *SURROGATES), read) == []


@for_each("client", ["messages", "responses"])
@for_each("chunk", CHUNKS)
def test_chat_chunk_is_written_or_refused(chunk: Json, client: FamilyName) -> None:
    def read(odd: Json) -> None:
        read_stream("chat", client, [odd])

    assert internal_errors(with_odd(chunk, *SURROGATES), read) == []


def test_failure_of_any_shape_is_found() -> None:
    assert internal_errors(with_odd(RESPONSE), find_failure) == []


def test_guards_read_values_of_another_type() -> None:
    number, stream = CARD.replace(" ", ""), STREAMS["responses"]
    values: list[Any] = [[number], {"a": [number], number: 1}]
    for index, event in enumerate(stream):
        for path in places(event):
            for value in values:
                odd = replace_at_slot(event, path, value)
                pipeline = Pipeline("responses", "responses", inspect=True)
                documents = [*stream[:index], odd, *stream[index + 1 :]]
                frames = pipeline.frames([orjson.dumps(document) for document in documents])
                raw = written("responses", guarded(frames, "mask")[0])
                assert number.encode() not in raw, (event, path, value)


def events_of_item(index: int, kind: str, cuts: Sequence[int]) -> tuple[Json, list[Json]]:
    """Return an item with a card number in its text, and its events."""
    if kind == "text":
        item = text_item(SAYS, f"msg_{index}")
        return item, item_events(index, item, *cut(SAYS, cuts))
    if kind == "call":
        arguments = orjson.dumps({"card": SAYS}).decode()
        item = {**CALL_ITEM, "id": f"fc_{index}", "arguments": arguments}
        return item, item_events(index, item, *cut(arguments, cuts))
    if kind == "thought":
        item = {"id": f"rs_{index}", "type": "reasoning", "summary": [{**SUMMARY, "text": SAYS}]}
    else:
        item = {"id": f"ws_{index}", "type": "web_search_call", "action": {"query": SAYS}}
    return item, [{"type": "response.output_item.done", "output_index": index, "item": item}]


ITEMS = st.lists(
    st.tuples(
        st.sampled_from(("text", "call", "thought", "search")),
        st.lists(st.integers(1, 60), max_size=6),
    ),
    min_size=1,
    max_size=4,
)


def mask_card(events: Sequence[Json]) -> bytes:
    return written("responses", guarded(frames_of("responses", "responses", events), "mask")[0])


@given(ITEMS)
def test_repeated_items_are_masked_like_their_deltas(items: list[tuple[str, list[int]]]) -> None:
    scripted = [events_of_item(index, kind, cuts) for index, (kind, cuts) in enumerate(items)]
    script = response_events(
        *(events for _, events in scripted), document=response(*(item for item, _ in scripted))
    )

    raw = mask_card(script)

    assert b"1111 1111" not in raw
    output: list[Any] = accumulated(raw)["output"]
    assert [item["type"] for item in output] == [item["type"] for item, _ in scripted]
