"""The head of a response is read as the standard says, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamInvalid
from proxy.upstream.wire.head import MAX_FIELDS, MAX_LINE_BYTES, read_fields, read_head
from tests.for_each import for_each


def written(*fields: str, line: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{each}\r\n" for each in (line, *fields)).encode("latin-1")


WRONG = {
    "another version": written(line="HTTP/2 200 OK"),
    "a version of the future": written(line="HTTP/1.2 200 OK"),
    "lower case": written(line="http/1.1 200 OK"),
    "two digits": written(line="HTTP/1.1 20 OK"),
    "four digits": written(line="HTTP/1.1 2000"),
    "a status below 100": written(line="HTTP/1.1 099 X"),
    "two spaces": written(line="HTTP/1.1  200 OK"),
    "a space before all": written(line=" HTTP/1.1 200 OK"),
    "a NUL in the reason": written(line="HTTP/1.1 200 O\0K"),
    "a bare CR in the reason": written(line="HTTP/1.1 200 O\rK"),
    "a long reason": written(line="HTTP/1.1 200 " + "x" * MAX_LINE_BYTES),
    "a bare LF": b"HTTP/1.1 200 OK\r\na: b\nc: d\r\n",
    "a bare CR": written("a: b\rc: d"),
    "a NUL": written("a: b\0"),
    "a fold": written("a: b", " c"),
    "a space before the colon": written("content-length : 5"),
    "a space before the name": written("a: b", " content-length: 5"),
    "no colon": written("content-length 5"),
    "no name": written(": 5"),
    "a name that is no token": written("a(b): 5"),
    "too many fields": written(*(f"x{n}: y" for n in range(MAX_FIELDS + 1))),
    "a long line": written("x: " + "y" * MAX_LINE_BYTES),
    "a negative length": written("content-length: -1"),
    "a signed length": written("content-length: +5"),
    "a hexadecimal length": written("content-length: 0x5"),
    "a length of words": written("content-length: five"),
    "a length of other digits": written("content-length: \u00b2"),
    "an empty length": written("content-length:"),
    "a huge length": written("content-length: " + "9" * 19),
    "two lengths": written("content-length: 5", "content-length: 6"),
    "the same length twice": written("content-length: 5", "Content-Length: 5"),
    "a list of lengths": written("content-length: 5, 5"),
    "length and chunks": written("content-length: 5", "transfer-encoding: chunked"),
    "a coding that was not asked for": written("transfer-encoding: gzip, chunked"),
    "chunks inside": written("transfer-encoding: chunked, gzip"),
    "chunks twice": written("transfer-encoding: chunked", "transfer-encoding: chunked"),
    "identity": written("transfer-encoding: identity"),
    "chunks in HTTP/1.0": written("transfer-encoding: chunked", line="HTTP/1.0 200 OK"),
    "another protocol": written("upgrade: x", "connection: upgrade", line="HTTP/1.1 101 X"),
    "an interim response with a body": written("content-length: 5", line="HTTP/1.1 103 X"),
}


@for_each("raw", [pytest.param(v, id=k) for k, v in WRONG.items()])
def test_what_could_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        read_head(raw)


def test_names_are_in_lower_case_and_repeats_are_joined() -> None:
    head = read_head(written("X-One: 1", "x-one:\t 2 ", "Empty:", "y: ca\u00e9: z"))

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
def test_the_head_says_where_the_body_ends_and_whether_the_connection_stays(
    fields: tuple[str, ...], line: str, length: int | None, chunked: bool, keeps: bool
) -> None:
    head = read_head(written(*fields, line=line))

    assert (head.length, head.chunked, head.keeps) == (length, chunked, keeps)


def test_as_many_fields_and_as_long_a_line_as_allowed_are_read() -> None:
    many = "".join(f"x{n}: y\r\n" for n in range(MAX_FIELDS))
    long = "x: " + "y" * (MAX_LINE_BYTES - 4) + "\r\n"

    assert len(read_fields(many)) == MAX_FIELDS
    assert len(read_fields(long)["x"]) == MAX_LINE_BYTES - 4


spaces = st.text(" \t", max_size=3)
names = st.sampled_from(["a", "A", "x-one", "X-One", "set-cookie"])
values = st.sampled_from(["", "1", "a b", "a\tb", ": c", "\u00e9"])


@given(st.lists(st.tuples(names, spaces, values, spaces), max_size=6))
def test_fields_are_read_as_if_one_by_one(lines: list[tuple[str, str, str, str]]) -> None:
    plain: dict[str, str] = {}
    for name, _, value, _ in lines:
        known = name.lower()
        plain[known] = f"{plain[known]}, {value}" if known in plain else value
    text = "".join(f"{name}:{before}{value}{after}\r\n" for name, before, value, after in lines)

    assert read_fields(text) == plain
    assert read_head(written() + text.encode("latin-1")).headers == plain


@pytest.mark.parametrize("end", ["\n", "\0", ""])
def test_a_run_of_spaces_is_gone_through_once(end: str) -> None:
    """Twice would be squared: this would not come to an end."""
    line = "x:" + " " * 2**20

    with pytest.raises(UpstreamInvalid):
        read_fields("\r\n".join([line + end] * 4) + "\r\n")
