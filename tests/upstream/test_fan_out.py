"""Each model call of several gives its last frame, or its failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Self

import pytest

from proxy.errors import ProxyError, UpstreamInvalid
from proxy.ports import HandOn, UpstreamResponse
from proxy.types import ResponseHead
from proxy.types.events import STOP, Fault, Frame
from proxy.upstream.fan_out import FanOut

HEAD = ResponseHead(streamed=False)


class GivenAnswer:
    """An answer with the given groups of frames."""

    head = HEAD

    def __init__(self, groups: Sequence[Sequence[Frame]]) -> None:
        self.groups = groups

    async def frames(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Frame]]:
        for group in self.groups:
            yield group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass


async def frames_of(*answers: Sequence[Sequence[Frame]]) -> list[Frame]:
    async def begin(groups: Sequence[Sequence[Frame]]) -> UpstreamResponse:
        return GivenAnswer(groups)

    async def review(error: ProxyError) -> None:
        pass

    calls = [lambda groups=groups: begin(groups) for groups in answers]
    async with FanOut(calls, review, HEAD) as fan_out:
        return [frame async for group in fan_out.frames() for frame in group]


@pytest.mark.parametrize("empty", [[], [[]]], ids=["no group", "empty group"])
async def test_an_answer_without_frames_is_a_fault(empty: list[list[Frame]]) -> None:
    answered, failed = await frames_of([[Frame(()), Frame((STOP,))], []], empty)

    assert answered == Frame((STOP,))
    assert [type(event) for event in failed.events] == [Fault]
    assert (failed.model_call, failed.last) == (1, True)


async def test_answers_without_frames_fail_together() -> None:
    with pytest.raises(UpstreamInvalid, match="empty response"):
        await frames_of([], [[]])
