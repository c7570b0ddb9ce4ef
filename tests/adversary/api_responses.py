"""Responses of each API, built from a list of parts in any of the legal forms of that API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, needs_translation
from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.responses.schema import TEXT_BY_KIND
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.guards.findings import RuleTally
from proxy.guards.stream.filter import StreamFilter
from proxy.types.events import FamilyName, Frame
from proxy.types.guard import Action
from tests.adversary.client_readers import Part, join_texts
from tests.adversary.word_guard import choice, chunk
from tests.doubles import (
    Json,
    block_events,
    chat,
    message,
    message_events,
    response,
    response_events,
    usage,
)
from tests.golden.pipeline import CLIENTS, Pipeline, call_of
from tests.guards.doubles import tallies
from tests.guards.stream.test_word_scanner import guard_rule

CARD = "4111 1111 1111 1111"
SENTENCE = f"my card is {CARD}, is it not"
ARGUMENTS = orjson.dumps({"says": SENTENCE}).decode()
FAMILY_NAMES: Sequence[FamilyName] = ("responses", "chat", "messages")
PAIRS = [(client, upstream) for client in FAMILY_NAMES for upstream in FAMILY_NAMES]


@dataclass(frozen=True)
class Form:
    """How a response is written: where texts are cut, and the names of its legal variants."""

    cuts: Sequence[int] = ()
    variants: frozenset[str] = frozenset()


VARIANTS: Mapping[str, Sequence[str]] = {
    "chat": ["a role", "a begin", "reasoning", "parts", "nulls", "empty", "usage", "at once"],
    "messages": ["gaps", "begin with", "pings", "no stops", "empty"],
    "responses": [
        *("reasoning", "no part events", "done alone", "no deltas", "items alone", "no done"),
        "the end alone",
    ],
}


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


def interleave(lists: Sequence[Sequence[Json]], draws: Iterator[int]) -> list[Json]:
    """Interleave the events of several lists, which start one after the other."""
    remaining, started, out = [list(item) for item in lists], 0, list[Json]()
    while any(remaining):
        open_now = [n for n, item in enumerate(remaining) if item and n <= started]
        if not open_now:
            started += 1
            continue
        chosen = open_now[next(draws) % len(open_now)]
        started = max(started, chosen + 1)
        out.append(remaining[chosen].pop(0))
    return out


def number_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with an id and a name for each call."""
    calls = iter(range(len(parts)))
    return [
        part._replace(call_id=f"call_{number}", name=f"f_{number}")
        if part.kind == "call" and (number := next(calls)) >= 0
        else part
        for part in parts
    ]


def _chat_deltas(part: Part, number: int, form: Form) -> list[Json]:
    pieces = cut(part.text, form.cuts)
    if part.kind == "call":
        first_text = "" if "a begin" in form.variants else pieces.pop(0)
        function = {"name": part.name, "arguments": first_text}
        started = {"index": number, "id": part.call_id, "type": "function", "function": function}
        more = [{"index": number, "function": {"arguments": piece}} for piece in pieces]
        return [{"content": None, "tool_calls": [call]} for call in (started, *more)]
    if "parts" in form.variants:
        texts: list[Json] = [{"type": "text", "text": piece} for piece in pieces]
        if part.kind == "thought":
            texts = [{"type": "thinking", "thinking": [text]} for text in texts]
        return [{"content": [text]} for text in texts]
    if part.kind == "thought":
        name = "reasoning" if "reasoning" in form.variants else "reasoning_content"
        return [{name: piece, "content": ""} for piece in pieces]
    return [{"content": piece} for piece in pieces]


