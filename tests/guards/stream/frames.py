"""Frames as readers of API families make them, for tests of guards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.guards.findings import RuleTally
from proxy.guards.stream.filter import StreamFilter
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    AttachName,
    Delta,
    Event,
    FamilyName,
    Finish,
    Frame,
    Kind,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    ToolCall,
    Unmapped,
)
from proxy.types.guard import GuardRule
from tests.golden.pipeline import Pipeline, call_of, documents_of, written
from tests.guards.doubles import tallies

DONE = b"[DONE]"
HEAD: Json = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
START = Frame((ResponseStart("c1", "m", 1),), "chat")
STOPPED = Frame((RESPONSE_END,), "chat", None, b"[DONE]")
MEMBERS: dict[Kind, str] = {
    "text": "content",
    "reasoning": "reasoning_content",
    "refusal": "refusal",
    "arguments": "arguments",
}


def read(*docs: Json, family: FamilyName = "chat") -> list[Frame]:
    """Return the frames of a stream of documents, including its end, as guards get them."""
    documents = [json.dumps(doc).encode() for doc in docs]
    frames = Pipeline(family, family, inspect=True).frames([*documents, DONE])
    return frames if frames and frames[-1].last else [*frames, Frame((), last=True)]


def whole_answer(doc: Json, family: FamilyName = "chat") -> Frame:
    """Return the frame of a whole response as guards get it."""
    options = ReadOptions(call_of(family, stream=False), whole=True, inspect=True)
    [frame] = FAMILIES[family].reader(options).read(doc, json.dumps(doc).encode())
    return frame._replace(last=True)


def documents(frames: Sequence[Frame], client: FamilyName = "chat") -> list[Json]:
    """Return the documents that a client gets for frames."""
    sent_items = documents_of([written(client, frames)])
    return [json.loads(document) for document in sent_items if document != DONE]


def fed(docs: Sequence[Json], *rules: GuardRule | RuleTally) -> list[Json]:
    """Return the documents that a chat client gets under rules."""
    work = [rule if isinstance(rule, RuleTally) else tallies(rule)[0] for rule in rules]
    frames = StreamFilter.for_rules(work)
    return documents([safe for frame in read(*docs) for safe in frames.feed(frame)])


def part(kind: Kind = "text", number: int = 0, **keys: Any) -> Part:
    return Part(kind, number, closing=keys.pop("closing", "implicit"), **keys)


def chat(doc: Json, *events: Event, is_last_one: bool = False) -> Frame:
    return Frame(events, "chat", doc, json.dumps(doc).encode(), last=is_last_one)


def chunk(choice: int, delta: Json, *events: Event, finish: str | None = None) -> Frame:
    return chat(
        {**HEAD, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}, *events
    )


def delta_frame(of: Part, text: str, *events_before: Event) -> Frame:
    """Return the frame of a delta in a chat."""
    if of.kind == "arguments":
        call = {"index": of.number, "function": {"arguments": text}}
        slot = ("choices", 0, "delta", "tool_calls", 0, "function", "arguments")
        return chunk(of.choice, {"tool_calls": [call]}, *events_before, Delta(of, text, slot))
    name = MEMBERS[of.kind]
    return chunk(
        of.choice, {name: text}, *events_before, Delta(of, text, ("choices", 0, "delta", name))
    )


def finished(choice: int = 0) -> Frame:
    return chunk(choice, {}, Finish(choice, "stop", "stop"), finish="stop")


def text_frames(of: Part, texts: Sequence[str]) -> list[Frame]:
    return [delta_frame(of, text) for text in texts]


def whole(*parts: tuple[Part, Sequence[str]]) -> list[Frame]:
    """Return a stream with the texts of parts, one after the other."""
    frames = [START]
    for of, texts in parts:
        frames += [Frame((PartStart(of),), "chat"), *text_frames(of, texts)]
    choices = dict.fromkeys(of.choice for of, _ in parts)
    return [*frames, *map(finished, choices), STOPPED]


def event(kind: str, doc: Json, *events: Event) -> Frame:
    """Return the frame of an event of Messages."""
    return Frame(events, "messages", {"type": kind, **doc})


def block(of: Part, texts: Sequence[str], *extra: Frame) -> list[Frame]:
    """Return the frames of a block of Messages."""
    name = "thinking" if of.kind == "reasoning" else "text"
    started = {"index": of.number, "content_block": {"type": name, name: ""}}
    deltas = [
        event(
            "content_block_delta",
            {"index": of.number, "delta": {"type": f"{name}_delta", name: text}},
            Delta(of, text, ("delta", name)),
        )
        for text in texts
    ]
    end = event("content_block_stop", {"index": of.number}, PartEnd(of))
    return [event("content_block_start", started, PartStart(of)), *deltas, *extra, end]


def signed(of: Part, signature: str) -> Frame:
    delta = {"type": "signature_delta", "signature": signature}
    attached = Attach(of, "signature", signature, ("delta", "signature"))
    return event("content_block_delta", {"index": of.number, "delta": delta}, attached)


def message(*blocks: Sequence[Frame]) -> list[Frame]:
    """Return the frames of a message."""
    start = event("message_start", {"message": {"id": "msg_1"}}, ResponseStart("msg_1", "m", None))
    end = event("message_delta", {"delta": {"stop_reason": "end_turn"}}, Finish(0, "stop"))
    parts = [frame for frames in blocks for frame in frames]
    return [start, *parts, end, event("message_stop", {}, RESPONSE_END)]


def call(of: Part, name: str) -> Frame:
    """Return the frame of a chat that begins a tool call."""
    result = {"index": of.number, "id": "a", "function": {"name": name, "arguments": ""}}
    slot = ("choices", 0, "delta", "tool_calls", 0, "function", "name")
    return chunk(of.choice, {"tool_calls": [result]}, PartStart(of, ToolCall("a", name), slot))


def native(doc: Json, of: Part | None = None, *repeats: tuple[str | int, ...]) -> Frame:
    return Frame((Unmapped(of, repeats),), "responses", doc)


def attached(of: Part, name: AttachName, value: Any) -> Frame:
    return Frame((Attach(of, name, value),), "chat")


def text_of(frames: Sequence[Frame], of: Part) -> str:
    """Return the text of a part in its deltas. Documents have the same."""
    texts: list[str] = []
    for frame in frames:
        for item in frame.events:
            if isinstance(item, Delta) and item.part is of:
                texts.append(item.text)
                value: Any = frame.doc
                for step in item.slot if frame.doc is not None else ():
                    value = value[step]
                assert frame.doc is None or value == item.text
    return "".join(texts)
