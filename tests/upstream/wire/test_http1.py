"""Parsing of HTTP/1.1 responses."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamInvalid
from proxy.upstream.wire import http1
from tests.for_each import for_each


def written(*fields: str, line: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{item}\r\n" for item in (line, *fields)).encode("latin-1")


WRONG = {
    "another version": written(line="HTTP/2 200 OK"),
    "lower case": written(line="http/1.1 200 OK"),
    "four digits": written(line="HTTP/1.1 2000"),
    "a status below 100": written(line="HTTP/1.1 099 X"),
    "a space before all": written(line=" HTTP/1.1 200 OK"),
    "a NUL in the reason": written(line="HTTP/1.1 200 O\0K"),
    "a long reason": written(line="HTTP/1.1 200 " + "x" * http1.MAX_LINE_BYTES),
    "a bare CR": written("a: b\rc: d"),
    "a NUL": written("a: b\0"),
    "a fold": written("a: b", " c"),
    "a space before the colon": written("content-length : 5"),
    "no colon": written("content-length 5"),
    "a name that is no token": written("a(b): 5"),
    "too many fields": written(*(f"x{n}: y" for n in range(http1.MAX_FIELDS + 1))),
    "a long line": written("x: " + "y" * http1.MAX_LINE_BYTES),
    "a signed length": written("content-length: +5"),
    "a length of other digits": written("content-length: \u00b2"),
    "a huge length": written("content-length: " + "9" * 19),
    "two lengths": written("content-length: 5", "content-length: 6"),
    "the same length twice": written("content-length: 5", "Content-Length: 5"),
    "length and chunks": written("content-length: 5", "transfer-encoding: chunked"),
    "a coding that was not asked for": written("transfer-encoding: gzip, chunked"),
    "chunks twice": written("transfer-encoding: chunked", "transfer-encoding: chunked"),
    "chunks in HTTP/1.0": written("transfer-encoding: chunked", line="HTTP/1.0 200 OK"),
    "another protocol": written("upgrade: x", "connection: upgrade", line="HTTP/1.1 101 X"),
    "an interim response with a body": written("content-length: 5", line="HTTP/1.1 103 X"),
}


@for_each("raw", [pytest.param(v, id=k) for k, v in WRONG.items()])
def test_ambiguous_message_is_refused(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        http1.parse_head(raw)


def test_header_names_are_lower_case_and_repeats_joined() -> None:
    head = http1.parse_head(written("X-One: 1", "x-one:\t 2 ", "Empty:", "y: ca\u00e9: z"))

    assert head.headers == {"x-one": "1, 2", "empty": "", "y": "ca\u00e9: z"}


FRAMINGS = {
    "length": (("content-length: 007",), "HTTP/1.1 200 OK", 7, False, True),
    "chunks": (("transfer-encoding: Chunked",), "HTTP/1.1 200 OK", None, True, True),
    "until the end": ((), "HTTP/1.1 200", None, False, False),
    "no content": ((), "HTTP/1.1 204 No Content", 0, False, True),
    "no content, but a length": (("content-length: 5",), "HTTP/1.1 204 X", 0, False, False),
    "not modified": (("transfer-encoding: chunked",), "HTTP/1.1 304 X", 0, False, False),
    "closes": (("content-length: 1", "connection: x, Close"), "HTTP/1.1 200 OK", 1, False, False),
    "1.0 closes": (("content-length: 1",), "HTTP/1.0 200 OK", 1, False, False),
    "1.0 keeps": (
        ("content-length: 1", "connection: Keep-Alive"),
        "HTTP/1.0 200 OK",
        1,
        False,
        True,
    ),
}


@for_each(
    ("fields", "line", "length", "chunked", "keeps"),
    [pytest.param(*v, id=k) for k, v in FRAMINGS.items()],
)
def test_head_determines_body_length_and_keepalive(
    fields: tuple[str, ...], line: str, length: int | None, chunked: bool, keeps: bool
) -> None:
    head = http1.parse_head(written(*fields, line=line))

    assert (head.length, head.chunked, head.keeps_alive) == (length, chunked, keeps)


def test_largest_allowed_head_is_read() -> None:
    count = "".join(f"x{n}: y\r\n" for n in range(http1.MAX_FIELDS))
    long = "x: " + "y" * (http1.MAX_LINE_BYTES - 4) + "\r\n"

    assert len(http1.parse_headers(count)) == http1.MAX_FIELDS
    assert len(http1.parse_headers(long)["x"]) == http1.MAX_LINE_BYTES - 4


spaces = st.text(" \t", max_size=3)
names = st.sampled_from(["a", "A", "x-one", "X-One", "set-cookie"])
values = st.sampled_from(["", "1", "a b", "a\tb", ": c", "\u00e9"])


@given(st.lists(st.tuples(names, spaces, values, spaces), max_size=6))
def test_fast_header_parser_equals_the_line_parser(lines: list[tuple[str, str, str, str]]) -> None:
    plain: dict[str, str] = {}
    for name, _, value, _ in lines:
        known_text = name.lower()
        plain[known_text] = f"{plain[known_text]}, {value}" if known_text in plain else value
    text = "".join(
        f"{name}:{text_before}{value}{text_after}\r\n"
        for name, text_before, value, text_after in lines
    )

    assert http1.parse_headers(text) == plain
    assert http1.parse_head(written() + text.encode("latin-1")).headers == plain


@pytest.mark.parametrize("end", ["\n", "\0", ""])
def test_run_of_spaces_takes_linear_time(end: str) -> None:
    """Quadratic time would not finish."""
    line = "x:" + " " * 2**20

    with pytest.raises(UpstreamInvalid):
        http1.parse_headers("\r\n".join([line + end] * 4) + "\r\n")


WRONG_CHUNKS = {
    "no number": b"zz\r\n",
    "a sign": b"+5\r\nhello\r\n",
    "an underscore": b"1_0\r\n",
    "a space behind": b"5 \r\nhello\r\n",
    "a bare LF": b"5\nhello\r\n",
    "too many digits": b"0" * 16 + b"5\r\nhello\r\n",
    "less than it said": b"6\r\nhello\r\n0\r\n\r\n",
    "an extension with a NUL": b"5;a=\0\r\nhello\r\n",
    "a long extension": b"5;" + b"a" * http1.MAX_LINE_BYTES + b"\r\nhello\r\n",
    "a long unfinished extension": b"5;" + b"a" * http1.MAX_LINE_BYTES,
    "a trailer that is none": b"0\r\nno trailer\r\n\r\n",
    "endless trailers": b"0\r\n" + b"a: b\r\n" * http1.MAX_LINE_BYTES,
}


@for_each("wrong", [pytest.param(v, id=k) for k, v in WRONG_CHUNKS.items()])
def test_invalid_chunk_keeps_the_data_before_it(wrong: bytes) -> None:
    body, pieces = http1.ChunkedBodyParser(), list[bytes]()

    with pytest.raises(UpstreamInvalid):
        body.feed(b"4\r\ngood\r\n" + wrong, pieces)

    assert pieces[0] == b"good"
    assert not body.is_complete


def test_chunk_extensions_and_trailers_are_discarded() -> None:
    body, pieces = http1.ChunkedBodyParser(), list[bytes]()

    body.feed(b'5;a="b" ; c\r\nhello\r\nA ;x\r\n0123456789\r\n00\r\nx: y\r\nz:\r\n\r\n', pieces)

    assert (pieces, body.is_complete, body.has_surplus) == ([b"hello", b"0123456789"], True, False)


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (http1.PlainBodyParser(2), b"okEXTRA"),
        (http1.ChunkedBodyParser(), b"2\r\nok\r\n0\r\n\r\nEXTRA"),
    ],
    ids=["counted", "chunked"],
)
def test_bytes_after_end_are_not_body(
    body: http1.PlainBodyParser | http1.ChunkedBodyParser, data: bytes
) -> None:
    pieces: list[bytes] = []

    body.feed(data, pieces)

    assert (pieces, body.is_complete, body.has_surplus) == ([b"ok"], True, True)


def test_close_completes_only_bodies_without_length() -> None:
    pieces: list[bytes] = []
    bodies = (http1.PlainBodyParser(3), http1.ChunkedBodyParser(), http1.PlainBodyParser(None))
    for body in bodies[::2]:
        body.feed(b"ab", pieces)
    bodies[1].feed(b"5\r\nab", pieces)

    assert [body.feed_eof() for body in bodies] == [False, False, True]
    assert [body.is_complete for body in bodies] == [False, False, True]


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
    is_complete: bool


def read(pieces: list[bytes]) -> Read:
    response, body, fault = http1.ResponseParser(), list[bytes](), False
    for piece in pieces:
        try:
            response.feed(piece, body)
        except UpstreamInvalid:
            fault = True
            break
    values = (
        response.head,
        b"".join(body),
        fault,
        response.is_complete,
        response.can_reuse_connection,
    )
    return Read(*values, is_complete=not fault and response.feed_eof())


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
complete_response = st.one_of(chunked, counted, until_close)
interim = st.integers(0, 3).map(lambda count: INTERIM * count)
surplus = st.sampled_from([b"", b"EXTRA", b"\r\n", HEAD])
mutated = st.builds(
    lambda raw, at, junk: raw[: at % (len(raw) + 1)] + junk + raw[at % (len(raw) + 1) + 1 :],
    complete_response,
    st.integers(0, 200),
    st.binary(max_size=3),
)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[a:b] for a, b in pairwise(edges)]


@given(interim, complete_response, surplus, st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_gives_the_same_response(
    before: bytes, raw: bytes, after: bytes, places: list[int]
) -> None:
    sent_data = before + raw + after

    at_once = read([sent_data])

    assert read(cut(sent_data, places)) == at_once
    assert read([sent_data[n : n + 1] for n in range(len(sent_data))]) == at_once
    assert at_once.head is not None
    assert not at_once.fault
    assert at_once.keeps == (at_once.ended and not after)


@given(mutated, st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_of_damaged_bytes_gives_the_same_prefix(raw: bytes, places: list[int]) -> None:
    at_once = read([raw])

    assert read(cut(raw, places)) == at_once
    assert read([raw[n : n + 1] for n in range(len(raw))]) == at_once


@given(complete_response, st.integers(0, 400))
def test_truncated_response_is_incomplete(raw: bytes, at: int) -> None:
    end = raw.find(b"\r\n\r\n") + 4
    until_the_end = b"chunked" not in raw[:end] and b"content-length" not in raw[:end]
    stored_count = at % max(len(raw), 1)

    assert read([raw[:stored_count]]).is_complete is (until_the_end and stored_count >= end)


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
def test_invalid_head_fails_before_its_end(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        http1.ResponseParser().feed(raw, [])


def test_head_is_bounded_at_any_cut() -> None:
    fields = b"".join(b"x%d: %s\r\n" % (n, b"y" * 1000) for n in range(70))
    assert len(fields) > http1.MAX_HEAD_BYTES

    for pieces in ([HEAD + fields + b"\r\n"], [HEAD, fields], [HEAD + fields[:100], fields[100:]]):
        assert read(pieces).fault


def test_interim_responses_are_bounded() -> None:
    final = HEAD + b"content-length: 0\r\n\r\n"

    assert read([INTERIM * http1.MAX_INTERIM_RESPONSES + final]).is_complete
    assert read([INTERIM * (http1.MAX_INTERIM_RESPONSES + 1) + final]).fault
