"""Complete answers are recorded; all others are not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cache import cached_answer
from proxy.cache.recorder import AnswerRecorder, count_requested_choices, open_recorder
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.dialects.wire import sse
from proxy.money.usage import Tokens
from proxy.types import CacheRule, Call, Endpoint, RequestHead, ResponseHead
from proxy.types.events import (
    RESPONSE_END,
    Delta,
    Event,
    Extension,
    FamilyName,
    Fault,
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
from tests.for_each import for_each
from tests.golden.pipeline import PAIRS, Pipeline, call_of, documents_of, written
from tests.golden.recording import read
from tests.golden.replay import MODEL
from tests.golden.texts import texts_of

RULE = CacheRule(ttl=60, max_bytes=2000)
WITH_TOOLS = CacheRule(ttl=60, max_bytes=2000, tool_calls=True)
START = ResponseStart("id", "m", None)
KEEPALIVE = Frame(())
DETECTED = {"output_guardrails": {"summary": {"toxicity": 1}}}


class EventsAsJson:
    """Writes events as documents with a comment between them."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self.is_complete = is_whole

    def feed(self, frame: Frame) -> bytes:
        document = frame.raw or orjson.dumps(frame.doc or [repr(event) for event in frame.events])
        if self.is_complete:
            return document
        end = sse.encode_event(sse.DONE) if frame.last else b""
        return sse.KEEPALIVE + sse.encode_named_event("e", document) + end

    def encode_error(self, document: bytes) -> bytes:
        return b""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def recorder(
    rule: CacheRule = RULE, expected: int = 1, *, streamed: bool = True
) -> tuple[AnswerRecorder, list[FamilyName]]:
    opened: list[FamilyName] = []

    def open_writer(family: FamilyName) -> EventsAsJson:
        opened.append(family)
        return EventsAsJson(is_whole=not streamed)

    return AnswerRecorder(rule, expected, "chat", open_writer, streamed=streamed), opened


def record_frames(
    *events: Event, rule: CacheRule = RULE, expected: int = 1, end: bool = True
) -> AnswerRecorder:
    record, _ = recorder(rule, expected)
    for event in events:
        record.feed(Frame((event,), "chat", {"n": str(event)}))
    if end:
        record.feed(Frame((RESPONSE_END,), "chat", last=True))
    return record


def text(choice: int = 0, *, kind: Kind = "text", finish: str = "stop") -> list[Event]:
    part = Part(kind, 0, choice=choice)
    call = ToolCall("c", "f") if kind in ("arguments", "input") else None
    reason: Any = finish if finish != "error" else "other"
    ends: list[Event] = [PartEnd(part), Finish(choice, reason, finish)]
    return [PartStart(part, call), Delta(part, "a"), *ends]


COMPLETE: dict[str, tuple[Sequence[Event], CacheRule, int]] = {
    "text": ([START, *text()], RULE, 1),
    "length": ([START, *text(finish="length")], RULE, 1),
    "two choices": ([START, *text(), *text(1)], RULE, 2),
    "call": ([START, *text(kind="arguments", finish="tool_calls")], WITH_TOOLS, 1),
    "nothing but an end": ([START, Finish(0, "stop")], RULE, 1),
    "nothing found": ([START, Extension("enkrypt_policy_detections", {}), *text()], RULE, 1),
}
INCOMPLETE: dict[str, tuple[Sequence[Event], CacheRule, int]] = {
    "nothing": ([], RULE, 1),
    "unfinished": ([START, *text()[:-1]], RULE, 1),
    "a choice unfinished": ([START, *text(1)[:-1], *text()], RULE, 1),
    "a choice missing": ([START, *text()], RULE, 2),
    "filtered": ([START, *text(finish="content_filter")], RULE, 1),
    "failed": ([START, *text(finish="error")], RULE, 1),
    "fault": ([START, *text(), Fault("m", "c")], RULE, 1),
    "call": ([START, *text(kind="arguments")], RULE, 1),
    "custom call": ([START, *text(kind="input")], RULE, 1),
    "call without a part": ([START, *text(finish="tool_calls")], RULE, 1),
    "detected": ([Extension("enkrypt_policy_detections", DETECTED), *text()], RULE, 1),
    "too large": ([ResponseStart("x" * 2000, "m", None), *text()], RULE, 1),
}


@for_each("name", COMPLETE)
def test_complete_responses_are_recorded(name: str) -> None:
    events, rule, expected = COMPLETE[name]

    record = record_frames(*events, rule=rule, expected=expected)

    assert record.is_complete
    assert [orjson.loads(line) for line in record.lines[:-1]] == [{"n": str(e)} for e in events]


