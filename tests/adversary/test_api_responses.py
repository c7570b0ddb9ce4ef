"""Searches for text, thoughts and tool calls that change on the way from one API to another.

Upstreams write the same parts in many legal forms, which clients of each API read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guards.stream.frame_texts import iter_non_delta_texts, list_delta_texts
from proxy.guards.text.documents import collect_request_texts, collect_texts, walk_response_document
from proxy.guards.text.walk import Text
from proxy.types.events import FamilyName
from tests.adversary.api_responses import (
    ARGUMENTS,
    CARD,
    PAIRS,
    SENTENCE,
    VARIANTS,
    Form,
    build_document,
    build_item_events,
    build_stream,
    inspect_frames,
    number_parts,
    read_frames,
    read_whole_frames,
)
from tests.adversary.client_readers import Part, join_texts, read_parts
from tests.doubles import Json, block_events, message, message_events, response, response_events
from tests.for_each import for_each

PARTS = st.lists(
    st.one_of(
        st.builds(Part, st.just("text"), st.sampled_from([SENTENCE, "a", "b c"])),
        st.builds(Part, st.just("thought"), st.sampled_from([SENTENCE, "t"])),
        st.builds(Part, st.just("call"), st.sampled_from([ARGUMENTS, "{}", '{"a":{"b":["}"]}}'])),
    ),
    min_size=1,
    max_size=4,
)
CUTS = st.lists(st.integers(0, 60), max_size=3)


def draw_variants(data: Any, upstream: str) -> frozenset[str]:
    variants: frozenset[str] = data.draw(
        st.frozensets(st.sampled_from(VARIANTS[upstream]), max_size=3)
    )
    return variants


def summarize_parts(parts: Sequence[Part], *, masked: bool = False) -> Any:
    """Join texts by kind, and list the arguments, the id and the name of each call."""
    if masked:
        parts = [part._replace(text=part.text.replace(CARD, "[CARD]")) for part in parts]
    calls = [part for part in parts if part.kind == "call"]
    return (
        join_texts(parts, "text"),
        join_texts(parts, "thought").replace("\n\n", ""),
        [(orjson.loads(part.text or "{}"), part.call_id, part.name) for part in calls],
    )


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=12)
@given(st.data(), PARTS, CUTS)
def test_stream_is_read_as_sent_by_the_upstream(
    client: FamilyName, upstream: FamilyName, data: Any, parts: list[Part], cuts: list[int]
) -> None:
    events = build_stream(upstream, parts, Form(cuts, draw_variants(data, upstream)))

    plain = read_parts(client, read_frames(client, upstream, events))
    safe = read_parts(client, inspect_frames(read_frames(client, upstream, events))[0])

    expected = number_parts(parts)
    assert summarize_parts(plain) == summarize_parts(expected)
    assert summarize_parts(safe) == summarize_parts(expected, masked=True)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=12)
@given(st.data(), PARTS)
def test_whole_response_is_read_as_sent_by_the_upstream(
    client: FamilyName, upstream: FamilyName, stream: bool, data: Any, parts: list[Part]
) -> None:
    document = build_document(upstream, parts, Form(variants=draw_variants(data, upstream)))
    raw = orjson.dumps(document)

    frames = read_whole_frames(client, upstream, raw, stream=stream, inspect=False)
    found = read_parts(client, frames, stream=stream)

    if upstream != client or upstream == "chat" or not stream:
        assert summarize_parts(found) == summarize_parts(number_parts(parts))


MARK, NAME = "mark", "f_0"
ITEM_KINDS: Mapping[str, str] = {
    "text": "content",
    "refusal": "refusal",
    "reasoning": "reasoning",
    "summary": "reasoning",
    "arguments": "arguments",
    "input": "arguments",
}
"""The kind of text in an item of Responses."""
CALL: Json = {"id": "call_0", "name": NAME, "input": {"says": MARK}}
BLOCKS: Mapping[str, tuple[Json, Json, Json, str]] = {
    "text": (
        {"type": "text", "text": MARK},
        {"text": ""},
        {"type": "text_delta", "text": MARK},
        "content",
    ),
    "thinking": (
        {"type": "thinking", "thinking": MARK, "signature": "c2ln"},
        {"thinking": ""},
        {"type": "thinking_delta", "thinking": MARK},
        "reasoning",
    ),
    **{
        kind: (
            {"type": kind, **CALL},
            {"input": {}},
            {"type": "input_json_delta", "partial_json": orjson.dumps({"says": MARK}).decode()},
            "arguments",
        )
        for kind in ("tool_use", "server_tool_use", "mcp_tool_use")
    },
}
"""By type: a block of Messages, its differences when it starts, its delta, and its kind of text."""


def require_kinds(
    family: FamilyName,
    source: Json,
    document: Json,
    request: Json,
    events: Sequence[Json],
    kind: str,
) -> None:
    """Fail unless a response, a request and a stream agree on the kind of a text and a name."""
    frames = [frame for client in ("chat", family) for frame in read_frames(client, family, events)]
    streamed = [
        text
        for frame in frames
        for text in (
            *(delta_text.text for delta_text in list_delta_texts(frame)),
            *collect_texts(iter_non_delta_texts(frame)).texts,
        )
    ]
    sources: Iterable[Sequence[Text]] = (
        collect_texts(walk_response_document(document, family, is_event=False)).texts,
        collect_request_texts(request).texts,
        streamed,
    )
    for texts in sources:
        found = {word: {text.kind for text in texts if word in text.text} for word in (MARK, NAME)}
        assert found == {MARK: {kind}, NAME: {"tool"} if NAME in source.values() else set()}


@for_each("kind", ITEM_KINDS)
def test_text_of_an_item_has_one_kind(kind: str) -> None:
    item_events = build_item_events(0, kind, [MARK])
    item = item_events[-1]["item"]
    document = response(item)
    events = response_events(item_events, document=document)

    require_kinds("responses", item, document, {"input": [item]}, events, ITEM_KINDS[kind])


@for_each("type_", BLOCKS)
def test_text_of_a_block_has_one_kind(type_: str) -> None:
    block, started, delta, kind = BLOCKS[type_]
    request = {"messages": [{"role": "assistant", "content": [block]}]}
    events = message_events(block_events(0, block | started, delta))

    require_kinds("messages", block, message(block), request, events, kind)
