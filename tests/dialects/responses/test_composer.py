"""Answers of other families become items and parts of a response."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from proxy.money.usage import Tokens
from proxy.types.events import (
    STOP,
    Attach,
    Begin,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Part,
    Start,
    ToolCall,
    UsageReport,
)
from tests.dialects.responses.frames import written
from tests.dialects.test_responses import accumulated, streamed
from tests.doubles import Json
from tests.for_each import for_each

START = Frame((Start("c1", "m", 1_700_000_000),))
USED = Frame((UsageReport(Tokens(input=5, output=3), {}),))


def stream(*events: Event, reason: FinishReason = "stop") -> list[Frame]:
    parts = [Frame((event,)) for event in events]
    return [START, *parts, Frame((Finish(0, reason),)), USED, Frame((STOP,), last=True)]


def says(*texts: tuple[str, str]) -> list[Event]:
    """Return the events of parts, each with a kind and a text."""
    events: list[Event] = []
    for number, (kind, text) in enumerate(texts):
        part = Part(kind, number)  # type: ignore[arg-type]
        events += [Begin(part), *(Delta(part, piece) for piece in text.split("|"))]
    return events


def items(frames: Sequence[Frame]) -> list[Json]:
    output: list[Json] = streamed(written(frames))[-1]["response"]["output"]
    return output


def test_a_stream_begins_and_ends_as_an_openai_stream_does() -> None:
    raw = written(stream(*says(("text", "It is |Paris."))))

    kinds = [event["type"].removeprefix("response.") for event in streamed(raw)]
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]
    document = accumulated(raw)
    assert (document["id"], document["created_at"], document["model"]) == ("c1", 1_700_000_000, "m")
    assert document["usage"]["input_tokens"] == 5
    assert document["store"] is False


def test_texts_and_refusals_are_parts_of_one_message() -> None:
    [item] = items(stream(*says(("text", "A|B"), ("refusal", "C"), ("text", "D"))))

    assert item["id"] == "msg_unstored_c1_0"
    assert [part.get("text", part.get("refusal")) for part in item["content"]] == ["AB", "C", "D"]


def test_parts_of_one_kind_that_follow_each_other_are_one_text() -> None:
    [item] = items(stream(*says(("text", "A"), ("text", "B"))))

    assert [part["text"] for part in item["content"]] == ["AB"]


def test_reasoning_is_an_item_of_its_own() -> None:
    thought, message, document_after = items(
        stream(*says(("reasoning", "Hm."), ("text", "A"), ("summary", "So.")))
    )

    assert (thought["type"], message["type"], document_after["type"]) == (
        "reasoning",
        "message",
        "reasoning",
    )
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]


@for_each(
    ("kind", "call", "item"),
    [
        ("arguments", ToolCall("a", "f"), {"type": "function_call", "arguments": "{}"}),
        ("input", ToolCall("a", "f", "custom"), {"type": "custom_tool_call", "input": "{}"}),
    ],
)
def test_a_tool_call_is_an_item(kind: str, call: ToolCall, item: Json) -> None:
    part = Part(kind, 0)  # type: ignore[arg-type]
    frames = stream(Begin(part, call), Delta(part, "{"), Delta(part, "}"), *says(("text", "A")))

    calls, message = items(frames)

    assert item.items() <= calls.items()
    assert (calls["call_id"], calls["name"], calls["status"]) == ("a", "f", "completed")
    assert message["content"][0]["text"] == "A"


def test_a_call_has_the_signature_of_its_thought_in_its_id() -> None:
    part = Part("arguments", 0)
    frame = Frame((Begin(part, ToolCall("a", "f")), Attach(part, "signature", "sig")))
    [calls] = items([START, frame, *stream(Delta(part, "{}"))[1:]])

    assert calls["call_id"] == "a_signed_c2ln"


def test_log_probabilities_are_beside_their_text() -> None:
    part, listed = Part("text", 0), [{"token": "A", "logprob": -1}]
    attached = Frame((Delta(part, "A"), Attach(part, "logprobs", {"content": listed})))

    raw = written([START, Frame((Begin(part),)), attached, *stream()[1:]])

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
def test_why_an_answer_ends(reason: FinishReason, status: str, details: Json | None) -> None:
    document = accumulated(written(stream(*says(("text", "A")), reason=reason)))

    assert (document["status"], document["incomplete_details"]) == (status, details)


def test_an_empty_answer_is_an_empty_message() -> None:
    for frames in ([Frame((STOP,), last=True)], stream(), stream(*says(("code", "x")))):
        [item] = items(frames)
        assert item["content"][0]["text"] == ""


def test_another_choice_is_left_out() -> None:
    other_part = Part("text", 0, choice=1)
    frames = stream(*says(("text", "A")), Begin(other_part), Delta(other_part, "B"))

    assert [part["text"] for item in items(frames) for part in item["content"]] == ["A"]


def test_a_whole_answer_has_the_same_items() -> None:
    frames = stream(*says(("reasoning", "Hm."), ("text", "A|B")))

    full_value = orjson.loads(written(frames, is_whole=True))
    assert full_value == accumulated(written(frames))
    assert written(frames[:-1], is_whole=True) == b""
