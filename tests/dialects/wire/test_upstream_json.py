"""Large upstream documents are read like small ones and within the same bounds."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.dialects.wire.large_json import LargeJsonReader, ValueBudget, decode_large_utf8
from proxy.dialects.wire.strict_json import (
    LOGPROBS_FACTOR,
    DocumentBuffer,
    DocumentParser,
    _response_decoder,
    count_body_values,
    read_json,
)
from proxy.errors import BadRequest, ResponseTooLarge, UpstreamError, UpstreamInvalid
from proxy.runtime.fair_queue import LARGE_BYTES
from tests.dialects.wire.test_large_json import DOCUMENTS, SIZES, VALUES
from tests.for_each import for_each

PADDING = {"pad": "x" * LARGE_BYTES}
NUMBERS = st.lists(st.integers(-(2**63), 2**64 - 1) | st.floats(-1e9, 1e9), min_size=1, max_size=40)
STRANGE = {
    "two of a name": '{"a": 1, "b": 2, "a": 3}',
    "a great integer": "123456789012345678901234567890",
    "a great negative integer": "-9223372036854775809",
    "the greatest integer": "18446744073709551615",
    "one more": "18446744073709551616",
    "beyond floats": "1e999",
    "an integer beyond floats": "9" * 400,
    "a lone surrogate": '"\\ud800"',
    "NaN": "NaN",
    "a trailing comma": "[1,]",
    "a control character": '"\x01"',
    "minus nothing": "-0",
    "254 deep": "[" * 252 + "]" * 252,
    "255 deep": "[" * 254 + "]" * 254,
    "deep enough for C": "[" * 2000 + "]" * 2000,
    "cut": '{"a": [1, 2',
}


def read_outcome(raw: bytes) -> tuple[Any, str]:
    """Return the document without its padding, or the error code."""
    try:
        document = DocumentParser().read(raw)
    except UpstreamError as error:
        return None, error.code
    document.pop("pad", None)
    return repr(document), ""


def padded(raw: bytes) -> bytes:
    return orjson.dumps(PADDING)[:-1] + b"," + raw[1:]


def assert_read_alike(value: str) -> None:
    raw = f'{{"value": {value}}}'.encode("utf-8", "surrogatepass")
    assert read_outcome(padded(raw)) == read_outcome(raw)


@for_each("value", STRANGE.values(), ids=STRANGE.keys())
def test_unusual_json_is_read_alike(value: str) -> None:
    assert_read_alike(value)


@given(DOCUMENTS | st.builds(lambda v, asc: json.dumps(v, ensure_ascii=asc), VALUES, st.booleans()))
def test_any_text_is_read_or_refused_alike(text: str) -> None:
    assert_read_alike(text)


@given(st.dictionaries(st.text(max_size=3), VALUES | NUMBERS | st.lists(NUMBERS)), SIZES)
def test_unparsed_numbers_are_written_unchanged(value: Any, size: int) -> None:
    raw = json.dumps(value).encode()
    text = decode_large_utf8(raw, size)
    reader = LargeJsonReader(text, _response_decoder, size, ValueBudget(10**9))

    assert orjson.loads(orjson.dumps(reader.read())) == orjson.loads(raw)


@pytest.mark.parametrize("text", ["[1,]", "[1,,2]", "[,1]", "[1 2]", "[01]", "[1,\n]", "[-]", "[1"])
@given(size=SIZES)
def test_invalid_unparsed_numbers_are_not_written(text: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"value|document"):
        LargeJsonReader(text, _response_decoder, size, ValueBudget(10**9)).read()


def vectors(count: int, numbers: list[float], **options: Any) -> bytes:
    item = {"object": "embedding", "index": 0, "embedding": numbers, **options}
    return orjson.dumps({"object": "list", "data": [item] * count})


def test_numbers_of_vectors_are_neither_counted_nor_parsed() -> None:
    raw = vectors(100, [0.123456789] * 3072)

    document = DocumentParser(max_values=1000, allows_vectors=True).read(raw)

    assert isinstance(document["data"][99]["embedding"], orjson.Fragment)
    assert orjson.dumps(document) == raw


@pytest.mark.parametrize("extra", ["x", [[]] * 20, {"a": [1, "x"]}])
def test_values_next_to_vectors_are_counted(extra: Any) -> None:
    raw = vectors(300, [0.123456789] * 300, beside=extra)

    with pytest.raises(ResponseTooLarge):
        DocumentParser(max_values=1000, allows_vectors=True).read(raw)


@for_each("large", [False, True])
@for_each(
    ("values", "logprobs", "good"),
    [
        (990, 0, True),
        (1000, 0, False),
        (900, 1000 * LOGPROBS_FACTOR - 1000, True),
        (0, 1000 * LOGPROBS_FACTOR - 20, True),
        (0, 1000 * LOGPROBS_FACTOR, False),
        (1000, 1000, False),
    ],
)
def test_logprobs_have_higher_bound(values: int, logprobs: int, *, good: bool, large: bool) -> None:
    choice = {"index": 0, "logprobs": {"content": [1] * logprobs}}
    raw = orjson.dumps({"choices": [choice], "more": [1] * values})
    raw = padded(raw) if large else raw

    if good:
        assert DocumentParser(1000).read(raw)
    else:
        with pytest.raises(ResponseTooLarge, match="max_answer_values"):
            DocumentParser(1000).read(raw)


@for_each("raw", [b"[]", b"1", b"null", b'"x"', b""])
def test_document_must_be_an_object(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        DocumentParser().read(raw)


def test_document_of_pieces_is_bounded_and_taken_once() -> None:
    body = DocumentBuffer(4)

    assert [*body.feed(b"ab"), *body.feed(b"cd")] == []
    with pytest.raises(ResponseTooLarge):
        body.feed(b"e")
    (document,) = body.close()
    assert body.pop_document(document) == b"abcd"
    assert body.close() == [b""]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
JSON_TEXTS = st.dictionaries(st.text(), JSON_VALUES).map(
    lambda value: COMPACT.encode(value).encode(errors="surrogatepass")
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
def test_invalid_document_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        read_json(raw)


def outcome_of_request(raw: bytes) -> str:
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
def test_compact_json_is_validated_like_any_other(raw: bytes) -> None:
    item, other_item = (outcome_of_request(data).partition(" (line") for data in (raw, raw + b" "))
    assert item[:2] == other_item[:2]  # nothing is rewritten


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b'{"a": 1,}', " (line 1, column 9)."), (b'{\n "a" 1}', " (line 2, column 6).")],
)
def test_error_of_a_small_body_has_a_position(raw: bytes, place: str) -> None:
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
def test_refused_valid_json_is_not_called_invalid(name: str, size: int) -> None:
    raw = {**REFUSED, "300 levels": b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}"}[name]

    with pytest.raises(BadRequest, match=VALID_JSON[name]):
        read_json(raw + b" " * size)


def test_number_of_values_is_bounded() -> None:
    raw = json.dumps({"a": [1, {"b": "2, 3, [4"}]}).encode()

    assert count_body_values(raw, 5) == 5
    with pytest.raises(BadRequest, match="more than 4 JSON values"):
        count_body_values(raw, 4)
