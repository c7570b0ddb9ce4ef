"""Whatever JSON stands in any one place of an answer that becomes Messages, or was Messages: it is
read and written, whole and event by event, or is the upstream's fault, never one of ours."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from proxy.dialects.chat_order import ChatOrder
from proxy.dialects.content_parts import joined_answer
from proxy.dialects.messages.reading import EventTurn, chat_answer, own_answer
from proxy.dialects.messages.writing import MessageEvents, whole
from proxy.errors import ProxyError
from proxy.types import Call, Chunk, RequestHead
from tests.dialects.test_anthropic import CALLED, STREAM, THOUGHT
from tests.doubles import Json, chat, message
from tests.for_each import for_each

CALL = Call(RequestHead("anthropic", "chat", "/v1/messages", "req_1"), {})
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**63, "", "words", [], [1], ["a"], [[]], [None], {}, {"a": 1}, [{}],
    {"type": "text"}, {"type": 5}, [{"type": "text", "text": 5}], {"x": [{"y": "z"}]},
)  # fmt: skip
CITED = {"type": "text", "text": "a", "citations": [{"cited_text": "c"}]}
USED = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_input_tokens": 1,
    "cache_creation_input_tokens": 2,
    "output_tokens_details": {"thinking_tokens": 1},
}
WHOLE = message(THOUGHT, CITED, CALLED, usage=USED)
TOOL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SPOKEN = {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [TOOL]}
DETAILS = {"cached_tokens": 1, "cache_write_tokens": 1}
CHAT = {
    **chat(),
    "choices": [{"index": 0, "message": SPOKEN, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": DETAILS},
}
CHUNK = {**CHAT, "choices": [{"index": 0, "delta": SPOKEN, "finish_reason": "stop"}]}
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]},
    {"type": "text", "text": "a"},
]
IN_PARTS = {
    **CHAT,
    "choices": [{"index": 0, "message": {"content": PARTS}, "finish_reason": "stop"}],
}
CHUNK_IN_PARTS = {**CHAT, "choices": [{"index": 0, "delta": {"content": PARTS}}]}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value within a document."""
    members: Any = value.items() if isinstance(value, dict) else ()
    for at, inner in enumerate(value) if isinstance(value, list) else members:
        yield (*path, at)
        yield from places(inner, (*path, at))


def with_odd(document: Json) -> Iterator[Json]:
    """Yield a document with each odd value in each of its places."""
    for path in places(document):
        for odd in ODD:
            made: Any = copy.deepcopy(document)
            into = made
            for step in path[:-1]:
                into = into[step]
            into[path[-1]] = odd
            yield made


def written(chunks: Sequence[Json]) -> bytes:
    writer = MessageEvents()
    said = b"".join([writer.feed(Chunk(data)) for data in chunks])
    return said + writer.feed(Chunk(None, last=True))


def own_whole(document: Json) -> object:
    return whole(CALL, {0: own_answer(document)})


def of_chat(document: Json) -> object:
    return whole(CALL, {0: joined_answer(document)})


def as_chunk(document: Json) -> object:
    return written(ChatOrder(waits=True, apart=False).feed(joined_answer(document), 0))


@for_each(
    ("document", "turn"),
    [
        (WHOLE, own_whole),
        (WHOLE, chat_answer),
        *((document, of_chat) for document in (CHAT, IN_PARTS)),
        *((document, as_chunk) for document in (CHUNK, CHUNK_IN_PARTS)),
    ],
    ids=["its own", "to a chat", "a chat's", "in parts", "a chat's chunk", "a chunk in parts"],
)
def test_an_answer_is_read_and_written(document: Json, turn: Callable[[Json], object]) -> None:
    faults = []
    for made in with_odd(document):
        try:
            turn(made)
        except ProxyError:
            continue
        except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
            faults.append((made, fault))

    assert faults == []


@pytest.mark.parametrize("own", [True, False])
def test_each_event_is_read_and_written(own: bool) -> None:
    faults = []
    for number, event in enumerate(STREAM):
        for made in with_odd(event):
            turn = EventTurn(own=own)
            events = [*STREAM[:number], made, *STREAM[number + 1 :]]
            try:
                written([chunk for each in events for chunk in turn.feed(each)])
            except ProxyError:
                continue
            except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
                faults.append((made, fault))

    assert faults == []
