"""Server-sent events: any split of the bytes gives the same events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.wire.sse import EventReader
from proxy.errors import UpstreamInvalid
from tests.for_each import for_each

WIRE = (
    b"\xef\xbb\xbf: hello\r\n\r\ndata: one\r\n\r\ndata:two\ndata: lines\n\n"
    b"id: 3\nevent: x\nretry: 1\ndata: three\r\rdata: \xc3\xa9\n\n\n\ndata: [DONE]\n\n"
)
EVENTS = [b"one", b"two\nlines", b"three", b"\xc3\xa9", b"[DONE]"]


@given(st.lists(st.integers(0, len(WIRE)), max_size=12))
def test_any_split_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WIRE)]
    reader = EventReader(1000)

    observed = [e for a, b in itertools.pairwise(edges) for e in reader.feed(WIRE[a:b])]

    assert observed + reader.close() == EVENTS


@given(st.lists(st.sampled_from(["data: ", "data:", "\n", "\n\n", "\r", "x", ": x", " "])))
def test_whole_events_equal_events_read_byte_by_byte(parts: list[str]) -> None:
    text = "".join(["data: ", *parts, "\n\n"]).encode()
    at_once, bit_by_bit = EventReader(1000), EventReader(1000)
    for reader in (at_once, bit_by_bit):
        assert reader.feed(b"data: opened\n\n") == [b"opened"]

    observed = [e for byte in text for e in bit_by_bit.feed(bytes([byte]))]

    assert at_once.feed(text) == observed
    assert at_once.close() == bit_by_bit.close()


def test_last_event_needs_no_blank_line() -> None:
    reader = EventReader(100)

    assert reader.feed(b"data: x") == []
    assert reader.close() == [b"x"]


@pytest.mark.parametrize(
    ("limit", "piece", "times"),
    [(100, b"data: xxxxxxxxxx", 20), (10_000, b"data:\n" * 100, 100)],
    ids=["endless line", "empty lines"],
)
def test_event_size_is_bounded(limit: int, piece: bytes, times: int) -> None:
    reader = EventReader(limit)

    with pytest.raises(UpstreamInvalid):
        for _ in range(times):
            reader.feed(piece)


@for_each("size", [1, 2, 7, 1000])
def test_long_line_in_small_pieces_is_one_event(size: int) -> None:
    reader, line = EventReader(10**7), b"data: " + b"xy" * 50_000

    observed = [
        e for index in range(0, len(line), size) for e in reader.feed(line[index : index + size])
    ]

    assert (observed, reader.feed(b"\n\n")) == ([], [line[6:]])