@for_each("name", INCOMPLETE)
def test_incomplete_responses_are_not_recorded(name: str) -> None:
    events, rule, expected = INCOMPLETE[name]

    assert not record_frames(*events, rule=rule, expected=expected).is_complete


def test_response_without_last_frame_is_not_recorded() -> None:
    assert not record_frames(START, *text(), end=False).is_complete


def test_flagged_response_is_not_recorded() -> None:
    record, _ = recorder()
    record.is_flagged = True
    record.feed(Frame((START, *text(), RESPONSE_END), "chat", last=True))

    assert not record.is_complete


@for_each("vectors", [1, 2, 3])
def test_expects_one_vector_per_text(vectors: int) -> None:
    record, _ = recorder(expected=2, streamed=False)
    record.feed(Frame((Unmapped(),), "chat", {"data": [{}] * vectors}, last=True))

    assert record.is_complete is (vectors >= 2)


def test_first_frame_with_events_decides_the_family() -> None:
    record, opened = recorder()
    for frame in (KEEPALIVE, Frame((START,), "messages"), Frame((RESPONSE_END,), last=True)):
        record.feed(frame)

    assert (record.family, opened) == ("messages", ["messages"])


def test_frames_without_family_use_the_clients() -> None:
    record, opened = recorder()
    record.feed(Frame((START,)))

    assert (record.family, opened) == ("chat", ["chat"])


def test_bodies_are_recorded_unchanged() -> None:
    raw = b'{\n  "a": 1\n}'
    record, _ = recorder(streamed=False)
    record.feed(Frame((START, *text(), RESPONSE_END), "messages", {"a": 1}, raw, last=True))

    assert (record.is_complete, record.lines) == (True, [raw])


@for_each("streamed", [False, True])
def test_oversize_responses_take_no_memory(streamed: bool) -> None:
    record, opened = recorder(streamed=streamed)
    part = Part("text", 0)
    record.feed(Frame((START, PartStart(part)), "chat"))
    for _ in range(10):
        record.feed(Frame((Delta(part, "a"),), "chat", {"content": "x" * 300}))
    size = record.size
    record.feed(Frame((Delta(part, "a"),), "chat", {"content": "x" * 300}))

    assert (record.is_oversize, record.lines, record.size) == (True, [], size)
    assert opened == ["chat"]


def test_encoded_frame_is_recorded_unchanged() -> None:
    record, opened = recorder()
    frame = Frame((START,), "chat", {"a": 1})
    written = record.encode(frame)
    record.feed(frame, written)

    assert (record.lines, opened) == ([b'{"a":1}'], ["chat"])


@for_each(
    ("endpoint", "body", "expected"),
    [
        ("chat", {}, 1),
        ("chat", {"n": 3}, 3),
        ("chat", {"n": None}, 1),
        ("completions", {"prompt": "a", "n": 2}, 2),
        ("completions", {"prompt": ["a", "b"], "n": 2}, 4),
        ("completions", {"prompt": [1, 2]}, 1),
        ("completions", {"prompt": [[1, 2], [3]]}, 2),
        ("embeddings", {"input": ["a", "b"]}, 2),
        ("embeddings", {"input": "a"}, 1),
    ],
)
def test_counts_requested_choices(endpoint: Endpoint, body: Any, expected: int) -> None:
    call = Call(RequestHead("openai", endpoint, "/", "req_1"), body)
    assert count_requested_choices(call, body) == expected


def test_recorded_documents_take_at_most_the_counted_memory() -> None:
    count, part = 10_000, Part("text", 0)
    record, _ = recorder(replace(RULE, max_bytes=2**30))
    frame = Frame((Delta(part, "a"),), "chat", {"content": "a"})
    count_before = resident()

    for _ in range(count):
        record.feed(frame)

    assert len(record.lines) == count
    assert resident() - count_before < 2 * record.size + 8 * 2**20


KEY = b"k" * 32
LARGE_RULE = CacheRule(ttl=60, tool_calls=True)
ROOM = LARGE_RULE.max_bytes
NOT_CACHED = {"chat-filters", "chat-no-finish", "messages-refusal"}
UNTYPED = {
    *("chat-late-text", "messages-late-text", "chat-calls-with-equal-index"),
    *("responses-code-interpreter", "responses-mcp", "responses-unknown-events"),
    "responses-rich",  # its last event lacks items
}
"""Streams with texts that no event represents as their documents do, in pass mode or as a whole."""


