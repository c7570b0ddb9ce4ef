"""Clients of each API read unusual but legal responses of every upstream API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.chat.requests import join_text_parts
from proxy.dialects.families import FAMILIES, crosses_families
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.types.events import FamilyName, Frame
from tests.adversary.random_streams import (
    CARD,
    PAIRS,
    SAYS,
    cut,
    documents_of,
    frames_of,
    guarded,
    output,
)
from tests.doubles import (
    Json,
    block_events,
    chat,
    message,
    message_events,
    response,
    response_events,
)
from tests.golden.pipeline import CLIENTS, call_of, written

ARGUMENTS = (orjson.dumps({"says": SAYS}).decode(), "{}", '{"a":{"b":["}"]}}')
Thing = tuple[str, str]
"""A kind and a text; a call's are its arguments."""
TextByKind = tuple[str, str, Any, Any]
"""A kind, a text, and the id and the name of a call."""
SPOKEN = ("text", "thinking", "partial_json")


@dataclass(frozen=True)
class Shape:
    cuts: Sequence[int]
    odd: frozenset[str] = frozenset()


def chunk(delta: Any, finish: Any = None, **options: Any) -> Json:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": choices,
        **options,
    }


def text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def thinking_part(text: str) -> Json:
    return {"type": "thinking", "thinking": [text_part(text)]}


def chat_deltas(kind: str, pieces: list[str], number: int, odd: frozenset[str]) -> list[Json]:
    if kind == "call":
        head = {"index": number, "id": f"call_{number}", "type": "function"}
        first_text = "" if "a begin" in odd else pieces.pop(0)
        started = {**head, "function": {"name": f"f_{number}", "arguments": first_text}}
        extra = [{"index": number, "function": {"arguments": piece}} for piece in pieces]
        return [{"content": None, "tool_calls": [item]} for item in (started, *extra)]
    if "parts" in odd:
        part = thinking_part if kind == "thought" else text_part
        return [{"content": [part(item)]} for item in pieces]
    if kind == "thought":
        name = "reasoning" if "reasoning" in odd else "reasoning_content"
        return [{name: item, "content": ""} for item in pieces]
    return [{"content": item} for item in pieces]


