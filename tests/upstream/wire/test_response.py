"""A response reads the same however its bytes were cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamInvalid
from proxy.upstream.wire.head import MAX_HEAD_BYTES
from proxy.upstream.wire.response import MAX_INTERIM, Response
from tests.for_each import for_each

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"


@dataclass(frozen=True)
class Read:
    head: object
    body: bytes
    fault: bool
    ended: bool
    keeps: bool
    whole: bool


def read(pieces: list[bytes]) -> Read:
    response, body, fault = Response(), list[bytes](), False
    for piece in pieces:
        try:
            response.feed(piece, body)
        except UpstreamInvalid:
            fault = True
            break
    said = (response.head, b"".join(body), fault, response.ended, response.keeps)
    return Read(*said, whole=not fault and response.close())


def in_chunks(parts: list[bytes], extension: str, trailers: str) -> bytes:
    sized = [f"{len(p):x}{extension}\r\n".encode() + p + b"\r\n" for p in parts if p]
    return CHUNKED + b"".join(sized) + b"0\r\n" + trailers.encode() + b"\r\n"


parts = st.lists(st.binary(max_size=40), max_size=6)
chunked = st.builds(
    in_chunks, parts, st.sampled_from(["", ";a", ' ; a="b"']), st.sampled_from(["", "x: y\r\n"])
)
counted = st.binary(max_size=60).map(
    lambda body: HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body
)
until_close = st.binary(max_size=60).map(lambda body: HEAD + b"\r\n" + body)
whole = st.one_of(chunked, counted, until_close)
interim = st.integers(0, 3).map(lambda count: INTERIM * count)
surplus = st.sampled_from([b"", b"EXTRA", b"\r\n", HEAD])
mutated = st.builds(
    lambda raw, at, junk: raw[: at % (len(raw) + 1)] + junk + raw[at % (len(raw) + 1) + 1 :],
    whole,
    st.integers(0, 200),
    st.binary(max_size=3),
)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[a:b] for a, b in pairwise(edges)]


@given(interim, whole, surplus, st.lists(st.integers(0, 400), max_size=12))
def test_cuts_change_nothing(before: bytes, raw: bytes, after: bytes, places: list[int]) -> None:
    sent = before + raw + after

    at_once = read([sent])

    assert read(cut(sent, places)) == at_once
    assert read([sent[n : n + 1] for n in range(len(sent))]) == at_once
    assert at_once.head is not None
    assert not at_once.fault
    assert at_once.keeps == (at_once.ended and not after)


@given(mutated, st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_of_damaged_bytes_gives_the_same_good_part(raw: bytes, places: list[int]) -> None:
    at_once = read([raw])

    assert read(cut(raw, places)) == at_once
    assert read([raw[n : n + 1] for n in range(len(raw))]) == at_once


@given(whole, st.integers(0, 400))
def test_a_response_that_is_broken_off_is_not_whole(raw: bytes, at: int) -> None:
    end = raw.find(b"\r\n\r\n") + 4
    until_the_end = b"chunked" not in raw[:end] and b"content-length" not in raw[:end]
    kept = at % max(len(raw), 1)

    assert read([raw[:kept]]).whole is (until_the_end and kept >= end)


@for_each(
    "raw",
    [
        b"\x16\x03\x01",
        b"HTTP/2",
        b"HTTP/1.1 200 OK\nx: y\n\n",
        b"<html>",
        b"HTTP/1.1" + b"x" * 99999,
    ],
    ids=["tls", "version", "bare lf", "html", "endless"],
)
def test_nobody_waits_for_the_end_of_what_is_no_head(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        Response().feed(raw, [])


def test_a_head_is_bounded_however_it_comes() -> None:
    fields = b"".join(b"x%d: %s\r\n" % (n, b"y" * 1000) for n in range(70))
    assert len(fields) > MAX_HEAD_BYTES

    for pieces in ([HEAD + fields + b"\r\n"], [HEAD, fields], [HEAD + fields[:100], fields[100:]]):
        assert read(pieces).fault


def test_interim_responses_are_bounded() -> None:
    final = HEAD + b"content-length: 0\r\n\r\n"

    assert read([INTERIM * MAX_INTERIM + final]).whole
    assert read([INTERIM * (MAX_INTERIM + 1) + final]).fault
