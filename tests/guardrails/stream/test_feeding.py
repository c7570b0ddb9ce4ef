"""What is light is looked at where it comes; what is heavy, or has much looked at again, is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.kinds.grounded import GroundedIn
from proxy.guardrails.stream.feeding import Feeding
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.text.weight import IN_A_SECOND, LIGHT
from proxy.types import Chunk, Json
from proxy.types.guard import Finding, GuardRule
from tests.guardrails.doubles import Ticks, rule, tallies

T = TypeVar("T")


@dataclass
class Aside:
    """Does work at once, and counts it."""

    jobs: int = 0

    async def __call__(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        return job()


@dataclass
class Slow:
    """Each look takes so many seconds of a clock."""

    clock: Ticks
    seconds: float
    reach: int | None = 8
    sizes: list[int] = field(default_factory=list)

    def find(self, text: str) -> Sequence[Finding]:
        self.sizes.append(len(text))
        self.clock.now += self.seconds
        return ()


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Chunk({"choices": [choice], **more})


def said(text: str, finish: str | None = None) -> Chunk:
    return chunk({"content": text}, finish)


def call(arguments: str) -> Chunk:
    function = {"name": "f", "arguments": arguments}
    return chunk({"tool_calls": [{"index": 0, "function": function}]})


async def test_what_is_there_a_second_time_is_read_as_said_again_and_again_aside() -> None:
    aside = Aside()
    feeding = Feeding(StreamFilter.under(tallies(rule("secret", action="mask"))), aside)
    named = [chunk({}, provider="a short name") for _ in range(4)]

    assert await asides(feeding, aside, named) == [False, True, False, False]


async def asides(feeding: Feeding, aside: Aside, chunks: Sequence[Chunk]) -> list[bool]:
    """Return of each chunk whether it was looked at aside."""
    found = []
    for each in chunks:
        before = aside.jobs
        await feeding.feed(each)
        found.append(aside.jobs > before)
    return found


@pytest.mark.parametrize(
    ("heavy", "it"),
    [
        (False, said("a" * 900)),
        (True, said("a" * (LIGHT + 1))),
        (True, said("é" * 900)),
        (False, call('{"a": "b"}')),
        (True, call('["a",' * 20)),
        (True, chunk({"content": "a"}, unknown=["a"] * 100)),
        (False, Chunk(None)),
        (False, Chunk(None, last=True)),
    ],
)
async def test_a_chunk_is_as_heavy_as_its_texts(heavy: bool, it: Chunk) -> None:
    aside = Aside()
    feeding = Feeding(StreamFilter.under(tallies(rule("secret", action="mask"))), aside)

    assert await asides(feeding, aside, [it]) == [heavy]


async def test_a_chunk_is_as_heavy_as_the_last_look_at_its_text() -> None:
    clock, aside = Ticks(), Aside()
    slow = Slow(clock, 2 * LIGHT / IN_A_SECOND, reach=40)
    feeding = Feeding(
        StreamFilter.under([RuleTally(GuardRule("slow", slow, "mask"), clock)]), aside
    )

    assert await asides(feeding, aside, [said("a" * 60), said("a" * 60)]) == [False, True]


async def test_what_no_window_looks_at_yet_is_light() -> None:
    clock, aside = Ticks(), Aside()
    slow = Slow(clock, 2 * LIGHT / IN_A_SECOND, reach=4000)
    feeding = Feeding(
        StreamFilter.under([RuleTally(GuardRule("slow", slow, "mask"), clock)]), aside
    )
    await feeding.feed(said("a" * 9000))
    looks = len(slow.sizes)

    assert await asides(feeding, aside, [said("a"), said("a")]) == [False, False]
    assert len(slow.sizes) == looks


async def test_the_end_of_a_text_is_as_heavy_as_all_that_a_guard_sees_of_it() -> None:
    aside = Aside()
    whole = rule("secret", action="flag", unbounded=True)
    feeding = Feeding(StreamFilter.under(tallies(whole)), aside)

    chunks = [*[said("a" * 100)] * 20, said("", "stop"), said("", "stop")]
    assert await asides(feeding, aside, chunks) == [*[False] * 20, True, False]


async def test_what_a_guard_compares_with_weighs_too() -> None:
    aside = Aside()
    grounded = GroundedIn(0.5, "The sky is blue. " * 100)
    feeding = Feeding(StreamFilter.under(tallies(GuardRule("grounded", grounded, "flag"))), aside)

    chunks = [said("", "stop"), said("The sea is red."), said("", "stop")]
    assert await asides(feeding, aside, chunks) == [False, False, True]


async def test_it_tells_of_what_nobody_can_read() -> None:
    feeding = Feeding(StreamFilter.under(tallies(rule("secret"))), Aside())

    await feeding.feed(said("a"))
    assert not feeding.opaque
    await feeding.feed(chunk({"audio": {"data": "AAAA"}}))
    assert feeding.opaque
