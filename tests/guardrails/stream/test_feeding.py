"""What is light is looked at where it comes; what is heavy, or has much looked at again, is not."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.kinds.grounded import GroundedIn
from proxy.guardrails.stream.feeding import Feeding
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.text.text_walker import IN_A_SECOND, LIGHT, SHEET
from proxy.types import Chunk, Json
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
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


def content_chunk(text: str, finish: str | None = None) -> Chunk:
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


@for_each(
    ("heavy", "it"),
    [
        (False, content_chunk("a" * 900)),
        (True, content_chunk("a" * (LIGHT + 1))),
        (True, content_chunk("é" * 900)),
        (False, call('{"a": "b"}')),
        (True, call('["a",' * 20)),
        (True, chunk({"content": "a"}, unknown=["a"] * 100)),
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

    assert await asides(feeding, aside, [content_chunk("a" * 60), content_chunk("a" * 60)]) == [
        False,
        True,
    ]


async def test_what_no_window_looks_at_yet_is_light() -> None:
    clock, aside = Ticks(), Aside()
    slow = Slow(clock, 2 * LIGHT / IN_A_SECOND, reach=4000)
    feeding = Feeding(
        StreamFilter.under([RuleTally(GuardRule("slow", slow, "mask"), clock)]), aside
    )
    await feeding.feed(content_chunk("a" * 9000))
    looks = len(slow.sizes)

    assert await asides(feeding, aside, [content_chunk("a"), content_chunk("a")]) == [False, False]
    assert len(slow.sizes) == looks


async def test_the_end_of_a_text_is_as_heavy_as_all_that_a_guard_sees_of_it() -> None:
    aside = Aside()
    whole = rule("secret", action="flag", unbounded=True)
    feeding = Feeding(StreamFilter.under(tallies(whole)), aside)

    chunks = [
        *[content_chunk("a" * 100)] * 20,
        content_chunk("", "stop"),
        content_chunk("", "stop"),
    ]
    assert await asides(feeding, aside, chunks) == [*[False] * 20, True, False]


async def test_what_a_guard_compares_with_weighs_too() -> None:
    aside = Aside()
    grounded = GroundedIn(0.5, "The sky is blue. " * 100)
    feeding = Feeding(StreamFilter.under(tallies(GuardRule("grounded", grounded, "flag"))), aside)

    chunks = [
        content_chunk("", "stop"),
        content_chunk("The sea is red."),
        content_chunk("", "stop"),
    ]
    assert await asides(feeding, aside, chunks) == [False, False, True]


async def test_it_tells_of_what_nobody_can_read() -> None:
    feeding = Feeding(StreamFilter.under(tallies(rule("secret"))), Aside())

    await feeding.feed(content_chunk("a"))
    assert not feeding.opaque
    await feeding.feed(chunk({"audio": {"data": "AAAA"}}))
    assert feeding.opaque


SHAPES: dict[str, Callable[[int], str]] = {
    "letters apart": lambda size: "a b " * (size // 4),
    "escapes": lambda size: "%41" * (size // 3),
    "findings": lambda size: "secret words of a text " * (size // 23),
}
PLACES: dict[str, Callable[[str], Chunk]] = {
    "a text": content_chunk,
    "two texts": lambda text: Chunk({"choices": [choice(0, text), choice(1, text)]}),
    "arguments": lambda text: call(f'["{text}'),
    "a name": lambda text: chunk({"tool_calls": [{"index": 0, "function": {"name": text}}]}),
}
MOST_BYTES = 8 * 1024 * 1024  # what the readings of a sheet take, and what finds in them
EACH_BYTE = 16  # of what comes: its parts, what is shown for them, and the chunks of that


def choice(index: int, text: str) -> Json:
    return {"index": index, "delta": {"content": text}, "finish_reason": None}


@pytest.mark.parametrize(
    ("shape", "place", "action"),
    [
        *((shape, "a text", "mask") for shape in SHAPES),
        *(("letters apart", place, "mask") for place in PLACES if place != "a text"),
        ("letters apart", "a text", "flag"),
    ],
)
async def test_a_chunk_takes_little_memory_however_long_it_is(
    shape: str, place: str, action: str
) -> None:
    for size in (SHEET, 4 * SHEET):
        long = PLACES[place](SHAPES[shape](size))
        feeding = Feeding(StreamFilter.under(tallies(rule("secret", action=action))), Aside())
        gc.collect()
        tracemalloc.start()
        await feeding.feed(long)
        await feeding.feed(Chunk(None, last=True))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert peak < MOST_BYTES + EACH_BYTE * size


async def test_a_long_text_is_looked_at_piece_by_piece_each_in_a_turn() -> None:
    jobs = []
    for size in (SHEET, 2 * SHEET, 4 * SHEET):
        aside = Aside()
        feeding = Feeding(StreamFilter.under(tallies(rule("secret", action="mask"))), aside)
        await feeding.feed(content_chunk("a b " * (size // 4)))
        jobs.append(aside.jobs)

    assert jobs[0] == 1
    assert jobs[2] - jobs[1] == 2


async def test_a_long_text_leaves_as_one_that_came_in_pieces() -> None:
    text = "secret a b " * (3 * SHEET // 11)
    feeding = Feeding(StreamFilter.under(tallies(rule("secret", action="mask"))), Aside())
    [*shown] = await feeding.feed(chunk({"role": "assistant", "content": text}, "stop", usage={}))

    deltas = [each["choices"][0] for each in (one.data or {} for one in shown)]
    assert "".join(each["delta"].get("content", "") for each in deltas) == text.replace(
        "secret", "[WORD]"
    )
    assert [each["delta"].get("role") for each in deltas].count("assistant") == 1
    assert [each["finish_reason"] for each in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert [("usage" in (one.data or {})) for one in shown].count(True) == 1
