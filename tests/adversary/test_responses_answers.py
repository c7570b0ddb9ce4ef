"""No JSON in any place of a response of Responses makes the proxy fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.schema import find_failure
from proxy.types.events import FamilyName, replaced
from tests.adversary.answers import frames_of, guarded
from tests.adversary.test_messages_answers import (
    CHAT,
    CHUNK,
    CHUNK_IN_PARTS,
    HALVES,
    IN_PARTS,
    faults_of,
    places,
    read_stream,
    read_whole,
    with_odd,
)
from tests.dialects.test_responses import CALLED, accumulated
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.for_each import for_each
from tests.golden.pipeline import Pipeline, written

SUMMARY: Json = {"type": "summary_text", "text": "a thought"}
THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": [SUMMARY], "encrypted_content": "c"}
USED = response()["usage"] | {"input_tokens_details": {"cached_tokens": 1}}
DOCUMENT = response(THOUGHT, text_item("a text"), CALLED, usage=USED, instructions="Hm.")
STREAM = response_events(
    item_events(0, text_item("a text"), "a ", "text"),
    item_events(1, CALLED, '{"place":', ' "Paris"}'),
    [{"type": "response.output_item.done", "output_index": 2, "item": THOUGHT}],
    document=response(text_item("a text"), CALLED, THOUGHT),
)
CARD = "4111 1111 1111 1111"


PAIRS: list[tuple[FamilyName, FamilyName]] = [
    ("responses", "responses"),
    ("responses", "chat"),
    ("chat", "responses"),
]


@for_each(("upstream", "client"), PAIRS)
@for_each("stream", [True, False])
def test_reads_and_writes_answer(upstream: FamilyName, client: FamilyName, stream: bool) -> None:
    turn = partial(read_whole, upstream, client, stream=stream)
    for document in (DOCUMENT,) if upstream == "responses" else (CHAT, IN_PARTS):
        assert faults_of(with_odd(document), turn) == []


def test_each_chunk_of_a_chat_is_read_and_written() -> None:
    def turn(odd: Json) -> None:
        read_stream("chat", "responses", [odd])

    for document in (CHUNK, CHUNK_IN_PARTS):
        assert faults_of(with_odd(document, *HALVES), turn) == []


def test_a_failure_of_any_shape_is_read() -> None:
    assert faults_of(with_odd(DOCUMENT), find_failure) == []


@for_each("client", ["responses", "chat"])
def test_each_event_is_read_and_written(client: FamilyName) -> None:
    for number, event in enumerate(STREAM):
        items_before, items_after = STREAM[:number], STREAM[number + 1 :]

        def turn(
            odd: Json, items_before: Any = items_before, items_after: Any = items_after
        ) -> None:
            read_stream("responses", client, [*items_before, odd, *items_after])

        assert faults_of(with_odd(event, *HALVES), turn) == []


def test_no_value_of_another_type_passes_unread() -> None:
    number = CARD.replace(" ", "")
    values: list[Any] = [[number], {"a": [number], number: 1}]
    for index, event in enumerate(STREAM):
        for path in places(event):
            for value in values:
                odd = replaced(event, path, value)
                pipeline = Pipeline("responses", "responses", inspect=True)
                documents = [*STREAM[:index], odd, *STREAM[index + 1 :]]
                frames = pipeline.frames([orjson.dumps(document) for document in documents])
                raw = written("responses", guarded(frames, "mask")[0])
                assert number.encode() not in raw, (event, path, value)


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


def events_of_item(index: int, kind: str, cuts: Sequence[int]) -> tuple[Json, list[Json]]:
    """Return an item that has a card's number in its words, and its events."""
    words = f"my card is {CARD}, is it not"
    if kind == "text":
        item = text_item(words, f"msg_{index}")
        return item, item_events(index, item, *pieces(words, cuts))
    if kind == "call":
        arguments = orjson.dumps({"card": words}).decode()
        item = {**CALLED, "id": f"fc_{index}", "arguments": arguments}
        return item, item_events(index, item, *pieces(arguments, cuts))
    if kind == "thought":
        item = {"id": f"rs_{index}", "type": "reasoning", "summary": [{**SUMMARY, "text": words}]}
    else:
        item = {"id": f"ws_{index}", "type": "web_search_call", "action": {"query": words}}
    return item, [{"type": "response.output_item.done", "output_index": index, "item": item}]


KINDS = ("text", "call", "thought", "search")
ITEMS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 60), max_size=6)),
    min_size=1,
    max_size=4,
)


def masked(events: Sequence[Json]) -> bytes:
    return written("responses", guarded(frames_of("responses", "responses", events), "mask")[0])


@given(ITEMS)
def test_what_is_said_again_is_what_was_shown(items: list[tuple[str, list[int]]]) -> None:
    scripted = [events_of_item(index, kind, cuts) for index, (kind, cuts) in enumerate(items)]
    script = response_events(
        *(events for _, events in scripted), document=response(*(i for i, _ in scripted))
    )

    raw = masked(script)

    assert re.search(rb"1111 1111", raw) is None
    kinds = [item["type"] for item, _ in scripted]
    assert [item["type"] for item in done_items(raw)] == kinds


def done_items(raw: bytes) -> list[Any]:
    """Return the items of the response that a stream ends with, which are those of its events."""
    output: list[Any] = accumulated(raw)["output"]
    return output