def chat_stream(things: Sequence[Thing], shape: Shape) -> list[Json]:
    odd, calls = shape.odd, 0
    deltas: list[Any] = [{"role": "assistant", "content": ""}] if "a role" in odd else []
    for kind, text in things:
        deltas += chat_deltas(kind, cut(text, shape.cuts), calls, odd)
        calls += kind == "call"
    results = [chunk(delta) for delta in deltas]
    if "nulls" in odd:
        results = [{**delta, "usage": None, "system_fingerprint": None} for delta in results]
        results[1:1] = [chunk({}), chunk(None)]
    if "empty" in odd:
        results.insert(len(results) // 2, {**chunk({}), "choices": []})
    used = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    if "usage" in odd:
        results = [{**delta, "usage": used} for delta in results]
    if "at once" not in odd or not results[-1]["choices"]:
        results.append(chunk({}))
    results[-1]["choices"][0]["finish_reason"] = "tool_calls" if calls else "stop"
    return [*results, {**chunk({}), "choices": [], "usage": used}]


def tool_block(index: int, text: str) -> Json:
    head = {"type": "tool_use", "id": f"call_{index}", "name": f"f_{index}"}
    return {**head, "input": orjson.loads(text)}


def block_of(kind: str, text: str, number: int, shape: Shape) -> tuple[Json, list[Json]]:
    pieces, is_whole = cut(text, shape.cuts), "begin with" in shape.odd
    if kind == "call":
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        return tool_block(number, text if is_whole else "{}"), [] if is_whole else deltas
    name = "thinking" if kind == "thought" else "text"
    started: Json = {"type": name, name: pieces.pop(0) if is_whole else ""}
    deltas = [{"type": f"{name}_delta", name: piece} for piece in pieces]
    if kind == "text":
        return started, deltas
    return {**started, "signature": ""}, [*deltas, {"type": "signature_delta", "signature": "s"}]


def messages_stream(things: Sequence[Thing], shape: Shape) -> list[Json]:
    odd, blocks, calls = shape.odd, list[list[Json]](), 0
    for index, (kind, text) in enumerate(things):
        started, deltas = block_of(kind, text, calls, shape)
        calls += kind == "call"
        results = block_events(2 * index if "gaps" in odd else index, started, *deltas)
        if "pings" in odd:
            results.insert(1, {"type": "ping"})
        blocks.append(results[:-1] if "no stops" in odd else results)
    if "empty" in odd:
        blocks.append(block_events(2 * len(things) + 1, {"type": "text", "text": ""}))
    return message_events(*blocks, reason="tool_use" if calls else "end_turn")


def responses_items(things: Sequence[Thing], odd: frozenset[str]) -> list[Json]:
    items: list[Json] = []
    calls = 0
    for index, (kind, text) in enumerate(things):
        head = {"id": f"it_{index}", "status": "completed"}
        if kind == "call":
            call = {"call_id": f"call_{calls}", "name": f"f_{calls}", "arguments": text}
            items.append({**head, "type": "function_call", **call})
            calls += 1
        elif kind == "thought":
            inner = "content" if "reasoning" in odd else "summary"
            part = "reasoning_text" if "reasoning" in odd else "summary_text"
            remainder: Json = {"summary": [], inner: [{"type": part, "text": text}]}
            items.append({**head, "type": "reasoning", **remainder})
        else:
            part_ = {"type": "output_text", "text": text, "annotations": []}
            items.append({**head, "type": "message", "role": "assistant", "content": [part_]})
    return items


def responses_stream(things: Sequence[Thing], shape: Shape) -> list[Json]:
    odd = shape.odd
    items = responses_items(things, odd)
    events: list[list[Json]] = []
    for index, ((kind, text), item) in enumerate(zip(things, items, strict=True)):
        where = {"item_id": item["id"], "output_index": index}
        empty = {**item, "status": "in_progress"}
        result = {"type": "response.output_item.done", "output_index": index, "item": item}
        if kind == "call":
            empty["arguments"], name, member = "", "response.function_call_arguments", "arguments"
            part: Json = {}
        elif kind == "thought":
            of = "reasoning" in odd
            empty["content" if of else "summary"] = []
            name = "response.reasoning_text" if of else "response.reasoning_summary_text"
            member, part = "text", {"content_index" if of else "summary_index": 0}
        else:
            empty["content"], part = [], {"content_index": 0}
            name, member = "response.output_text", "text"
        pieces = cut(text, shape.cuts)
        deltas = [{"type": f"{name}.delta", **where, **part, "delta": piece} for piece in pieces]
        ended = {"type": f"{name}.done", **where, **part, member: text}
        added = {"type": "response.output_item.added", "output_index": index, "item": empty}
        item_events = [added, *deltas, ended, result]
        if "done alone" in odd:
            item_events = [result]
        elif "no deltas" in odd:
            item_events = [added, ended, result]
        elif "items alone" in odd:
            item_events = [added, result]
        elif "no done" in odd:
            item_events = [added, *deltas, result]
        events.append([] if "the end alone" in odd else item_events)
    return response_events(*events, document=response(*items))


def whole_of(upstream: str, things: Sequence[Thing], odd: frozenset[str]) -> Json:
    if upstream == "responses":
        return response(*responses_items(things, odd))
    calls = [text for kind, text in things if kind == "call"]
    if upstream == "messages":
        blocks: list[Json] = []
        index = 0
        for kind, text in things:
            if kind == "call":
                blocks.append(tool_block(index, text))
                index += 1
            elif kind == "thought":
                blocks.append({"type": "thinking", "thinking": text, "signature": "s"})
            else:
                blocks.append({"type": "text", "text": text})
        return message(*blocks, stop_reason="tool_use" if calls else "end_turn")
    text, thought = ("".join(t for k, t in things if k == kind) for kind in ("text", "thought"))
    fields: Json = {"role": "assistant", "content": text or None}
    if thought:
        fields["reasoning" if "reasoning" in odd else "reasoning_content"] = thought
    if calls:
        results = [{"name": f"f_{index}", "arguments": text} for index, text in enumerate(calls)]
        fields["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": document}
            for index, document in enumerate(results)
        ]
    finish = "tool_calls" if calls else "stop"
    return chat(choices=[{"index": 0, "message": fields, "finish_reason": finish}])


