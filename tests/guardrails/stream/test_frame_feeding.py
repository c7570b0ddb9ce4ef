"""Frames fed to a filter: light ones at once, heavy ones elsewhere; the opening of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from proxy.errors import GuardBlocked
from proxy.guardrails.stream.frame_feeding import MAX_OPENING, FirstFrames, FrameFeeding, InTime
from proxy.guardrails.stream.frame_filter import FrameFilter
from proxy.guardrails.text.text_walker import SHEET
from proxy.types.events import Attach, Begin, Frame, Native, ToolCall
from tests.guardrails.doubles import rule, tallies
from tests.guardrails.stream import frames as made

T = TypeVar("T")


class Counting:
    """Counts the jobs that it runs."""

    def __init__(self) -> None:
        self.jobs = 0

    async def __call__(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        return job()


def feeding(action: str = "mask") -> tuple[FrameFeeding, Counting]:
    beside, work = Counting(), tallies(rule("secret", action=action))
    return FrameFeeding(FrameFilter.under(work), InTime(work, beside)), beside


async def test_light_frame_is_inspected_at_once() -> None:
    feeds, beside = feeding()
    part = made.part()
    first = await feeds.feed(made.said(part, "a secret here. "))

    shown = feeds.feed_at_once(made.said(part, "and a secret there."))

    assert shown is not None
    assert beside.jobs == 0
    text = made.text_of([*first, *shown, *feeds.flush()], part)
    assert text == "a [WORD] here. and a [WORD] there."


async def test_each_piece_of_a_long_text_is_a_job() -> None:
    feeds, beside = feeding()
    part, text = made.part(), "a secret, and a long text " * (SHEET // 10)

    shown = [*await feeds.feed(made.said(part, text)), *feeds.flush()]

    assert made.text_of(shown, part) == text.replace("secret", "[WORD]")
    assert beside.jobs > len(text) // SHEET


async def test_document_with_many_texts_is_inspected_elsewhere() -> None:
    feeds, beside = feeding("block")
    document = {"type": "response.odd", "results": [f"text {at}" for at in range(100)]}

    assert await feeds.feed(made.native(document))
    assert beside.jobs > 0
    with pytest.raises(GuardBlocked):
        await feeds.feed(made.native({**document, "results": ["a secret"] * 100}))


async def test_audio_is_opaque() -> None:
    feeds, _ = feeding()

    await feeds.feed(Frame((Attach(made.part("audio"), "audio", "AAAA"),)))

    assert feeds.opaque


def test_opening_waits_for_content() -> None:
    first = FirstFrames(waits=True)
    part = made.part()
    begun = Frame((Begin(part),), "chat")
    alive, text = Frame(()), made.said(part, "Hi")

    assert first.feed([made.START]) == []
    assert first.feed([begun]) == []
    assert first.feed([alive]) == [alive]
    assert first.feed([text]) == [made.START, begun, text]
    assert first.feed([made.START]) == [made.START]


@pytest.mark.parametrize(
    "frame",
    [
        Frame((Begin(made.part("opaque")),)),
        Frame((Begin(made.part("arguments"), ToolCall("a", "f")),)),
        made.finished(),
        made.STOPPED,
    ],
)
def test_frame_with_content_opens(frame: Frame) -> None:
    assert FirstFrames(waits=True).feed([frame]) == [frame]


def test_opening_is_bounded() -> None:
    first = FirstFrames(waits=True)
    frames = [made.native({"type": "odd"}) for _ in range(MAX_OPENING + 1)]

    released = [len(first.feed([frame])) for frame in frames]

    assert released == [0] * MAX_OPENING + [MAX_OPENING + 1]
    assert isinstance(frames[0].events[0], Native)