def is_shown(name: str, client: str) -> bool:
    """Return True if a client gets the recorded stream without fallback."""
    call = read(name).outputs[f"{client} bare"].call
    return bool(call["outcome"] == "success" and call["models"] == [MODEL])


SENT_PAIRS = [pair for pair in PAIRS if is_shown(*pair)]


def sent_frames(name: str, client: FamilyName) -> tuple[FamilyName, list[Frame]]:
    """Return the upstream's family and the client's frames."""
    recording = read(name)
    pipeline = Pipeline(recording.family, client)
    return recording.family, pipeline.frames(documents_of([recording.upstream]))


def stored(client: str, frames: Iterable[Frame], *, stream: bool = True) -> bytes | None:
    """Return the stored value of a response."""
    recorder = open_recorder(ResponseHead(stream), call_of(client, stream=stream), LARGE_RULE, 1)
    for frame in frames:
        recorder.feed(frame)
    if not recorder.is_complete:
        return None
    about = cached_answer.AnswerMetadata(1.0, stream, "openai", "m", Tokens(), recorder.family)
    return cached_answer.serialize_answer(KEY, about, recorder.lines)


def replayed(client: str, value: bytes, *, stream: bool = True) -> cached_answer.CachedAnswer:
    text = cached_answer.decompress_answer(KEY, value, ROOM)
    assert text is not None
    answer = cached_answer.parse_answer(text, call_of(client, stream=stream))
    assert answer is not None
    return answer


def read_whole(client: FamilyName, raw: bytes) -> list[Frame]:
    options = ReadOptions(call_of(client, stream=False), whole=True)
    [frame] = FAMILIES[client].reader(options).read(orjson.loads(raw), raw)
    return [frame._replace(last=True)]


def texts_by_kind(frames: Iterable[Frame]) -> dict[tuple[int, Kind], list[str]]:
    """Return texts by choice and kind: one for each call, joined for other kinds."""
    parts: dict[Part, str] = {}
    for frame in frames:
        for event in frame.events:
            if type(event) is Delta:
                parts[event.part] = parts.get(event.part, "") + event.text
    texts: dict[tuple[int, Kind], list[str]] = {}
    for part, text in parts.items():
        kind_texts = texts.setdefault((part.choice, part.kind), [])
        if part.kind in ("arguments", "server_arguments"):
            kind_texts.append(text.replace(" ", ""))  # Messages clients get JSON
        else:
            kind_texts[:] = ["".join([*kind_texts, text])]
    return texts


@pytest.mark.parametrize(("name", "client"), SENT_PAIRS)
def test_replayed_stream_has_the_original_texts(name: str, client: FamilyName) -> None:
    family, frames = sent_frames(name, client)
    value = stored(client, frames)
    assert (value is None) is (name in NOT_CACHED)
    if value is None:
        return

    replayed_text = written(client, replayed(client, value).frames)

    sent_text = written(client, frames)
    assert texts_of(client, replayed_text) == texts_of(client, sent_text)
    if family == client:
        assert replayed_text == sent_text


@pytest.mark.parametrize(("name", "client"), SENT_PAIRS)
def test_stream_is_replayed_as_a_body(name: str, client: FamilyName) -> None:
    _, frames = sent_frames(name, client)
    value = stored(client, frames)
    if value is None or name in UNTYPED:
        return
    sent_text = documents_of([written(client, frames)])

    body = replayed(client, value, stream=False)
    [frame] = read_whole(client, written(client, body.frames, stream=False))

    assert texts_by_kind([frame]) == texts_by_kind(Pipeline(client, client).frames(sent_text))


@pytest.mark.parametrize("client", sorted({client for _, client in SENT_PAIRS}))
def test_body_is_replayed_unchanged_and_as_a_stream(client: FamilyName) -> None:
    _, frames = sent_frames(f"{client}-text", client)
    raw = written(client, frames, stream=False)
    value = stored(client, read_whole(client, raw), stream=False)
    assert value is not None

    replayed_text = replayed(client, value, stream=False).frames
    streamed = replayed(client, value).frames

    assert written(client, replayed_text, stream=False) == raw
    assert texts_by_kind(streamed) == texts_by_kind(frames)
    assert texts_of(client, written(client, streamed))


@pytest.mark.parametrize("family", ["", "gemini"])
def test_entry_of_an_unknown_family_is_a_miss(family: Any) -> None:
    about = cached_answer.AnswerMetadata(1.0, True, "openai", "m", Tokens(), family)
    value = cached_answer.serialize_answer(KEY, about, [b"{}"])
    text = cached_answer.decompress_answer(KEY, value, ROOM)

    assert text is not None
    assert cached_answer.parse_answer(text, call_of("chat")) is None