STREAMS: Mapping[str, Callable[[Sequence[Thing], Shape], list[Json]]] = {
    "chat": chat_stream,
    "messages": messages_stream,
    "responses": responses_stream,
}
ODD: Mapping[str, Sequence[str]] = {
    "chat": ["a role", "a begin", "reasoning", "parts", "nulls", "empty", "usage", "at once"],
    "messages": ["gaps", "begin with", "pings", "no stops", "empty"],
    "responses": [
        "reasoning", "done alone", "no deltas", "items alone", "no done", "the end alone",
    ],
}  # fmt: skip


def frames_of_whole(
    client: FamilyName, upstream: FamilyName, document: Json, *, stream: bool
) -> list[Frame]:
    is_crossing = crosses_families(client, upstream)
    options = ReadOptions(
        call_of(client, stream=stream),
        whole=True,
        stream=stream,
        crossing=is_crossing,
        shown_as=FAMILIES[client].shown_as,
    )
    order = Sequencer() if is_crossing and stream and FAMILIES[client].marks_parts else None
    server = DIALECTS[CLIENTS[upstream][0]].server
    reader = FamilyFrameReader(
        FAMILIES[upstream], options, server, DocumentParser(), limit=10**7, order=order
    )
    reader.feed(orjson.dumps(document))
    return [frame for data in reader.close() for frame in reader.read(data)]


def read_stream(client: FamilyName, frames: Sequence[Frame]) -> list[TextByKind]:
    raw = written(client, frames)
    if client == "responses":
        full_value, _ = output(raw)
        return of_items(full_value)
    if client == "messages":
        return of_blocks(raw)
    fields: dict[Any, Any] = {"thought": "", "text": ""}
    for document in documents_of(raw):
        for choice in document.get("choices", ()):
            add(fields, choice.get("delta") or {})
    return in_kinds(fields)


def add(fields: dict[Any, Any], delta: Json) -> None:
    spoken = join_text_parts(delta)
    fields["text"] += spoken.get("content") or ""
    fields["thought"] += spoken.get("reasoning_content") or spoken.get("reasoning") or ""
    for call in delta.get("tool_calls") or ():
        result = fields.setdefault(call["index"], [None, None, ""])
        result[0] = call.get("id") or result[0]
        result[1] = call["function"].get("name") or result[1]
        result[2] += call["function"].get("arguments") or ""


def of_blocks(raw: bytes) -> list[TextByKind]:
    results: list[Any] = []
    for event in documents_of(raw):
        if event.get("type") == "content_block_start":
            block = event["content_block"]
            results.append([block, block.get("text") or block.get("thinking") or ""])
        elif event.get("type") == "content_block_delta":
            delta = event["delta"]
            results[-1][1] += "".join(delta.get(name) or "" for name in SPOKEN)
    return [of_block(block, fields) for block, fields in results]


def of_block(block: Json, text: str) -> TextByKind:
    if block["type"] != "tool_use":
        return "thought" if block["type"] == "thinking" else "text", text, None, None
    return "call", text or orjson.dumps(block["input"]).decode(), block["id"], block["name"]


def in_kinds(fields: dict[Any, Any]) -> list[TextByKind]:
    texts = [(kind, fields[kind], None, None) for kind in ("thought", "text")]
    numbers = sorted(key for key in fields if isinstance(key, int))
    return [*texts, *(("call", fields[n][2] or "{}", *fields[n][:2]) for n in numbers)]


