"""A large document of an upstream is read as a small one is, and both within the same bounds."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.wire.large_json import PieceReader, decode_pieces
from proxy.dialects.wire.upstream_json import (
    LOGPROBS_TIMES,
    Documents,
    GatheredDocument,
    ValueAllowance,
    _decoder,
)
from proxy.errors import ResponseTooLarge, UpstreamError, UpstreamInvalid
from proxy.runtime.offload import LARGE_BYTES
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


def read_outcome(documents: Documents, raw: bytes) -> tuple[Any, str]:
    """Return what is read, without what made it large, and the code where it is refused."""
    try:
        document = documents.read(raw)
    except UpstreamError as error:
        return None, error.code
    document.pop("pad", None)
    return repr(document), ""


def small_and_large(value: str) -> tuple[bytes, bytes]:
    raw = f'{{"value": {value}}}'.encode("utf-8", "surrogatepass")
    return raw, orjson.dumps(PADDING)[:-1] + b"," + raw[1:]


@for_each("value", STRANGE.values(), ids=STRANGE.keys())
def test_strange_json_is_read_alike(value: str) -> None:
    small, large = small_and_large(value)

    assert read_outcome(Documents(), large) == read_outcome(Documents(), small)


@given(
    DOCUMENTS | st.builds(lambda v, plain: json.dumps(v, ensure_ascii=plain), VALUES, st.booleans())
)
def test_any_text_is_read_or_refused_alike(text: str) -> None:
    small, large = small_and_large(text)

    assert read_outcome(Documents(), large) == read_outcome(Documents(), small)


@given(st.dictionaries(st.text(max_size=3), VALUES | NUMBERS | st.lists(NUMBERS)), SIZES)
def test_numbers_that_are_not_made_are_written_as_they_came(value: Any, size: int) -> None:
    raw = json.dumps(value).encode()
    reader = PieceReader(decode_pieces(raw, size), _decoder, size, ValueAllowance(10**9))

    assert orjson.loads(orjson.dumps(reader.read())) == orjson.loads(raw)


@pytest.mark.parametrize("text", ["[1,]", "[1,,2]", "[,1]", "[1 2]", "[01]", "[1,\n]", "[-]", "[1"])
@given(size=SIZES)
def test_what_is_no_list_of_numbers_is_not_written(text: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"value|document"):
        PieceReader(text, _decoder, size, ValueAllowance(10**9)).read()


def vectors(count: int, numbers: list[float], **options: Any) -> bytes:
    item = {"object": "embedding", "index": 0, "embedding": numbers, **options}
    return orjson.dumps({"object": "list", "data": [item] * count})


def test_numbers_of_vectors_do_not_count_and_are_not_made() -> None:
    raw = vectors(100, [0.123456789] * 3072)

    document = Documents(most_values=1000, vectors=True).read(raw)

    assert isinstance(document["data"][99]["embedding"], orjson.Fragment)
    assert orjson.dumps(document) == raw


@pytest.mark.parametrize("extra", ["x", [[]] * 20, {"a": [1, "x"]}])
def test_all_else_beside_vectors_counts(extra: Any) -> None:
    raw = vectors(300, [0.123456789] * 300, beside=extra)

    with pytest.raises(ResponseTooLarge):
        Documents(most_values=1000, vectors=True).read(raw)


def answer(values: int, logprobs: int) -> bytes:
    choice = {"index": 0, "logprobs": {"content": [1] * logprobs}}
    return orjson.dumps({"choices": [choice], "more": [1] * values})


@for_each("large", [False, True])
@for_each(
    ("values", "logprobs", "good"),
    [
        (990, 0, True),
        (1000, 0, False),
        (900, 1000 * LOGPROBS_TIMES - 1000, True),
        (0, 1000 * LOGPROBS_TIMES - 20, True),
        (0, 1000 * LOGPROBS_TIMES, False),
        (1000, 1000, False),
    ],
)
def test_more_logprobs_pass(values: int, logprobs: int, *, good: bool, large: bool) -> None:
    raw = answer(values, logprobs)
    raw = orjson.dumps(PADDING)[:-1] + b"," + raw[1:] if large else raw

    if good:
        assert Documents(1000).read(raw)
    else:
        with pytest.raises(ResponseTooLarge, match="max_answer_values"):
            Documents(1000).read(raw)


@for_each("raw", [b"[]", b"1", b"null", b'"x"', b""])
def test_only_an_object_is_a_document(raw: bytes) -> None:
    with pytest.raises(UpstreamInvalid):
        Documents().read(raw)


def test_pieces_make_a_document_that_is_taken_once() -> None:
    body = GatheredDocument(4)

    assert [*body.feed(b"ab"), *body.feed(b"cd")] == []
    (document,) = body.close()
    assert body.taken(document) == b"abcd"
    assert body.close() == [b""]


def test_more_than_the_limit_is_refused() -> None:
    body = GatheredDocument(3)
    body.feed(b"abc")

    with pytest.raises(ResponseTooLarge):
        body.feed(b"d")
