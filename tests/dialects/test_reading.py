"""Reading an upstream's answer: the same chunks, and the same fault, however its bytes are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.anthropic import ANTHROPIC
from proxy.dialects.base import Server
from proxy.dialects.documents import Documents
from proxy.dialects.openai import OPENAI
from proxy.dialects.reading import StreamReader, WholeReader
from proxy.errors import UpstreamError, UpstreamInvalid
from proxy.types import Chunk
from tests.doubles import (
    chat,
    chat_events,
    event,
    legacy,
    legacy_events,
    message_events,
    response_events,
    text_events,
)
from tests.for_each import for_each

GOOD = b"".join(map(event, legacy_events(" Par", "is."))) + event(b"[DONE]")
BROKEN = b"".join(map(event, legacy_events(" Par", "is.")[:2])) + event(b"{oops")


def read(
    pieces: list[bytes], server: Server = OPENAI.server, *, own: bool = False
) -> tuple[list[Chunk], str | None]:
    """Give the chunks and the fault's code."""
    reader = StreamReader(0, None, server, Documents(), own=own)
    chunks: list[Chunk] = []
    try:
        for piece in pieces:
            for document in reader.feed(piece):
                chunks += reader.read(document)
        for document in reader.close():
            chunks += reader.read(document)
        while left := reader.end():
            chunks += left
    except UpstreamError as error:
        return chunks, error.code
    return chunks, None


@pytest.mark.parametrize("wire", [GOOD, BROKEN], ids=["good", "broken"])
@given(cuts=st.lists(st.integers(0, 400), max_size=10))
def test_any_split_gives_the_same_chunks_and_the_same_end(wire: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]

    assert read([wire[a:b] for a, b in itertools.pairwise(edges)]) == read([wire])


def test_bytes_of_an_untouched_chunk_are_kept() -> None:
    chunks, _ = read([b'data: {"choices" : [ ] }\n\n', event(b"[DONE]")])

    assert chunks[0].raw == b'{"choices" : [ ] }'
    assert chunks[-1] == Chunk(None, last=True)


def test_what_follows_done_is_not_read() -> None:
    chunks, fault = read([GOOD + event(b"{oops")])

    assert (chunks[-1].last, fault) == (True, None)


def test_a_stream_that_never_finished_was_cut() -> None:
    _, fault = read([event(legacy_events(" Par")[0])])

    assert fault == "upstream_invalid_response"


@for_each("own", [True, False])
@for_each("server", [ANTHROPIC.server, OPENAI.server.endpoints["responses"]])
def test_chat_stream_is_never_of_another_form(server: Server, own: bool) -> None:
    wire = [*map(event, chat_events("Par", "is.")), event(b"[DONE]")]

    assert read(wire, server, own=own) == ([], "upstream_invalid_response")


@pytest.mark.parametrize(
    ("server", "events"),
    [
        (ANTHROPIC.server, message_events(text_events(0, "Paris"))[:-1]),
        (OPENAI.server.endpoints["responses"], response_events()),
    ],
    ids=["messages", "responses"],
)
def test_finished_stream_may_also_say_done(server: Server, events: list[Any]) -> None:
    chunks, fault = read([*map(event, events), event(b"[DONE]")], server)

    assert (chunks[-1].last, fault) == (True, None)


@pytest.mark.parametrize("after", [[], [event(b"[DONE]"), event({"type": "message_stop"})]])
def test_what_waits_where_a_stream_ends_unfinished_is_there_before_the_fault(after: Any) -> None:
    first, second = (text_events(at, text) for at, text in enumerate(("a", "b")))
    wire = message_events([*first[:2], *second[:2]])[:-2]

    chunks, fault = read([*map(event, wire), *after], ANTHROPIC.server)

    said = [
        choice["delta"].get("content") for c in chunks if c.data for choice in c.data["choices"]
    ]
    assert "".join(filter(None, said)) == "ab"
    assert (chunks[-1].last, fault) == (False, "upstream_invalid_response")


@pytest.mark.parametrize("word", ["", None])
def test_a_choice_has_not_finished_without_a_reason(word: str | None) -> None:
    unfinished = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": word}]}

    assert read([event(unfinished)])[1] == "upstream_invalid_response"


def whole(data: Any, **options: Any) -> list[Chunk]:
    chosen = {"stream": False, "limit": 10_000, **options}
    reader = WholeReader(0, chosen.pop("turn", None), OPENAI.server, Documents(), **chosen)
    raw = json.dumps(data).encode()
    assert [*reader.feed(raw[:5]), *reader.feed(raw[5:])] == []
    [document] = reader.close()
    return [*reader.read(document), *reader.end()]


def test_a_whole_answer_is_one_chunk() -> None:
    [chunk] = whole(legacy())

    assert (chunk.data, chunk.last) == (legacy(), True)
    assert json.loads(chunk.raw or b"") == legacy()


def test_a_whole_answer_is_bounded() -> None:
    with pytest.raises(UpstreamInvalid):
        whole(legacy(), limit=20)


def test_a_whole_chat_becomes_the_events_of_a_stream() -> None:
    chunks = whole(chat("Paris."), stream=True)

    first = chunks[0].data or {}
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "Paris."}
    assert (chunks[1].data or {})["usage"] == chat()["usage"]
    assert chunks[-1] == Chunk(None, last=True)