def _build_chat_stream(parts: Sequence[Part], form: Form) -> list[Json]:
    variants, calls = form.variants, [part for part in parts if part.kind == "call"]
    deltas: list[Any] = [{"role": "assistant", "content": ""}] if "a role" in variants else []
    for part in parts:
        number = calls.index(part) if part in calls else 0
        deltas += _chat_deltas(part, number, form)
    chunks = [chunk(choice(delta)) for delta in deltas]
    if "nulls" in variants:
        chunks = [{**item, "usage": None, "system_fingerprint": None} for item in chunks]
        chunks[1:1] = [chunk(choice({})), chunk(choice(None))]
    if "empty" in variants:
        chunks.insert(len(chunks) // 2, chunk())
    if "usage" in variants:
        chunks = [{**item, "usage": usage()} for item in chunks]
    if "at once" not in variants or not chunks[-1]["choices"]:
        chunks.append(chunk(choice({})))
    chunks[-1]["choices"][0]["finish_reason"] = "tool_calls" if calls else "stop"
    return [*chunks, chunk(usage=usage())]


def _tool_block(part: Part) -> Json:
    head = {"type": "tool_use", "id": part.call_id, "name": part.name}
    return {**head, "input": orjson.loads(part.text)}


def _whole_block(part: Part) -> Json:
    if part.kind == "call":
        return _tool_block(part)
    if part.kind == "thought":
        return {"type": "thinking", "thinking": part.text, "signature": "s"}
    return {"type": "text", "text": part.text}


def _build_block(index: int, part: Part, form: Form) -> list[Json]:
    pieces, is_whole = cut(part.text, form.cuts), "begin with" in form.variants
    if part.kind == "call":
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        started = _tool_block(part) if is_whole else _tool_block(part._replace(text="{}"))
        return block_events(index, started, *([] if is_whole else deltas))
    name = "thinking" if part.kind == "thought" else "text"
    started = {"type": name, name: pieces.pop(0) if is_whole else ""}
    deltas = [{"type": f"{name}_delta", name: piece} for piece in pieces]
    if name == "thinking":
        started["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": "s"})
    return block_events(index, started, *deltas)


def _build_messages_stream(parts: Sequence[Part], form: Form) -> list[Json]:
    variants, blocks = form.variants, list[list[Json]]()
    for index, part in enumerate(parts):
        events = _build_block(2 * index if "gaps" in variants else index, part, form)
        if "pings" in variants:
            events.insert(1, {"type": "ping"})
        blocks.append(events[:-1] if "no stops" in variants else events)
    if "empty" in variants:
        blocks.append(block_events(2 * len(parts) + 1, {"type": "text", "text": ""}))
    has_call = any(part.kind == "call" for part in parts)
    return message_events(*blocks, reason="tool_use" if has_call else "end_turn")


def build_item(index: int, kind: str, texts: Sequence[str]) -> Json:
    """Return the final form of an item of Responses with texts of one kind."""
    text_type = TEXT_BY_KIND[kind]
    item = {"id": f"it_{index}", "type": text_type.item_type, "status": "completed"}
    if not text_type.part_type:
        return {
            **item,
            "call_id": f"call_{index}",
            "name": f"f_{index}",
            text_type.member: texts[0],
        }
    parts = [{"type": text_type.part_type, text_type.member: text} for text in texts]
    more: Json = {"role": "assistant"} if text_type.item_type == "message" else {"summary": []}
    return {**item, **more, text_type.list_member: parts}


def build_part_events(where: Json, kind: str, part: int, pieces: Sequence[str]) -> list[Json]:
    """Return the events of one text of Responses."""
    text_type, text = TEXT_BY_KIND[kind], "".join(pieces)
    where = where | ({text_type.index_member: part} if text_type.part_type else {})
    deltas = [{"type": f"{text_type.event}.delta", **where, "delta": piece} for piece in pieces]
    done: Json = {"type": f"{text_type.event}.done", **where, text_type.member: text}
    if not text_type.part_type:
        return [*deltas, done]
    name = "reasoning_summary_part" if kind == "summary" else "content_part"
    added, ended = (
        {
            "type": f"response.{name}.{step}",
            **where,
            "part": {"type": text_type.part_type, text_type.member: part_text},
        }
        for step, part_text in (("added", ""), ("done", text))
    )
    return [added, *deltas, done, ended]


def build_item_events(index: int, kind: str, *parts: Sequence[str], **members: Any) -> list[Json]:
    """Return the events of an item of Responses whose parts are each in pieces."""
    item = build_item(index, kind, ["".join(pieces) for pieces in parts]) | members
    emptied = {"content": [], "summary": [], "arguments": "", "input": ""}
    started = item | {name: value for name, value in emptied.items() if name in item}
    where = {"output_index": index, "item_id": item["id"]}
    added, done = "response.output_item.added", "response.output_item.done"
    return [
        {"type": added, "output_index": index, "item": started | {"status": "in_progress"}},
        *(
            event
            for number, pieces in enumerate(parts)
            for event in build_part_events(where, kind, number, pieces)
        ),
        {"type": done, "output_index": index, "item": item},
    ]


def _item_kind(part: Part, form: Form) -> str:
    thought = "reasoning" if "reasoning" in form.variants else "summary"
    return {"call": "arguments", "thought": thought}.get(part.kind, part.kind)


