"""No JSON in any place of a Messages response makes the proxy fail."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, crosses
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.wire.upstream_json import Documents
from proxy.errors import ProxyError
from proxy.types.events import FamilyName
from tests.dialects.vendors.test_anthropic import CALLED, STREAM, THOUGHT
from tests.doubles import Json, chat, message
from tests.for_each import for_each
from tests.golden.pipeline import CLIENTS as SERVERS
from tests.golden.pipeline import Pipeline, call_of, written

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**63, "", "words", [], [1], ["a"], [[]], [None], {}, {"a": 1}, [{}],
    {"type": "text"}, {"type": 5}, [{"type": "text", "text": 5}], {"x": [{"y": "z"}]},
)  # fmt: skip
HALVES: tuple[Any, ...] = ("\ud83d", {"\ude00": "\ud83d"})
"""Halves of a surrogate pair, which no client could use."""
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
    members: Any = value.items() if isinstance(value, dict) else ()
    for index, inner in enumerate(value) if isinstance(value, list) else members:
        yield (*path, index)
        yield from places(inner, (*path, index))


def with_odd(document: Json, *extra: Any) -> Iterator[Json]:
    """Yield a document with each odd value in each of its places."""
    for path in places(document):
        for odd in (*ODD, *extra):
            result: Any = copy.deepcopy(document)
            target = result
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = odd
            yield result


def read_whole(
    upstream: FamilyName, client: FamilyName, document: Json, *, stream: bool = False
) -> None:
    """Read and write a whole answer, which may become a stream."""
    options = ReadOptions(
        call_of(client, stream=stream),
        whole=True,
        stream=stream,
        inspect=True,
        crossing=crosses(client, upstream),
    )
    server = DIALECTS[SERVERS[upstream][0]].server
    reader = FamilyFrameReader(FAMILIES[upstream], options, server, Documents(), limit=10**6)
    reader.feed(json.dumps(document).encode())
    frames = [frame for data in reader.close() for frame in reader.read(data)]
    written(client, frames, stream=stream)


def read_stream(upstream: FamilyName, client: FamilyName, documents: Sequence[Json]) -> None:
    pipeline = Pipeline(upstream, client, inspect=True)
    written(client, pipeline.frames([json.dumps(document).encode() for document in documents]))


def faults_of(documents: Iterable[Json], turn: Callable[[Json], object]) -> list[tuple[Json, str]]:
    """Return the documents that raise an error that is not the upstream's."""
    faults = []
    for document in documents:
        try:
            turn(document)
        except ProxyError:
            continue
        except Exception as fault:  # noqa: BLE001  # any of ours
            faults.append((document, repr(fault)))
    return faults


PAIRS: list[tuple[FamilyName, FamilyName]] = [
    ("messages", "messages"),
    ("messages", "chat"),
    ("chat", "messages"),
]


@for_each(("upstream", "client"), PAIRS)
@for_each("stream", [True, False])
def test_reads_and_writes_answer(upstream: FamilyName, client: FamilyName, stream: bool) -> None:
    turn = partial(read_whole, upstream, client, stream=stream)
    for document in (WHOLE,) if upstream == "messages" else (CHAT, IN_PARTS):
        assert faults_of(with_odd(document), turn) == []


def test_each_chunk_of_a_chat_is_read_and_written() -> None:
    def turn(odd: Json) -> None:
        read_stream("chat", "messages", [odd])

    for document in (CHUNK, CHUNK_IN_PARTS):
        assert faults_of(with_odd(document, *HALVES), turn) == []


@for_each("client", ["messages", "chat"])
def test_each_event_is_read_and_written(client: FamilyName) -> None:
    for number, event in enumerate(STREAM):
        items_before, items_after = STREAM[:number], STREAM[number + 1 :]

        def turn(
            odd: Json, items_before: Any = items_before, items_after: Any = items_after
        ) -> None:
            read_stream("messages", client, [*items_before, odd, *items_after])

        assert faults_of(with_odd(event, *HALVES), turn) == []
