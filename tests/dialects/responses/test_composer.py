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


def test_a_whole_answer_has_the_same_items() -> None:
    frames = stream(*says(("reasoning", "Hm."), ("text", "A|B")))

    full_value = orjson.loads(written(frames, is_whole=True))
    assert full_value == accumulated(written(frames))
    assert written(frames[:-1], is_whole=True) == b""
