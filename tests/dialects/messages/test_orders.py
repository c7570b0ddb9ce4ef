"""Blocks of Messages in any order, their events cut anywhere: what comes out is what went in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.anthropic import ANTHROPIC
from proxy.dialects.documents import Documents
from proxy.dialects.messages.writing import MessageEvents
from proxy.dialects.reading import StreamReader
from proxy.types import Chunk
from tests.dialects.test_anthropic import accumulated, events_of
from tests.doubles import block_events, event, message_events

Json = dict[str, Any]
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CUT = st.lists(WORDS, max_size=4)
MEMBERS = st.dictionaries(WORDS, WORDS | st.integers(-9, 9) | st.none(), max_size=3)


def texts(index: int, said: Sequence[str], cited: bool) -> list[Json]:
    deltas: list[Json] = [{"type": "text_delta", "text": text} for text in said]
    if cited:
        citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
        deltas.append({"type": "citations_delta", "citation": citation})
    return block_events(index, {"type": "text", "text": ""}, *deltas)


def thoughts(index: int, said: Sequence[str], signed: bool) -> list[Json]:
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": text} for text in said]
    if signed:
        deltas.append({"type": "signature_delta", "signature": "c2ln"})
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return block_events(index, block, *deltas)


def uses(index: int, members: Json, size: int, kind: str) -> list[Json]:
    written = json.dumps(members)
    cut = [written[at : at + size] for at in range(0, len(written), size)]
    block = {"type": kind, "id": f"t{index}", "name": "look_up", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in cut]
    return block_events(index, block, *deltas)


def others(index: int, members: Json, kind: str) -> list[Json]:
    return block_events(index, {"content": members, "type": kind})


BLOCKS = st.one_of(
    st.tuples(st.just(texts), CUT, st.booleans()),
    st.tuples(st.just(thoughts), CUT, st.booleans()),
    st.tuples(
        st.just(uses), MEMBERS, st.integers(1, 30), st.sampled_from(["tool_use", "server_tool_use"])
    ),
    st.tuples(
        st.just(others),
        MEMBERS,
        st.sampled_from(["web_search_tool_result", "redacted_thinking", "of_next_year"]),
    ),
)


def chunks_of(events: Sequence[Json], cuts: Sequence[int], *, own: bool) -> Iterator[Chunk]:
    """Read a stream whose bytes come in pieces that end at these places."""
    raw = b"".join(
        b"event: %b\n%b" % (each["type"].encode(), event(each).replace(b"\n\n", b"\r\n\r\n"))
        for each in events
    )
    reader = StreamReader(0, None, ANTHROPIC.server, Documents(), own=own)
    ends = sorted({min(cut, len(raw)) for cut in cuts} | {len(raw)})
    begin = 0
    for end in ends:
        for document in reader.feed(raw[begin:end]):
            yield from reader.read(document)
        begin = end
    for document in reader.close():
        yield from reader.read(document)
    yield from reader.end()


@given(st.lists(BLOCKS, max_size=6), st.lists(st.integers(0, 4000), max_size=8), st.booleans())
def test_a_stream_comes_out_as_it_went_in(
    blocks: list[Any], cuts: list[int], rewritten: bool
) -> None:
    script = message_events(*(make(at, *more) for at, (make, *more) in enumerate(blocks)))
    wanted = accumulated([(each["type"], each) for each in json.loads(json.dumps(script))])
    writer = MessageEvents()

    out = b"".join(
        writer.feed(chunk.rewritten(chunk.data) if rewritten and chunk.data else chunk)
        for chunk in chunks_of(script, cuts, own=True)
    )

    assert accumulated(events_of(out)) == wanted


@given(st.lists(BLOCKS, max_size=6), st.lists(st.integers(0, 4000), max_size=8))
def test_a_chat_hears_every_text_thought_and_call_in_its_order(
    blocks: list[Any], cuts: list[int]
) -> None:
    script = message_events(*(make(at, *more) for at, (make, *more) in enumerate(blocks)))
    whole = accumulated([(each["type"], each) for each in json.loads(json.dumps(script))])
    texts_, thoughts_, calls = "", "", dict[int, str]()

    for chunk in chunks_of(script, cuts, own=False):
        for choice in (chunk.data or {}).get("choices", ()):
            texts_ += choice["delta"].get("content") or ""
            thoughts_ += choice["delta"].get("reasoning_content") or ""
            for call in choice["delta"].get("tool_calls", ()):
                written = call["function"]["arguments"]
                calls[call["index"]] = calls.get(call["index"], "") + written

    content = whole["content"]
    assert texts_ == "".join(each["text"] for each in content if each["type"] == "text")
    assert thoughts_ == "".join(e["thinking"] for e in content if e["type"] == "thinking")
    used = [each["input"] for each in content if each["type"] == "tool_use"]
    assert [json.loads(written) for _, written in sorted(calls.items())] == used
