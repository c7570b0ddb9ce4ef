"""Frames fed to a filter: light ones at once, heavy ones in a thread; start of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.kinds.evidence import Groundedness
from proxy.guards.output import MAX_OPENING_FRAMES, StreamInspector
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.text.documents import BATCH_CHARS, LOOP_WEIGHT, WEIGHT_PER_SECOND
from proxy.types import Json
from proxy.types.events import Attach, Frame, PartStart, ToolCall
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
from tests.guards.doubles import Ticks, rule, stream_inspector, tallies
from tests.guards.stream import frames as made

T = TypeVar("T")


class Counting:
    """Counts the jobs that it runs."""

    def __init__(self) -> None:
        self.jobs = 0

    async def __call__(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        return job()


def feeding(action: str = "mask") -> tuple[StreamFilter, Counting]:
    counting, work = Counting(), tallies(rule("secret", action=action))
    return StreamFilter.for_rules(work, run_job=counting), counting


async def test_light_frame_is_inspected_at_once() -> None:
    feeds, counting = feeding()
    part = made.part()
    first_frames = await feeds.inspect(made.delta_frame(part, "a secret here. "))

    frames = feeds.try_inspect(made.delta_frame(part, "and a secret there."))

    assert frames is not None
    assert counting.jobs == 0
    text = made.text_of([*first_frames, *frames, *feeds.close()], part)
    assert text == "a [WORD] here. and a [WORD] there."


async def test_each_piece_of_a_long_text_is_a_job() -> None:
    feeds, counting = feeding()
    part, text = made.part(), "a secret, and a long text " * (BATCH_CHARS // 10)

    frames = [*await feeds.inspect(made.delta_frame(part, text)), *feeds.close()]

    assert made.text_of(frames, part) == text.replace("secret", "[WORD]")
    assert counting.jobs > len(text) // BATCH_CHARS


async def test_document_with_many_texts_is_inspected_in_a_thread() -> None:
    feeds, counting = feeding("block")
    document = {"type": "response.odd", "results": [f"text {index}" for index in range(100)]}

    assert await feeds.inspect(made.native(document))
    assert counting.jobs > 0
    with pytest.raises(GuardBlocked):
        await feeds.inspect(made.native({**document, "results": ["a secret"] * 100}))


async def test_audio_is_opaque() -> None:
    feeds, _ = feeding()

    await feeds.inspect(Frame((Attach(made.part("audio"), "audio", "AAAA"),)))

    assert feeds.opaque


def opening() -> StreamInspector:
    """Return the inspector of a stream under an enforcing rule that matches none of its texts."""
    return stream_inspector(rule("secret", fields=frozenset({"suffix"})))


async def test_opening_waits_for_content() -> None:
    stream = opening()
    part = made.part()
    frame = Frame((PartStart(part),), "chat")
    alive, text = Frame(()), made.delta_frame(part, "Hi")

    assert await stream.inspect(made.START) == []
    assert await stream.inspect(frame) == []
    assert await stream.inspect(alive) == [alive]
    assert await stream.inspect(text) == [made.START, frame, text]
    assert await stream.inspect(made.START) == [made.START]


@pytest.mark.parametrize(
    "frame",
    [
        Frame((PartStart(made.part("opaque")),)),
        Frame((PartStart(made.part("arguments"), ToolCall("a", "f")),)),
        made.finished(),
        made.STOPPED,
    ],
)
async def test_frame_with_content_opens(frame: Frame) -> None:
    assert await opening().inspect(frame) == [frame]


async def test_opening_is_bounded() -> None:
    stream = opening()
    frames = [made.native({"type": "odd"}) for _ in range(MAX_OPENING_FRAMES + 1)]

    released = [len(await stream.inspect(frame)) for frame in frames]

    assert released == [0] * MAX_OPENING_FRAMES + [MAX_OPENING_FRAMES + 1]


@dataclass
class Slow:
    """Each inspection advances a clock by some seconds."""

    clock: Ticks
    seconds: float
    lookback: int | None = 8

    def find(self, text: str) -> Sequence[Finding]:
        self.clock.now += self.seconds
        return ()


def choice(delta: Json, finish: str | None = None, index: int = 0, **options: object) -> Json:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}], **options}


def content(text: str, finish: str | None = None) -> Json:
    return choice({"content": text}, finish)


def call(arguments: str) -> Json:
    function = {"name": "f", "arguments": arguments}
    return choice({"tool_calls": [{"index": 0, "id": "a", "function": function}]})


async def jobs_of(docs: Sequence[Json], *work: RuleTally) -> list[bool]:
    """Return for each document of a stream whether its inspection was a job."""
    counting = Counting()
    feeds = StreamFilter.for_rules(work, run_job=counting)
    matches: list[bool] = []
    for frame in made.read(*docs):
        count_before = counting.jobs
        await feeds.inspect(frame)
        matches.append(counting.jobs > count_before)
    return matches[: len(docs)]


async def test_value_that_is_repeated_is_a_job_once() -> None:
    names = [choice({}, provider="a short name") for _ in range(4)]

    jobs = await jobs_of(names, *tallies(rule("secret", action="mask")))

    assert jobs == [False, True, False, False]


@for_each(
    ("heavy", "doc"),
    [
        (False, content("a" * 900)), (True, content("a" * (LOOP_WEIGHT + 1))),
        (True, content("é" * 900)), (False, call('{"a": "b"}')), (True, call('["a",' * 20)),
        (True, choice({"content": "a"}, unknown=["a"] * 100)),
    ],
)  # fmt: skip
async def test_frame_is_as_heavy_as_its_texts(heavy: bool, doc: Json) -> None:
    jobs = await jobs_of([doc], *tallies(rule("secret", action="mask")))

    assert any(jobs) == heavy


@for_each(
    ("lookback", "sizes", "expected"),
    [(40, (60, 60), [False, True]), (4000, (9000, 1, 1), [True, False, False])],
)
async def test_frame_is_as_heavy_as_the_last_inspection_if_its_text_is_read(
    lookback: int, sizes: Sequence[int], expected: list[bool]
) -> None:
    clock = Ticks()
    slow = Slow(clock, 2 * LOOP_WEIGHT / WEIGHT_PER_SECOND, lookback)
    work = RuleTally(GuardRule("slow", slow, "mask"), clock)

    assert await jobs_of([content("a" * size) for size in sizes], work) == expected


async def test_end_of_a_text_is_as_heavy_as_all_of_it() -> None:
    docs = [*[content("a" * 100)] * 20, choice({}, "stop")]

    jobs = await jobs_of(docs, *tallies(rule("secret", action="flag", unbounded=True)))

    assert jobs == [*[False] * 20, True]


async def test_context_of_a_rule_has_weight() -> None:
    grounded = Groundedness("The sky is blue. " * 100, 0.5)
    docs = [choice({"role": "assistant"}), content("The sea is red."), choice({}, "stop")]

    jobs = await jobs_of(docs, *tallies(GuardRule("grounded", grounded, "flag")))

    assert jobs == [False, False, True]
