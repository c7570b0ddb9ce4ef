"""A chunk with many texts takes linear work, whatever they wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.placeholders import Masks
from proxy.types import Json
from proxy.types.events import Frame
from tests.guards.doubles import rule, short_digests, tallies
from tests.guards.growth import TIMES, lines
from tests.guards.stream import frames as made

SMALL_COUNT = 40
MAXIMUM = TIMES * 1.5
OPEN = "[EMAIL_x"  # may go on as a placeholder
Make = Callable[[], StreamFilter]


def chunk(delta: Json) -> Json:
    return {**made.HEAD, "choices": [{"index": 0, "delta": delta}]}


CHUNKS: dict[str, Callable[[int], list[Json]]] = {
    "a list": lambda n: [chunk({"x": ["ab"] * n})],
    "members": lambda n: [chunk({f"m{number}": "ab" for number in range(n)})],
}


def restoring() -> StreamFilter:
    masks = Masks(short_digests())
    masks.placeholder("EMAIL", "a@b.example")
    return StreamFilter(masks)


def flagging() -> StreamFilter:
    return StreamFilter.under(tallies(rule("secret", action="flag")))


def fed(frames: Sequence[Frame], make: Make) -> list[Frame]:
    stream = make()
    return [safe for frame in frames for safe in stream.feed(frame)]


@pytest.mark.parametrize("make", [flagging, restoring])
@pytest.mark.parametrize("name", CHUNKS)
def test_work_grows_with_the_number_of_texts(name: str, make: Make) -> None:
    frames, items = (
        made.read(*CHUNKS[name](number)) for number in (SMALL_COUNT, SMALL_COUNT * TIMES)
    )

    assert made.documents(fed(frames, make)) == made.documents(frames)
    assert lines(lambda: fed(items, make)) < MAXIMUM * lines(lambda: fed(frames, make))


def test_thousands_of_chunks_wait_for_one_text() -> None:
    first_document, later = chunk({"y": "ab", "z": "ab", "x": OPEN}), chunk({"y": "ab", "z": "ab"})
    frames = made.read(first_document, *[later] * 3_000)

    assert fed(frames, restoring) == frames
