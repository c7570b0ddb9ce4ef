"""Reading and writing JSON in pieces gives the same bytes as the C parsers."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.wire import large_json, strict_json
from proxy.dialects.wire.large_json import (
    MAX_DEPTH,
    LargeJsonReader,
    decode_large_utf8,
    serialize_large,
    serialize_to_pieces,
    trim_incomplete_escape,
)
from proxy.dialects.wire.strict_json import count_parsed_values, count_values_up_to
from proxy.errors import BadRequest
from proxy.runtime.fair_queue import LARGE_BYTES
from tests.for_each import for_each

SIZES = st.integers(12, 40)  # large enough for a pair of escapes
TEXTS = st.text(st.sampled_from('a"\\/\n\t\x01\x7fé漢😀 u0d8\u2028'), max_size=60) | st.text()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)
MARKS = st.text(st.sampled_from(' \n{}[],:"\\ud83de00b1.-+eEtrufalsn0aé'), max_size=40)
BROKEN = st.sampled_from(['"\\', '"\\u', '"\\ud83d', '"a\n"', "01", "1.", "-", ".5", "1e", "[1,]"])
DOCUMENTS = MARKS | BROKEN | st.tuples(MARKS, VALUES.map(json.dumps), MARKS).map("".join)


def read_in_pieces(raw: bytes, size: int) -> Any:
    return LargeJsonReader(decode_large_utf8(raw, size), strict_json._request_decoder, size).read()


def read_outcome(read: Any, *requests: Any) -> Any:
    try:
        full_value = read(*requests)
        orjson.dumps(full_value)
    except (ValueError, TypeError, RecursionError, BadRequest):
        return None
    return repr(full_value)


def assert_read_alike(raw: bytes, size: int) -> None:
    whole = read_outcome(strict_json._parse_small_body, raw)
    assert read_outcome(read_in_pieces, raw, size) == whole


@given(VALUES, SIZES)
def test_pieces_are_written_as_by_the_c_writer(value: Any, size: int) -> None:
    assert b"".join(serialize_to_pieces(value, size)) == orjson.dumps(value)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), SIZES)
def test_pieces_are_read_as_by_the_c_reader(value: Any, asc: bool, indent: int, size: int) -> None:
    text = json.dumps(value, ensure_ascii=asc, indent=indent)
    assert_read_alike(text.encode("utf-8", "surrogatepass"), size)


@given(DOCUMENTS, st.binary(max_size=60), SIZES)
def test_invalid_json_and_utf_8_are_refused_alike(text: str, data: bytes, size: int) -> None:
    assert_read_alike(text.encode("utf-8", "surrogatepass"), size)
    assert_read_alike(b'{"a": "' + data + b'"}', size)


@given(st.lists(st.sampled_from(["\\\\", "\\u0061", "\\ud83d\\ude00", '\\"', "\\n", "é", "ud83d"])))
def test_piece_ends_between_two_characters(marks: list[str]) -> None:
    text, ends = "".join(marks), {0, *accumulate(map(len, marks))}
    # Positions outside escapes.
    plain = {index for index in range(len(text)) if text[index] in "ud83"}

    for index in range(len(text) + 1):
        stored_text = trim_incomplete_escape(text[:index])
        assert len(stored_text) in ends | plain
        assert index - len(stored_text) < 12


@pytest.mark.parametrize("of", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_allowed_depth_is_that_of_the_c_writer(of: Any) -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = of(value)

    assert serialize_large(value) == orjson.dumps(value)
    assert read_in_pieces(orjson.dumps(value), 64) == value
    deeper = of(value)
    for write in (serialize_large, orjson.dumps):
        with pytest.raises(TypeError):
            write(deeper)
    with pytest.raises((ValueError, TypeError)):
        serialize_large(read_in_pieces(json.dumps(deeper).encode(), 64))
    with pytest.raises(BadRequest):
        strict_json.read_json(json.dumps([deeper, "x" * LARGE_BYTES]).encode())


@for_each("value", ["\ud800", {"\udfff": 1}, [2**64], {1: 2}])
def test_unserializable_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        serialize_large(value)


LONG = 300_000
LARGE = {
    "letters": "a" * LONG,
    "line ends": "\n" * LONG,
    "mixed": "aaa漢😀" * (LONG // 5),
    "backslashes": "\\" * LONG,
    "quotes": '"' * LONG,
    "emoji": "😀" * LONG,
}


@for_each("asc", [True, False])
@for_each("name", LARGE)
def test_large_body_survives_a_round_trip(name: str, asc: bool) -> None:
    body = {"prompt": LARGE[name], "more": [LARGE[name][:1000]] * 300, LARGE[name]: None}
    raw = json.dumps(body, ensure_ascii=asc).encode()

    assert len(raw) > LARGE_BYTES
    assert strict_json.read_json(raw) == body
    assert serialize_large(body) == orjson.dumps(body)


@for_each("name", LARGE)
def test_size_of_pieces_is_bounded(name: str) -> None:
    body = {"prompt": LARGE[name], LARGE[name]: LARGE[name]}

    written = serialize_to_pieces(body)

    assert max(map(len, written)) <= 6 * large_json.PIECE_BYTES
    assert sum(map(len, written)) > 3 * LONG


SHORT_VALUES = {
    "names": {f"n{number}": 1 for number in range(30_000)},
    "texts": ["ab cd\n"] * 30_000,
    "empty objects": [{}] * 30_000,
}


@pytest.mark.parametrize("name", SHORT_VALUES)
def test_short_values_share_a_piece(name: str) -> None:
    full_body = orjson.dumps(SHORT_VALUES[name])

    written = serialize_to_pieces(SHORT_VALUES[name])

    assert b"".join(written) == full_body
    assert len(written) <= len(full_body) // large_json.PIECE_BYTES + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('",[{}]:\\ab\n', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",\\[{a'), inner),
)


def exactly(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(exactly(item) for item in value.values())
    return 1 + sum(exactly(item) for item in value) if isinstance(value, list) else 1


@given(JSON, st.integers(1, 9))
def test_values_are_counted_while_reading(value: object, piece: int) -> None:
    raw = json.dumps(value).encode()
    exact = exactly(json.loads(raw))

    assert count_parsed_values(json.loads(raw)) == exact
    for size in (piece, 64 * 1024):
        assert count_values_up_to(raw, exact, size) == exact
        if exact > 1:
            assert count_values_up_to(raw, exact - 1, size) > exact - 1


def test_counting_stops_at_the_bound_and_is_not_recursive() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert count_parsed_values(deep) == 100_001
    assert 10 < count_values_up_to(b"[" + b"1," * 1_000_000, 10) < 100_000
