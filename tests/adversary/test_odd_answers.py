"""No JSON in any place of a response makes the proxy fail, whatever the two APIs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, crosses_families
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.responses.schema import find_failure
from proxy.dialects.wire.strict_json import Documents
from proxy.types.events import FamilyName, replace_at_slot
from tests.adversary.answers import CARD, SAYS, cut, frames_of, guarded
from tests.adversary.odd_values import SURROGATES, internal_errors, places, with_odd
from tests.dialects.test_responses import FUNCTION_CALL as CALL_ITEM
from tests.dialects.test_responses import accumulated
from tests.dialects.vendors.test_anthropic import STREAM, THOUGHT, TOOL_USE
from tests.doubles import Json, chat, item_events, message, response, response_events, text_item
from tests.for_each import for_each
from tests.golden.pipeline import CLIENTS as SERVERS
from tests.golden.pipeline import Pipeline, call_of, written

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
CHAT = {
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
    {**CHAT, "choices": [{"index": 0, "delta": SPOKEN, "finish_reason": "stop"}]},
    {**CHAT, "choices": [{"index": 0, "delta": {"content": PARTS}}]},
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
    "chat": (CHAT, {**CHAT, "choices": [PARTS_CHOICE]}),
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
    """Read and write a whole answer, which may become a stream."""
    options = ReadOptions(
        call_of(client, stream=stream),
        whole=True,
        stream=stream,
        inspect=True,
        crossing=crosses_families(client, upstream),
        shown_as=FAMILIES[client].shown_as,
    )
    server = DIALECTS[SERVERS[upstream][0]].server
    reader = FamilyFrameReader(FAMILIES[upstream], options, server, Documents(), limit=10**6)
    reader.feed(json.dumps(document).encode())
    frames = [frame for data in reader.close() for frame in reader.read(data)]
    written(client, frames, stream=stream)


def read_stream(upstream: FamilyName, client: FamilyName, documents: Sequence[Json]) -> None:
    pipeline = Pipeline(upstream, client, inspect=True)
    written(client, pipeline.frames([json.dumps(document).encode() for document in documents]))


@for_each(("upstream", "client"), PAIRS)
@for_each("stream", [True, False])
def test_whole_answer_is_written_or_refused(
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
    """Return an item that has a card's number in its words, and its events."""
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


def masked(events: Sequence[Json]) -> bytes:
    return written("responses", guarded(frames_of("responses", "responses", events), "mask")[0])


@given(ITEMS)
def test_repeated_items_are_masked_as_their_deltas(items: list[tuple[str, list[int]]]) -> None:
    scripted = [events_of_item(index, kind, cuts) for index, (kind, cuts) in enumerate(items)]
    script = response_events(
        *(events for _, events in scripted), document=response(*(item for item, _ in scripted))
    )

    raw = masked(script)

    assert b"1111 1111" not in raw
    output: list[Any] = accumulated(raw)["output"]
    assert [item["type"] for item in output] == [item["type"] for item, _ in scripted]
