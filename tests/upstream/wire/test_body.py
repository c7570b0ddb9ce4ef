"""Bodies in chunks: what is not exactly a chunk ends the answer, and what came before stays."""

from __future__ import annotations

import pytest

from proxy.errors import UpstreamInvalid
from proxy.upstream.wire.body import Chunked, FixedLength, UntilClose
from proxy.upstream.wire.head import MAX_LINE_BYTES
from tests.for_each import for_each

WRONG = {
    "no number": b"zz\r\n",
    "nothing": b"\r\n",
    "a sign": b"+5\r\nhello\r\n",
    "a minus": b"-5\r\nhello\r\n",
    "a prefix": b"0x5\r\nhello\r\n",
    "an underscore": b"1_0\r\n",
    "a space before": b" 5\r\nhello\r\n",
    "a space behind": b"5 \r\nhello\r\n",
    "a bare LF": b"5\nhello\r\n",
    "too many digits": b"0" * 16 + b"5\r\nhello\r\n",
    "more than it said": b"4\r\nhello\r\n",
    "less than it said": b"6\r\nhello\r\n0\r\n\r\n",
    "no line end": b"5\r\nhello0\r\n\r\n",
    "an extension with a NUL": b"5;a=\0\r\nhello\r\n",
    "an extension with a bare CR": b"5;a=\rb\r\nhello\r\n",
    "a long extension": b"5;" + b"a" * MAX_LINE_BYTES + b"\r\nhello\r\n",
    "a long unfinished extension": b"5;" + b"a" * MAX_LINE_BYTES,
    "a trailer that is none": b"0\r\nno trailer\r\n\r\n",
    "a folded trailer": b"0\r\na: b\r\n c\r\n\r\n",
    "endless trailers": b"0\r\n" + b"a: b\r\n" * MAX_LINE_BYTES,
}


@for_each("wrong", [pytest.param(v, id=k) for k, v in WRONG.items()])
def test_a_wrong_chunk_ends_the_body_but_not_what_came_before_it(wrong: bytes) -> None:
    body, pieces = Chunked(), list[bytes]()

    with pytest.raises(UpstreamInvalid):
        body.feed(b"4\r\ngood\r\n" + wrong, pieces)

    assert pieces[0] == b"good"
    assert not body.ended


def test_extensions_and_trailers_are_thrown_away() -> None:
    body, pieces = Chunked(), list[bytes]()

    body.feed(b'5;a="b" ; c\r\nhello\r\nA ;x\r\n0123456789\r\n00\r\nx: y\r\nz:\r\n\r\n', pieces)

    assert (pieces, body.ended, body.surplus) == ([b"hello", b"0123456789"], True, False)


@pytest.mark.parametrize(
    ("body", "data"),
    [(FixedLength(2), b"okEXTRA"), (Chunked(), b"2\r\nok\r\n0\r\n\r\nEXTRA")],
    ids=["counted", "chunked"],
)
def test_bytes_after_end_are_not_body(body: FixedLength | Chunked, data: bytes) -> None:
    pieces: list[bytes] = []

    body.feed(data, pieces)

    assert (pieces, body.ended, body.surplus) == ([b"ok"], True, True)


def test_only_a_body_without_a_known_end_is_whole_when_the_connection_ends() -> None:
    pieces: list[bytes] = []
    bodies = (FixedLength(3), Chunked(), UntilClose())
    for body in bodies[::2]:
        body.feed(b"ab", pieces)
    bodies[1].feed(b"5\r\nab", pieces)

    assert [body.close() for body in bodies] == [False, False, True]
    assert [body.ended for body in bodies] == [False, False, True]
