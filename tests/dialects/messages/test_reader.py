"""Messages answers as frames: order, coverage of the texts, usage, and bad input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.dialects.family import ReadOptions
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.messages.family import MESSAGES
from proxy.dialects.messages.reader import MAX_BLOCKS, MessageReader
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, Json, RequestHead
from proxy.types.events import (
    Attach,
    Begin,
    Delta,
    End,
    Finish,
    Frame,
    Native,
    Part,
    Start,
    Stop,
    ToolCall,
    UsageReport,
)
from tests.checked import checked
from tests.doubles import block_events, message, message_events, text_events
from tests.for_each import for_each
from tests.golden.events import Event, Path, events, string_paths
from tests.golden.recording import NAMES, read
from tests.golden.replay import MODEL
from tests.golden.texts import cut_texts, longest_text, texts_of

CALL = Call(RequestHead("anthropic", "chat", "/v1/messages", "req_1"), {})
RECORDED = [
    name
    for name in NAMES
    if name.startswith("messages-")
    and name != "messages-surrogates"
    and read(name).outputs["messages bare"].call["models"] == [MODEL]
]
"""The recordings that no fallback answered. Halves of a character are joined before."""
MARKER = "zebra"
KINDS = {
    "text": ("content",),
    "reasoning": ("reasoning_content",),
    "arguments": ("tool_calls", "arguments"),
}
CALLED = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
SERVER = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


def options(**extra: bool) -> ReadOptions:
    return replace(ReadOptions(CALL), **extra)  # type: ignore[arg-type]


def documents(parsed: Iterable[Event]) -> Iterator[tuple[Json, bytes]]:
    """Yield the documents of a recorded stream up to its error, with their bytes."""
    for event in parsed:
        if event.document is None:
            continue
        if event.kind == "error":
            return
        [line] = [line for line in event.raw.splitlines() if line.startswith(b"data: ")]
        yield event.document, line.removeprefix(b"data: ")


def frames_of(docs: Iterable[Json] | Iterable[tuple[Json, bytes]], **extra: bool) -> list[Frame]:
    """Return the frames of the documents of one answer, in checked order, the last one marked."""
    reader = MESSAGES.reader(options(**extra))
    pairs = [doc if isinstance(doc, tuple) else (doc, orjson.dumps(doc)) for doc in docs]
    frames = [frame for doc, raw in pairs for frame in reader.read(doc, raw)]
    matches = [type(event) for frame in frames for event in frame.events]
    if Finish in matches and Stop not in matches:
        frames += reader.end()
    if {Finish, Stop} & {*matches}:
        frames[-1] = frames[-1]._replace(last=True)
    split = bool(extra.get("inspect") or extra.get("crossing"))
    return checked(frames, split=split and not (extra.get("whole") and not extra.get("stream")))


def in_sequence(frames: Iterable[Frame]) -> list[Frame]:
    sequencer = Sequencer()
    moved = [frame_after for frame in frames for frame_after in sequencer.feed(frame)]
    return checked([*moved, *sequencer.end()], split=True, sequenced=True)


def all_events(frames: Iterable[Frame]) -> list[Any]:
    return [event for frame in frames for event in frame.events]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_stream_passes_with_its_bytes(name: str) -> None:
    parsed = [*documents(events(read(name).upstream))]

    frames = frames_of(parsed)

    expected = [raw for doc, raw in parsed if doc["type"] != "ping"]
    assert [frame.raw for frame in frames if frame.doc is not None] == expected


@pytest.mark.parametrize("name", RECORDED)
def test_inspected_stream_has_the_same_documents(name: str) -> None:
    parsed = [*documents(events(read(name).upstream))]

    frames = in_sequence(frames_of(parsed, inspect=True))

    assert [frame.raw for frame in frames if frame.raw is not None] == []
    body = b"".join(b"data: " + orjson.dumps(frame.doc) + b"\n\n" for frame in frames)
    assert texts_of("messages", body) == texts_of(
        "messages", read(name).outputs["messages bare"].body
    )


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "messages-late-text"])
def test_crossing_stream_has_the_texts_of_a_chat(name: str) -> None:
    texts = texts_of("chat", read(name).outputs["chat bare"].body)
    longest = longest_text("messages", read(name).upstream)

    for position in range(longest):
        pieces = b"".join(cut_texts("messages", read(name).upstream, position))
        frames = in_sequence(frames_of(documents(events(pieces)), crossing=True))
        assert _chat_texts(frames) == texts, position


def _chat_texts(frames: Sequence[Frame]) -> dict[tuple[object, ...], str]:
    texts: dict[tuple[object, ...], str] = {}
    calls: list[Part] = []
    for event in all_events(frames):
        if isinstance(event, Begin) and event.call is not None:
            calls.append(event.part)
            texts[0, "tool_calls", len(calls) - 1, "function", "name"] = event.call.name
        elif isinstance(event, Delta):
            place: tuple[object, ...] = (0, *KINDS[event.part.kind])
            if event.part in calls:
                place = 0, "tool_calls", calls.index(event.part), "function", "arguments"
            texts[place] = texts.get(place, "") + event.text
    return {place: text for place, text in texts.items() if text}


def _marked(event: Event) -> Iterator[tuple[Path, Event]]:
    """Yield the event with each of its strings marked, as a name and as a text."""
    for path in string_paths(event.document):
        yield path, event.changed(path, lambda text: f"{text} {MARKER} ")
        if path[-1] not in ("id", "model"):
            yield path, event.changed(path, lambda _: MARKER)


def _carries(frame: Frame) -> bool:
    """Return True if guards read the marker in a frame."""
    for event in frame.events:
        match event:
            case Native():
                return True
            case Delta(_, text) if MARKER in text:
                return True
            case Begin(_, call) if call is not None and MARKER in call.name:
                return True
            case Attach(_, _, value) if MARKER in str(value):
                return True
            case _:
                pass
    return False


@pytest.mark.parametrize("name", RECORDED)
def test_each_string_of_an_inspected_event_is_read(name: str) -> None:
    parsed = [event for event in events(read(name).upstream) if event.document]
    for index, event in enumerate(parsed):
        for path, marked in _marked(event):
            changed = [*parsed[:index], marked, *parsed[index + 1 :]]
            reader = MessageReader(options(inspect=True))
            frames: list[Frame] = []
            try:
                for doc, raw in documents(changed):
                    frames += reader.read(doc, raw)
            except UpstreamInvalid:
                pass
            unread = [f.doc for f in frames if MARKER in str(f.doc) and not _carries(f)]
            assert unread == [], (event.slot(path), marked.document)


@for_each(
    ("change", "is_native"),
    [
        ({}, False),
        ({"content": []}, False),
        ({"container": {"id": "c"}}, True),
        ({"id": "an id with spaces"}, True),
        ({"usage": {"input_tokens": 5, "service_tier": "standard"}}, False),
        ({"usage": {"input_tokens": 5, "service_tier": "odd"}}, True),
    ],
)
def test_unusual_members_of_a_message_are_native(change: Json, is_native: bool) -> None:
    start = message_events(text_events(0, "a"))[0]
    start["message"] |= change

    [frame] = MessageReader(options(inspect=True)).read(start, orjson.dumps(start))

    assert (Native() in frame.events) is is_native


@for_each(
    ("used", "tokens"),
    [
        ({"input_tokens": 5, "output_tokens": 3}, Tokens(input=5, output=3)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 3}
            | {"cache_creation_input_tokens": 20}
            | {"cache_creation": {"ephemeral_1h_input_tokens": 5}},
            Tokens(input=5, cached_input=100, cache_write=20, output=3, cache_write_1h=5),
        ),
        (
            {
                "input_tokens": 5,
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 4},
            },
            Tokens(input=5, output=5, reasoning=4),
        ),
        (
            {"input_tokens": 5, "output_tokens": 9, "server_tool_use": {"web_search_requests": 2}},
            Tokens(input=5, output=9, web_searches=2),
        ),
        ({"output_tokens": 3}, None),
        ({"input_tokens": "5", "output_tokens": 3}, None),
    ],
)
def test_usage_of_a_whole_answer(used: Json, tokens: Tokens | None) -> None:
    [frame] = frames_of([message(usage=used)], whole=True)

    [report] = [event for event in frame.events if isinstance(event, UsageReport)]
    assert (report.tokens, report.native) == (tokens, used)


def test_usage_of_the_end_wins_and_absent_counts_stay() -> None:
    used = {"output_tokens": 30, "cache_read_input_tokens": 7, "input_tokens": None}

    matches = all_events(frames_of(message_events(text_events(0, "a"), usage=used), inspect=True))

    report, ended = [event for event in matches if isinstance(event, UsageReport)]
    assert (report.final, ended.final) == (False, True)
    assert ended.tokens == Tokens(input=5, cached_input=7, output=30)
    assert ended.native == {"input_tokens": 5, "output_tokens": 30, "cache_read_input_tokens": 7}


@for_each(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("unknown", "stop"),
    ],
)
def test_each_stop_reason_has_a_finish_reason(reason: str, finish: str) -> None:
    [frame] = frames_of([message(stop_reason=reason)], whole=True)
    streamed = frames_of(message_events(text_events(0, "a"), reason=reason))

    for frames in ([frame], streamed):
        assert [e for e in all_events(frames) if isinstance(e, Finish)] == [
            Finish(0, finish)  # type: ignore[arg-type]
        ]


def test_arguments_in_the_start_of_a_call_get_a_delta_of_their_own() -> None:
    script = message_events(block_events(0, {**CALLED, "input": {"a": 1}}))

    frames = frames_of(script, inspect=True)

    start, delta = frames[1:3]
    assert start.doc == {**script[2], "content_block": CALLED}
    assert delta.doc == {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'},
    }
    [unsplit] = [e for e in all_events(frames_of(script)) if isinstance(e, Delta)]
    assert unsplit.text == '{"a":1}'


def test_tools_of_the_provider_do_not_cross() -> None:
    blocks = (
        block_events(0, SERVER, {"type": "input_json_delta", "partial_json": "{}"}),
        block_events(
            1, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"}
        ),
        block_events(2, {"type": "odd", "text": "x"}, {"type": "text_delta", "text": "y"}),
    )

    matches = all_events(frames_of(message_events(*blocks), crossing=True))

    assert [type(event) for event in matches] == [
        *(Start, UsageReport, Begin, End, Finish, UsageReport, Stop)
    ]


def test_ids_that_are_no_names_do_not_cross_to_an_inspected_client() -> None:
    script = message_events(block_events(0, {**CALLED, "id": "a zebra"}))
    script[0]["message"]["id"] = "the zebra"

    matches = all_events(frames_of(script, inspect=True, crossing=True))

    assert matches[0].id is None
    assert [event.call for event in matches if isinstance(event, Begin)] == [
        ToolCall("", "look_up")
    ]


@for_each("mode", [{}, {"inspect": True}, {"crossing": True}])
@for_each(
    "event", [{}, {"type": 5}, {"type": ["x"]}, {"type": "x"}, {"type": "a\nb"}, {"choices": []}]
)
def test_document_of_another_family_yields_nothing(event: Json, mode: dict[str, bool]) -> None:
    reader = MessageReader(options(**mode))

    assert reader.read(event, orjson.dumps(event)) == []
    with pytest.raises(UpstreamInvalid, match="before the response was complete"):
        reader.end()


@for_each("index", [None, "0", [1], {"a": 1}, 1.5])
@for_each("mode", [{}, {"inspect": True}, {"crossing": True}])
def test_odd_index_breaks_nothing(index: Any, mode: dict[str, bool]) -> None:
    script = message_events(
        [{**text_event, "index": index} for text_event in text_events(0, "a", "b")]
    )

    matches = all_events(frames_of(script, **mode))

    assert "".join(event.text for event in matches if isinstance(event, Delta)) == "ab"


@for_each("value", [None, 5, "x", [], {"type": 5}, {"type": ["x"], "text": 5}])
@for_each("mode", [{}, {"inspect": True}, {"crossing": True}])
@for_each("kind", ["message_start", "content_block_start", "content_block_delta", "message_delta"])
def test_member_of_the_wrong_type_breaks_nothing(
    kind: str, mode: dict[str, bool], value: Any
) -> None:
    members = dict.fromkeys(("message", "content_block", "delta", "usage"), value)

    assert len(frames_of([{"type": kind, "index": 0, **members}], **mode)) <= 1


@for_each("inspect", [True, False])
def test_block_without_an_end_ends_with_the_message(inspect: bool) -> None:
    script = message_events(text_events(0, "a")[:-1], text_events(1, "b")[:-1])

    frames = frames_of(script, inspect=inspect)

    closed = [frame.doc for frame in frames if any(isinstance(e, End) for e in frame.events)]
    stop = [{"type": "content_block_stop", "index": index} for index in (0, 1)]
    assert closed == (stop if inspect else [script[-2]])


@for_each("mode", [{"inspect": True}, {"crossing": True}])
@for_each(
    ("script", "problem"),
    [
        (
            [*text_events(0, "a"), text_events(0, "b")[1]],
            "continued a content block that had ended",
        ),
        ([text_events(0, "a")[0]] * 2, "started a content block that had not ended"),
        (message_events()[:1], "second message"),
    ],
)
def test_broken_order_of_a_split_stream_is_refused(
    script: list[Json], problem: str, mode: dict[str, bool]
) -> None:
    with pytest.raises(UpstreamInvalid, match=problem):
        frames_of([message_events()[0], *script], **mode)
    frames_of([message_events()[0], *script])


def test_index_may_repeat_after_its_end() -> None:
    script = message_events(text_events(0, "a"), text_events(0, "b"))

    matches = all_events(frames_of(script, inspect=True))

    assert [event.text for event in matches if isinstance(event, Delta)] == ["a", "b"]


@for_each("mode", [{"inspect": True}, {"crossing": True}])
def test_open_and_ended_blocks_are_bounded(mode: dict[str, bool]) -> None:
    starts = [text_events(index, "a")[0] for index in range(MAX_BLOCKS + 1)]
    blocks = [
        text_event for index in range(MAX_BLOCKS + 1) for text_event in text_events(index, "a")
    ]

    for script in (starts, blocks):
        with pytest.raises(ResponseTooLarge, match="too many content blocks"):
            frames_of([message_events()[0], *script], **mode)


def test_stream_that_is_not_inspected_may_open_any_number_of_blocks() -> None:
    starts = [text_events(index, "a")[0] for index in range(2 * MAX_BLOCKS)]

    reader = MessageReader(options())
    frames = [
        f
        for message_event in message_events(starts)
        for f in reader.read(message_event, orjson.dumps(message_event))
    ]

    assert len(checked(frames)) == len(starts) + 3


@for_each("mode", [{}, {"inspect": True}])
def test_text_after_the_end_has_no_event_of_its_own(mode: dict[str, bool]) -> None:
    script = message_events(text_events(0, "a"))
    delayed = text_events(1, "late")

    frames = frames_of([*script[:-1], *delayed, script[-1]], **mode)

    assert [f.doc for f in frames[-len(delayed) - 1 : -1]] == delayed
    assert {f.events for f in frames[-len(delayed) - 1 : -1]} == {(Native(),) if mode else ()}
    assert frames_of([*script[:-1], *delayed, script[-1]], crossing=True)[-1].last


@for_each("mode", [{}, {"inspect": True}, {"crossing": True}])
def test_stop_without_a_message_is_refused(mode: dict[str, bool]) -> None:
    with pytest.raises(UpstreamInvalid, match="before the response was complete"):
        frames_of([{"type": "ping"}, {"type": "message_stop"}], **mode)


def test_end_of_bytes_completes_a_finished_message() -> None:
    frames = frames_of(message_events(text_events(0, "a"))[:-1])

    assert frames[-1] == Frame((Stop(),), "messages", last=True)


def test_whole_answer_is_one_frame_with_its_bytes() -> None:
    doc = message(
        {"type": "thinking", "thinking": "Hm.", "signature": "s"}, {**CALLED, "input": {"a": [1]}}
    )
    raw = orjson.dumps(doc, option=orjson.OPT_INDENT_2)

    [frame] = MESSAGES.reader(options(whole=True)).read(doc, raw)

    assert checked([frame]) == [frame]
    assert (frame.doc, frame.raw) == (doc, raw)
    texts = [(e.part.kind, e.text, e.slot) for e in frame.events if isinstance(e, Delta)]
    assert texts == [
        ("reasoning", "Hm.", ("content", 0, "thinking")),
        ("arguments", '{"a":[1]}', ()),
    ]


def test_content_block_that_is_no_object_is_refused() -> None:
    with pytest.raises(UpstreamInvalid, match="content block that is not an object"):
        frames_of([message(content=["text"])], whole=True)
