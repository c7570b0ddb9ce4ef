"""Request bodies are read strictly: what two readers could read differently is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.dialects.wire.request_json import read_json
from proxy.errors import BadRequest
from proxy.runtime.offload import LARGE_BYTES
from tests.for_each import for_each

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
JSON_TEXTS = st.dictionaries(st.text(), JSON_VALUES).map(
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        errors="surrogatepass"
    )
)
PARTS = [b"{", b"}", b"[", b"]", b":", b",", b'"a"', b'"\\u0061"', b"1", b"1.0", b"NaN", b'{"a":']
REFUSED = {
    "two of a name": b'{"a": 1, "a": 2}',
    "two of a name, escaped": b'{"messages": 1, "m\\u0065ssages": 2}',
    "two of a name, deep": b'{"a": [{"b": 1, "b": 1}]}',
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "a number beyond floats": b'{"a": 1e999999}',
    "an integer beyond 64 bits": b'{"a": 123456789012345678901234567890}',
    "ten thousand digits": b'{"a": ' + b"1" * 10_000 + b"}",
    "a lone surrogate": b'{"a": "\\ud800"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "broken UTF-8": b'{"a": "\xff"}',
    "too deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "two documents": b"{} {}",
    "an array": b"[]",
    "nothing": b"",
}


@for_each("raw", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_json(raw)


def read_outcome(raw: bytes) -> str:
    try:
        return repr(read_json(raw))
    except BadRequest as refused:
        return f"refused: {refused}"


@example(b'{"a":1,"a":1}')
@example(b'{"a":{"b":1,"b":2}}')
@example(b'{"a":123456789012345678901234567890}')
@example(b'{"a":-0.0,"b":1e400}')
@example(b'{"a":' + b"[" * 300 + b"]" * 300 + b"}")
@given(st.one_of(JSON_TEXTS, st.lists(st.sampled_from(PARTS)).map(b"".join)))
def test_what_is_written_as_we_write_it_is_read_as_anything_else(raw: bytes) -> None:
    item, other_item = (read_outcome(data).partition(" (line") for data in (raw, raw + b" "))
    assert item[:2] == other_item[:2]  # so we write nothing


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b'{"a": 1,}', " (line 1, column 9)."), (b'{\n "a" 1}', " (line 2, column 6).")],
)
def test_a_client_is_told_where_a_small_body_stops_being_json(raw: bytes, place: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_json(raw)
    assert str(refused.value) == f"The body is not valid JSON in UTF-8{place}"

    with pytest.raises(BadRequest, match=r"^The body is not valid JSON in UTF-8\.$"):
        read_json(raw + b" " * LARGE_BYTES)


VALID_JSON = {
    "an integer beyond 64 bits": "does not fit in 64 bits",
    "a lone surrogate": "an unpaired surrogate",
    "300 levels": "more than 254 levels",
    "too deep": "more than 254 levels",
}


@for_each("size", [0, LARGE_BYTES], ids=["small", "large"])
@for_each("name", VALID_JSON)
def test_what_is_json_and_refused_is_told_for_what_it_is(name: str, size: int) -> None:
    raw = {**REFUSED, "300 levels": b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}"}[name]

    with pytest.raises(BadRequest, match=VALID_JSON[name]):
        read_json(raw + b" " * size)


def test_values_keep_what_they_are() -> None:
    raw = b'{"a": 9223372036854775807, "b": 1.0, "c": "\xc3\xa9", "d": [true, null]}'

    assert read_json(raw) == {"a": 2**63 - 1, "b": 1.0, "c": "é", "d": [True, None]}


def test_values_are_bounded_where_a_bound_is_told() -> None:
    raw = json.dumps({"a": [1, {"b": "2, 3, [4"}]}).encode()

    assert read_json(raw, 5) == read_json(raw)
    with pytest.raises(BadRequest, match="more than 4 JSON values"):
        read_json(raw, 4)
