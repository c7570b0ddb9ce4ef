"""Writer of Responses: unchanged bytes, or documents with the released texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.dialects.families import RESPONSES
from proxy.dialects.family import WriteOptions
from proxy.errors import UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types.events import (
    Attach,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    UsageReport,
    replace_only_delta_text,
)
from tests.dialects.responses.frames import CALL, kinds, read, texts, without_bytes, written
from tests.dialects.responses.test_reader import MESSAGE, STREAM
from tests.dialects.test_responses import FUNCTION_CALL, accumulated, streamed
from tests.doubles import Json, item_events, response, response_events
from tests.for_each import for_each
from tests.golden.events import events, value_at

KEEPALIVE = Frame(())
RESPONSE_END = Frame((Finish(0, "content_filter"), ResponseEnd()), last=True)


def documents(raw: bytes) -> list[Any]:
    return [event.document for event in events(raw) if event.document]


def masked(frames: list[Frame]) -> list[Frame]:
    """Return frames in which a guard has masked deltas."""
    frames = without_bytes(frames)
    for index, frame in enumerate(frames):
        for event in frame.events:
            if isinstance(event, Delta) and "Paris" in event.text:
                text = event.text.replace("Paris", "[CITY]")
                frames[index] = replace_only_delta_text(frame, text)
    return frames


@for_each("index", range(len(STREAM)))
def test_events_are_rewritten_from_the_first_changed_one(index: int) -> None:
    frames = read(STREAM)
    frames[index] = frames[index]._replace(raw=None)

    raw = written(frames)

    assert accumulated(raw)["output"] == [MESSAGE, FUNCTION_CALL]
    assert [event["type"] for event in streamed(raw)] == [event["type"] for event in STREAM]


def test_masked_text_has_no_logprobs() -> None:
    stream = item_events(0, MESSAGE, "It is ", "Paris.")
    stream = [{**e, "logprobs": [{"token": "x"}]} if "delta" in e else e for e in stream]
    frames = read(response_events(stream, document=response(MESSAGE)), inspect=True)
    masked_frames = [
        frame._replace(events=frame.events[:1]) if "[CITY]" in str(frame.events) else frame
        for frame in masked(frames)
    ]

    [masked_item], [item] = items(masked_frames), items(without_bytes(frames))

    assert masked_item["content"][0]["logprobs"] == []
    assert len(item["content"][0]["logprobs"]) == 2


def test_keepalive_is_a_comment_before_the_start() -> None:
    frames = read(STREAM)

    raw = written([KEEPALIVE, frames[0], KEEPALIVE, *frames[1:]])

    assert raw.startswith(b": keep-alive\n\n")
    names = [event["type"] for event in streamed(raw)]
    assert names[:3] == ["response.created", "keepalive", "response.in_progress"]


def test_delta_added_by_a_guard_continues_its_text() -> None:
    frames = read(STREAM, inspect=True)
    [index] = [n for n, frame in enumerate(frames) if "It is " in str(frame.events)]
    [part] = [event.part for event in frames[index].events if isinstance(event, Delta)]
    frames.insert(index + 1, Frame((Delta(part, "all of "),)))

    full_value = streamed(written(frames))[-1]["response"]

    assert full_value["output"][0]["content"][0]["text"] == "It is all of Paris."


def test_stream_ended_by_a_guard_has_its_items() -> None:
    frames = read(STREAM[:8], inspect=True)

    ended = streamed(written([*without_bytes(frames), RESPONSE_END]))[-1]

    assert ended["type"] == "response.incomplete"
    [item] = ended["response"]["output"]
    assert item["content"] == [{"type": "output_text", "text": "It is Paris."}]
    assert ended["response"]["incomplete_details"] == {"reason": "content_filter"}


def test_echoed_request_is_that_of_the_client() -> None:
    document = response(MESSAGE, instructions="as the upstream got it")
    call = replace(CALL, body={**CALL.body, "instructions": "Be brief."})
    frames = without_bytes(read(response_events(item_events(0, MESSAGE, "x"), document=document)))

    documents = [e["response"] for e in streamed(written(frames, call)) if "response" in e]
    assert {document["instructions"] for document in documents} == {"Be brief."}


@for_each("stops_at", [0, 2, 5])
@for_each(("code", "failed_code"), [("c", "c"), ("guardrail_blocked", "invalid_prompt")])
def test_error_has_the_members_that_sdks_raise(stops_at: int, code: str, failed_code: str) -> None:
    writer = RESPONSES.writer(WriteOptions(call=CALL, whole=False))
    raw = b"".join(map(writer.feed, read(STREAM[:stops_at])))
    error = {"message": "m", "code": code, "type": "t", "param": None}

    *_, raised, failed = streamed(raw + writer.encode_error(json.dumps({"error": error}).encode()))

    assert (raised["type"], raised["code"], raised["error"]) == ("error", code, error)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": failed_code, "message": "m"}
    assert failed["sequence_number"] == stops_at + 1


@for_each("options", [{}, {"inspect": True}])
def test_stream_becomes_a_whole_response(options: dict[str, bool]) -> None:
    frames = read(STREAM, **options)

    full_value = orjson.loads(written(without_bytes(frames) if options else frames, is_whole=True))

    assert full_value["output"] == [MESSAGE, FUNCTION_CALL]


def test_whole_response_keeps_its_bytes() -> None:
    raw = json.dumps(response(MESSAGE)).encode()

    assert written(read([raw], whole=True), is_whole=True) == raw


def test_inspected_response_echoes_the_request() -> None:
    frames = without_bytes(read([response(MESSAGE, instructions="x")], whole=True, inspect=True))

    assert frames[0].doc is not None
    assert "instructions" not in frames[0].doc
    assert orjson.loads(written(frames, is_whole=True))["instructions"] is None


@for_each("item", [None, 5, "text", []])
def test_output_items_of_other_types_pass_unchanged(item: object) -> None:
    events = response_events(document={**response(), "output": [item]})

    sent_items = documents(written(read(events)))

    assert sent_items == events


START = Frame((ResponseStart("c1", "m", 1_700_000_000),))
USED = Frame((UsageReport(Tokens(input=5, output=3), {}),))


def stream(*events: Event, reason: FinishReason = "stop") -> list[Frame]:
    parts = [Frame((event,)) for event in events]
    return [START, *parts, Frame((Finish(0, reason),)), USED, Frame((ResponseEnd(),), last=True)]


def response_events_of(*texts: tuple[str, str]) -> list[Event]:
    """Return the events of parts, each with a kind and a text."""
    events: list[Event] = []
    for number, (kind, text) in enumerate(texts):
        part = Part(kind, number)  # type: ignore[arg-type]
        events += [PartStart(part), *(Delta(part, piece) for piece in text.split("|"))]
    return events


def items(frames: Sequence[Frame]) -> list[Json]:
    output: list[Json] = streamed(written(frames))[-1]["response"]["output"]
    return output


def test_logprobs_are_attached_to_their_text() -> None:
    part, listed = Part("text", 0), [{"token": "A", "logprob": -1}]
    attached = Frame((Delta(part, "A"), Attach(part, "logprobs", {"content": listed})))

    raw = written([START, Frame((PartStart(part),)), attached, *stream()[1:]])

    [delta] = [event for event in streamed(raw) if event["type"].endswith(".delta")]
    assert delta["logprobs"] == listed
    assert accumulated(raw)["output"][0]["content"][0]["logprobs"] == listed


@for_each(
    ("reason", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_status_follows_finish_reason(reason: FinishReason, status: str, details: Any) -> None:
    document = accumulated(written(stream(*response_events_of(("text", "A")), reason=reason)))

    assert (document["status"], document["incomplete_details"]) == (status, details)


def test_empty_response_is_an_empty_message() -> None:
    ended, code = [Frame((ResponseEnd(),), last=True)], stream(*response_events_of(("code", "x")))
    for frames in (ended, stream(), code):
        [item] = items(frames)
        assert item["content"][0]["text"] == ""


def test_whole_response_has_the_same_items() -> None:
    frames = stream(*response_events_of(("reasoning", "Hm."), ("text", "A|B")))

    full_value = orjson.loads(written(frames, is_whole=True))
    assert full_value == accumulated(written(frames))
    assert written(frames[:-1], is_whole=True) == b""


THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "content": None}
THOUGHT["summary"] = [{"type": "summary_text", "text": text} for text in ("Hm.", "So")]
SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}
CUSTOM: Json = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g"}
CUSTOM["input"] = "x"
DOCUMENT = response(THOUGHT, SEARCH, MESSAGE, FUNCTION_CALL, CUSTOM)
VALUES = ["Hm.", "So", "It is Paris.", '{"place": "Paris"}', "x"]


def test_whole_response_is_one_frame() -> None:
    [frame] = read([DOCUMENT], whole=True)

    matches = [type(event) for event in frame.events]
    assert (matches[0], matches[-3:]) == (ResponseStart, [Finish, UsageReport, ResponseEnd])
    assert matches.count(PartStart) == matches.count(PartEnd) == 8
    assert [*texts([frame]).values()] == VALUES
    for event in frame.events:
        if isinstance(event, Delta):
            assert value_at(frame.doc, event.slot) == event.text


def test_other_families_get_no_provider_items() -> None:
    [frame] = read([DOCUMENT], whole=True, is_translated=True)

    started = [event.part.kind for event in frame.events if isinstance(event, PartStart)]
    assert "opaque" not in started
    assert [*texts([frame]).values()][:2] == ["Hm.", "\n\nSo"]
    thought = {**THOUGHT, "content": [{"type": "reasoning_text", "text": "Long."}]}
    frames = read([response(thought)], whole=True, is_translated=True)
    assert [*texts(frames).values()] == ["Long."]


@for_each("options", [{}, {"inspect": True}, {"is_translated": True}])
def test_whole_response_may_become_a_stream(options: dict[str, bool]) -> None:
    frames = read([DOCUMENT], whole=True, stream=True, **options)

    assert [*texts(frames).values()] == VALUES
    assert all("Delta" not in kinds([frame]) or len(frame.events) < 4 for frame in frames)
    if not options.get("is_translated"):
        ended = streamed(written(without_bytes(frames)))[-1]
        assert ended["response"]["output"] == DOCUMENT["output"]


@for_each("status", ["queued", "in_progress"])
def test_background_response_may_be_unfinished(status: str) -> None:
    document = response(status=status, background=True, output=[], usage=None)

    assert kinds(read([document], whole=True)) == ["ResponseStart"]
    for options in ({"is_translated": True}, {}):
        with pytest.raises(UpstreamInvalid, match="not complete"):
            read([{**document, "background": not options and None}], whole=True, **options)


@for_each("output", [["x"], [None], [MESSAGE, 1]])
def test_items_are_objects(output: list[Any]) -> None:
    with pytest.raises(UpstreamInvalid, match="not an object"):
        read([{**DOCUMENT, "output": output}], whole=True)
