"""Request bodies are read strictly: what two readers could read differently is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.strict import check_values, read_json
from proxy.errors import BadRequest

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


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_json(raw)


def test_values_keep_what_they_are() -> None:
    raw = b'{"a": 9223372036854775807, "b": 1.0, "c": "\xc3\xa9", "d": [true, null]}'

    assert read_json(raw) == {"a": 2**63 - 1, "b": 1.0, "c": "é", "d": [True, None]}


def values_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(values_of(each) for each in value.values())
    return 1 + sum(values_of(each) for each in value) if isinstance(value, list) else 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('",[{}]:\\ab\n', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",\\[{a'), inner),
)


@given(st.dictionaries(st.text(), JSON), st.integers(1, 9))
def test_values_are_counted_as_they_are_read(whole: dict[str, object], piece: int) -> None:
    raw = json.dumps(whole).encode()
    exact = values_of(json.loads(raw))

    for size in (piece, 64 * 1024):
        check_values(raw, exact, size)
        if exact > 1:
            with pytest.raises(BadRequest, match="more than"):
                check_values(raw, exact - 1, size)
