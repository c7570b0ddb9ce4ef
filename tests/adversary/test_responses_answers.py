"""Whatever JSON stands in any one place of an answer that becomes a response, or was one: it is
read and written, or is the upstream's fault. Whatever its items are and however their texts are
cut: what it says again is what guards have let pass of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat_order import ChatOrder
from proxy.dialects.content_parts import joined_answer
from proxy.dialects.responses import writing
from proxy.dialects.responses.events import ResponseEvents
from proxy.dialects.responses.failures import failure_of
from proxy.dialects.responses.reading import ResponseTurn, chat_answer, own_answer
from proxy.errors import ProxyError
from proxy.guardrails.stream.filter import StreamFilter
from proxy.types import Call, Chunk, RequestHead
from tests.adversary.test_messages_answers import CHAT, CHUNK, CHUNK_IN_PARTS, IN_PARTS, with_odd
from tests.dialects.test_responses import CALLED, accumulated
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.for_each import for_each
from tests.guardrails.doubles import tallies
from tests.guardrails.stream.test_words import made

CALL = Call(RequestHead("openai", "responses", "/v1/responses", "req_1"), {"instructions": "Hm."})
SUMMARY: Json = {"type": "summary_text", "text": "a thought"}
THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": [SUMMARY], "encrypted_content": "c"}
USED = response()["usage"] | {"input_tokens_details": {"cached_tokens": 1}}
WHOLE = response(THOUGHT, text_item("a text"), CALLED, usage=USED, instructions="Hm.")
STREAM = response_events(
    item_events(0, text_item("a text"), "a ", "text"),
    item_events(1, CALLED, '{"place":', ' "Paris"}'),
    [{"type": "response.output_item.done", "output_index": 2, "item": THOUGHT}],
    whole=response(text_item("a text"), CALLED, THOUGHT),
)
CARD = "4111 1111 1111 1111"


def written(chunks: Sequence[Json]) -> bytes:
    writer = ResponseEvents(CALL)
    raw = b"".join([writer.feed(Chunk(data)) for data in chunks])
    return raw + writer.feed(Chunk(None, last=True))


def own_whole(document: Json) -> object:
    return orjson.dumps(writing.whole(CALL, {0: own_answer(document)}))


def of_chat(document: Json) -> object:
    return orjson.dumps(writing.whole(CALL, {0: joined_answer(document)}))


def as_chunk(document: Json) -> object:
    return written(ChatOrder(waits=True, apart=True).feed(joined_answer(document), 0))


@for_each(
    ("document", "turn"),
    [
        *((WHOLE, turn) for turn in (own_whole, chat_answer, failure_of)),
        *((document, of_chat) for document in (CHAT, IN_PARTS)),
        *((document, as_chunk) for document in (CHUNK, CHUNK_IN_PARTS)),
    ],
    ids=[
        *("its own", "to a chat", "as a failure", "a chat's", "in parts", "a chat's chunk"),
        "a chunk in parts",
    ],
)
def test_an_answer_is_read_and_written(document: Json, turn: Callable[[Json], object]) -> None:
    faults = []
    for odd in with_odd(document):
        try:
            turn(odd)
        except ProxyError:
            continue
        except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
            faults.append((odd, fault))

    assert faults == []


@pytest.mark.parametrize("own", [True, False])
def test_each_event_is_read_and_written(own: bool) -> None:
    faults = []
    for number, event in enumerate(STREAM):
        for odd in with_odd(event):
            turn = ResponseTurn(own=own)
            events = [*STREAM[:number], odd, *STREAM[number + 1 :]]
            try:
                written([chunk for each in events for chunk in turn.feed(each)])
            except ProxyError:
                continue
            except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
                faults.append((odd, fault))

    assert faults == []


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


def events_of_item(at: int, kind: str, cuts: Sequence[int]) -> tuple[Json, list[Json]]:
    """Return an item that has a card's number in its words, and its events."""
    words = f"my card is {CARD}, is it not"
    if kind == "text":
        item = text_item(words, f"msg_{at}")
        return item, item_events(at, item, *pieces(words, cuts))
    if kind == "call":
        arguments = orjson.dumps({"card": words}).decode()
        item = {**CALLED, "id": f"fc_{at}", "arguments": arguments}
        return item, item_events(at, item, *pieces(arguments, cuts))
    if kind == "thought":
        item = {"id": f"rs_{at}", "type": "reasoning", "summary": [{**SUMMARY, "text": words}]}
    else:
        item = {"id": f"ws_{at}", "type": "web_search_call", "action": {"query": words}}
    return item, [{"type": "response.output_item.done", "output_index": at, "item": item}]


KINDS = ("text", "call", "thought", "search")
ITEMS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 60), max_size=6)),
    min_size=1,
    max_size=4,
)


def guarded(events: Sequence[Json]) -> bytes:
    """Return what a client reads of an upstream's events under a guard that masks."""
    turn, writer = ResponseTurn(own=True), ResponseEvents(CALL)
    filtered = StreamFilter.under(tallies(made("pii")))
    chunks = [Chunk(data) for event in events for data in turn.feed(event)]
    shown = [safe for chunk in (*chunks, Chunk(None, last=True)) for safe in filtered.feed(chunk)]
    return b"".join(map(writer.feed, shown))


@given(ITEMS)
def test_what_is_said_again_is_what_was_shown(items: list[tuple[str, list[int]]]) -> None:
    scripted = [events_of_item(at, kind, cuts) for at, (kind, cuts) in enumerate(items)]
    script = response_events(
        *(events for _, events in scripted), whole=response(*(i for i, _ in scripted))
    )

    raw = guarded(script)

    assert re.search(rb"1111 1111", raw) is None
    kinds = [item["type"] for item, _ in scripted]
    assert [item["type"] for item in done_items(raw)] == kinds


def done_items(raw: bytes) -> list[Any]:
    """Return the items of the response that a stream ends with, which are those of its events."""
    output: list[Any] = accumulated(raw)["output"]
    return output