def _build_items(parts: Sequence[Part], form: Form) -> list[list[Json]]:
    """Return the events of each item. The last of them has the whole item."""
    return [
        build_item_events(
            index,
            _item_kind(part, form),
            cut(part.text, form.cuts),
            **({"call_id": part.call_id, "name": part.name} if part.kind == "call" else {}),
        )
        for index, part in enumerate(parts)
    ]


KEPT_EVENTS: Mapping[str, Callable[[str], bool]] = {
    "the end alone": lambda kind: False,
    "done alone": lambda kind: kind == "response.output_item.done",
    "items alone": lambda kind: "output_item" in kind,
    "no deltas": lambda kind: not kind.endswith(".delta"),
    "no done": lambda kind: "output_item" in kind or not kind.endswith(".done"),
    "no part events": lambda kind: "_part." not in kind,
}
"""The types of events of an item that remain, by variant."""


def _build_responses_stream(parts: Sequence[Part], form: Form) -> list[Json]:
    items = _build_items(parts, form)
    events = [event for item in items for event in item]
    for variant, is_kept in KEPT_EVENTS.items():
        if variant in form.variants:
            events = [event for event in events if is_kept(event["type"])]
    return response_events(events, document=response(*(item[-1]["item"] for item in items)))


STREAM_BUILDERS: Mapping[str, Callable[[Sequence[Part], Form], list[Json]]] = {
    "chat": _build_chat_stream,
    "messages": _build_messages_stream,
    "responses": _build_responses_stream,
}


def build_stream(upstream: str, parts: Sequence[Part], form: Form) -> list[Json]:
    """Return the events of a stream with these parts."""
    return STREAM_BUILDERS[upstream](number_parts(parts), form)


def build_document(upstream: str, parts: Sequence[Part], form: Form) -> Json:
    """Return a whole response with these parts."""
    parts = number_parts(parts)
    calls = [part for part in parts if part.kind == "call"]
    if upstream == "responses":
        return response(*(item[-1]["item"] for item in _build_items(parts, form)))
    if upstream == "messages":
        blocks = [_whole_block(part) for part in parts]
        return message(*blocks, stop_reason="tool_use" if calls else "end_turn")
    text, thought = (join_texts(parts, kind) for kind in ("text", "thought"))
    fields: Json = {"role": "assistant", "content": text or None}
    if thought:
        fields["reasoning" if "reasoning" in form.variants else "reasoning_content"] = thought
    if calls:
        fields["tool_calls"] = [
            {
                **{"id": part.call_id, "type": "function"},
                "function": {"name": part.name, "arguments": part.text},
            }
            for part in calls
        ]
    finish = "tool_calls" if calls else "stop"
    return chat(choices=[{"index": 0, "message": fields, "finish_reason": finish}])


def read_frames(client: FamilyName, upstream: FamilyName, events: Sequence[Json]) -> list[Frame]:
    """Return the frames of a stream as guards get them."""
    pipeline = Pipeline(upstream, client, inspect=True)
    frames = pipeline.frames([orjson.dumps(event) for event in events])
    assert pipeline.error is None
    return [frame._replace(raw=None) for frame in frames]


def read_whole_frames(
    client: FamilyName, upstream: FamilyName, document: bytes, *, stream: bool, inspect: bool
) -> list[Frame]:
    """Return the frames of a whole response, which becomes a stream if the client wants one."""
    is_translated = needs_translation(client, upstream)
    options = ReadOptions(
        call_of(client, stream=stream),
        whole=True,
        stream=stream,
        inspect=inspect,
        is_translated=is_translated,
        shown_as=FAMILIES[client].shown_as,
    )
    sequencer = (
        Sequencer() if is_translated and stream and FAMILIES[client].has_part_events else None
    )
    server = DIALECTS[CLIENTS[upstream][0]].server
    reader = FamilyFrameReader(
        FAMILIES[upstream], options, server, DocumentParser(), limit=10**7, sequencer=sequencer
    )
    reader.feed(document)
    return [frame for data in reader.close() for frame in reader.read(data)]


def inspect_frames(
    frames: Sequence[Frame], action: Action = "mask"
) -> tuple[list[Frame], list[RuleTally]]:
    """Return what a guard of personal data releases of a stream, and its findings."""
    rules = tallies(guard_rule("pii", action))
    stream_filter = StreamFilter.for_rules(rules)
    return [safe for frame in frames for safe in stream_filter.feed(frame)], rules
