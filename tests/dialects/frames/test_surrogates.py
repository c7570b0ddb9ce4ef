"""Halves of a surrogate pair are joined in the second of two deltas."""

from __future__ import annotations

import pytest

from proxy.dialects.frames.surrogates import SurrogateJoiner
from proxy.errors import UpstreamInvalid
from proxy.types.events import (
    STOP,
    Attach,
    Begin,
    Delta,
    End,
    Finish,
    Frame,
    Json,
    Part,
    Start,
    ToolCall,
)
from tests.for_each import for_each

PART, OTHER_PART = Part("text", 0), Part("text", 1)
HIGH, LOW = "\ud83d", "\ude00"


def delta(text: str, part: Part = PART, **members: str) -> Frame:
    doc: Json = {"text": text, **members}
    return Frame((Delta(part, text, ("text",)),), doc=doc, raw=b"{}")


def fed(*frames: Frame) -> list[tuple[str, Json | None, bytes | None]]:
    joiner = SurrogateJoiner()
    results = [joiner.feed(frame) for frame in frames]
    return [(frame.events[0].text, frame.doc, frame.raw) for frame in results]  # type: ignore[union-attr]


def test_a_pair_is_whole_in_the_second_delta() -> None:
    assert fed(delta("A " + HIGH), delta(LOW + " b"), delta("c")) == [
        ("A ", {"text": "A "}, None),
        ("\U0001f600 b", {"text": "\U0001f600 b"}, None),
        ("c", {"text": "c"}, b"{}"),
    ]


def test_halves_of_two_parts_stay_apart() -> None:
    frames = delta(HIGH), delta("x", OTHER_PART), delta(LOW)

    assert [text for text, *_ in fed(*frames)] == ["", "x", "\U0001f600"]


def test_both_halves_in_one_text_are_a_pair() -> None:
    assert fed(delta(HIGH + LOW))[0][0] == "\U0001f600"


@for_each(
    "frames",
    [
        (delta(HIGH), delta("x")),
        (delta(LOW),),
        (delta(HIGH), Frame((End(PART),))),
        (delta(HIGH), Frame((STOP,))),
        (delta("x", id=HIGH),),
        (delta(HIGH), Frame((Finish(0, "stop"),))),
        (Frame((Start(HIGH, None, None),)),),
        (Frame((Begin(PART, ToolCall("id", HIGH)),)),),
        (Frame((Attach(PART, "signature", {"of": [HIGH]}),)),),
    ],
)
def test_a_half_alone_is_invalid(frames: tuple[Frame, ...]) -> None:
    with pytest.raises(UpstreamInvalid):
        fed(*frames)


def test_the_end_of_another_text_leaves_a_half() -> None:
    joiner = SurrogateJoiner()
    joiner.feed(delta(HIGH, Part("text", 0, choice=1)))
    joiner.feed(delta(HIGH))
    ends = Frame((End(OTHER_PART), Finish(2, "stop")))

    assert joiner.feed(ends) == ends
    with pytest.raises(UpstreamInvalid):
        joiner.feed(Frame((Finish(1, "stop"),)))


def test_texts_of_a_frame_without_a_document_are_joined() -> None:
    frames = [Frame((Begin(PART), Delta(PART, "a" + HIGH))), Frame((Delta(PART, LOW),))]
    joiner = SurrogateJoiner()

    [begin, delta] = [joiner.feed(frame) for frame in frames]

    assert begin.events == (Begin(PART), Delta(PART, "a"))
    assert delta.events == (Delta(PART, "\U0001f600"),)