def of_items(items: Sequence[Json]) -> list[TextByKind]:
    saids: list[TextByKind] = []
    for item in items:
        if item["type"] == "function_call":
            saids.append(("call", item["arguments"] or "{}", item["call_id"], item["name"]))
        elif item["type"] == "reasoning":
            parts = [*item.get("summary", ()), *item.get("content", ())]
            saids.append(("thought", "".join(part["text"] for part in parts), None, None))
        else:
            saids.append(("text", "".join(part["text"] for part in item["content"]), None, None))
    return saids


def read_whole(client: FamilyName, frames: Sequence[Frame]) -> list[TextByKind]:
    data = orjson.loads(written(client, frames, stream=False))
    if client == "responses":
        return of_items(data["output"])
    if client == "messages":
        blocks = data["content"]
        return [
            of_block(block, block.get("text") or block.get("thinking") or "") for block in blocks
        ]
    message_ = data["choices"][0]["message"]
    fields: dict[Any, Any] = {"thought": "", "text": ""}
    calls = enumerate(message_.get("tool_calls") or ())
    add(fields, {**message_, "tool_calls": [{**block, "index": index} for index, block in calls]})
    return in_kinds(fields)


def join_by_kind(saids: Sequence[TextByKind]) -> list[Any]:
    """Join texts by kind, and list each call."""
    texts = {kind: "".join(t for k, t, *_ in saids if k == kind) for kind in ("thought", "text")}
    texts["thought"] = texts["thought"].replace("\n\n", "")
    return [texts, [(orjson.loads(t), i, n) for k, t, i, n in saids if k == "call"]]


def expected_texts(things: Sequence[Thing], *, masked: bool = False) -> list[Any]:
    outputs = [(k, t.replace(CARD, "[CARD]") if masked else t) for k, t in things]
    calls = [t for k, t in outputs if k == "call"]
    texts = {kind: "".join(t for k, t in outputs if k == kind) for kind in ("thought", "text")}
    return [texts, [(orjson.loads(t), f"call_{n}", f"f_{n}") for n, t in enumerate(calls)]]


THINGS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from([SAYS, "a", "b c"])),
        st.tuples(st.just("thought"), st.sampled_from([SAYS, "t"])),
        st.tuples(st.just("call"), st.sampled_from(ARGUMENTS)),
    ),
    min_size=1,
    max_size=4,
)
CUTS = st.lists(st.integers(0, 60), max_size=3)


@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=12)
@given(st.data(), THINGS, CUTS)
def test_stream_is_read_as_sent_by_the_upstream(
    client: FamilyName, upstream: FamilyName, data: Any, things: list[Thing], cuts: list[int]
) -> None:
    odd = data.draw(st.frozensets(st.sampled_from(ODD[upstream]), max_size=3))
    documents = STREAMS[upstream](things, Shape(cuts, odd))

    plain = read_stream(client, frames_of(client, upstream, documents))
    safe = read_stream(client, guarded(frames_of(client, upstream, documents), "mask")[0])

    assert join_by_kind(plain) == expected_texts(things)
    assert join_by_kind(safe) == expected_texts(things, masked=True)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=12)
@given(st.data(), THINGS)
def test_whole_response_is_read_as_sent_by_the_upstream(
    client: FamilyName, upstream: FamilyName, streamed: bool, data: Any, things: list[Thing]
) -> None:
    odd = data.draw(st.frozensets(st.sampled_from(ODD[upstream]), max_size=3))
    document = whole_of(upstream, things, odd)
    frames = frames_of_whole(client, upstream, document, stream=streamed)

    saids = read_stream(client, frames) if streamed else read_whole(client, frames)

    if upstream != client or upstream == "chat" or not streamed:
        assert join_by_kind(saids) == expected_texts(things)
