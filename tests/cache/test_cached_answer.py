"""Stored bytes give the same response, and anything else is a miss."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.cached_answer import (
    COMPRESSED_VERSION,
    MAX_DECODED_ANSWERS,
    MAX_DECODED_BYTES,
    MAX_PLAIN_BYTES,
    PLAIN_VERSION,
    AnswerMetadata,
    CachedAnswer,
    DecodedAnswers,
    decompress_answer,
    parse_answer,
    replace_echoed_user_fields,
    serialize_answer,
)
from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, find_client_family
from proxy.dialects.family import WriteOptions
from proxy.errors import UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, Json, RequestHead
from proxy.types.events import Frame, ResponseStart
from proxy.types.guard import GuardResult
from tests.doubles import chat_events, legacy_completion
from tests.for_each import for_each
from tests.golden.pipeline import CLIENTS, call_of

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
METADATA = AnswerMetadata(1e9, True, "openai", "gpt-4o-mini", Tokens(input=5, output=3), "chat")
BODY_METADATA = replace(METADATA, streamed=False)
LINES = [orjson.dumps(event) for event in chat_events(" Par", "is.")]
VALUE = serialize_answer(KEY, METADATA, LINES)
ROOM = 10_000


def read(value: bytes, call: Call = call_of("chat")) -> CachedAnswer | None:  # noqa: B008
    """Decode a stored value in the two steps of a call."""
    text = decompress_answer(KEY, value, ROOM)
    return None if text is None else parse_answer(text, call)


def raws(answer: CachedAnswer | None) -> list[bytes | None]:
    """Return the bytes of the documents of a stream."""
    assert answer is not None
    *frames, end = answer.frames
    assert (end.doc, end.last) == (None, True)
    return [frame.raw for frame in frames]


def test_stored_response_is_read() -> None:
    answer = read(VALUE)

    assert answer is not None
    assert (answer.metadata, raws(answer)) == (METADATA, LINES)


@for_each(
    "value",
    [
        serialize_answer(OTHER_KEY, METADATA, LINES),
        b"\x02" + VALUE[1:],
        b"\x01" + VALUE[1:],
        VALUE[:-1],
        VALUE[:40],
        b"",
        COMPRESSED_VERSION + KEY + zlib.compress(b"[1, 2]\n{}"),
        COMPRESSED_VERSION
        + KEY
        + zlib.compress(b'[0, true, "u", "m", {"nonsense": 1}, "chat"]\n{}'),
        COMPRESSED_VERSION + KEY + zlib.compress(b'[0, true, "u", "m", {}, "chat"]'),
        COMPRESSED_VERSION + KEY + zlib.compress(b"\xff\n{}"),
    ],
    ids=[
        *("key", "version", "earlier", "cut", "short", "empty"),
        *("about", "tokens", "no-lines", "not-json"),
    ],
)
def test_value_of_another_key_or_version_is_a_miss(value: bytes) -> None:
    assert read(value) is None


def test_oversize_response_is_not_decompressed() -> None:
    bomb = COMPRESSED_VERSION + KEY + zlib.compress(b"[]\n" + b"0" * 100_000_000, 1)

    assert read(bomb) is None
    assert read(serialize_answer(KEY, METADATA, [b"0" * 9000] * 2)) is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_miss(noise: bytes) -> None:
    assert read(COMPRESSED_VERSION + KEY + noise) is None
    assert read(noise) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


def some(*names: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw an object with some of these fields, valid or invalid."""
    document = {name: anything for name in names}
    document |= {name: good | anything for name, good in fields.items()}
    return st.fixed_dictionaries({}, optional=document)


call = some("id", "index", "name", function=some("name", "arguments"))
message = some("role", "content", "refusal", tool_calls=st.lists(call, max_size=2))
choice = some("index", "text", "finish_reason", "logprobs", message=message, delta=message)
kind = st.sampled_from(["chat.completion", "chat.completion.chunk", "text_completion"])
event = some("id", "data", "usage", "error", object=kind, choices=st.lists(choice, max_size=2))


@given(st.lists(event, min_size=1, max_size=3), st.sampled_from([METADATA, BODY_METADATA]))
def test_document_is_miss_or_replayable(documents: list[Any], metadata: AnswerMetadata) -> None:
    value = serialize_answer(KEY, metadata, [orjson.dumps(document) for document in documents])

    for client in CLIENTS:
        for stream in (False, True):
            call = call_of(client, stream=stream)
            answer = read(value, call)
            writer = FAMILIES[find_client_family(call)].writer(WriteOptions(call, not stream))
            with suppress(UpstreamInvalid):  # invalid responses are never stored
                for frame in answer.frames if answer is not None else ():
                    writer.feed(frame)


@for_each("name", [name for name in DIALECTS if name != "anthropic"])
@for_each("stream", [False, True])
@for_each("metadata", [METADATA, BODY_METADATA], ids=["stream", "whole"])
def test_replay_keeps_cached_response(metadata: AnswerMetadata, stream: bool, name: str) -> None:
    """Decoded frames are shared by concurrent hits."""
    hooks = {"hook_results": {"after": [{"id": "x"}]}}
    detections = {"enkrypt_policy_detections": {"output": {}}, **hooks}
    used = {"usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    documents = (
        [legacy_completion(" Paris.")]
        if not metadata.streamed
        else [legacy_completion(" Par"), legacy_completion("is.")]
    )
    metadata = replace(metadata, family="completions")
    head = RequestHead(name, "completions", "/", "req_1")
    call = Call(head, {"prompt": "p"}, requested_models=("m",), stream=stream, wants_usage=True)
    lines = [orjson.dumps({**document, **detections, **used}) for document in documents]
    answer = read(serialize_answer(KEY, metadata, lines), call)
    assert answer is not None
    frames_before = orjson.dumps([frame.doc for frame in answer.frames])
    verdict = GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 10, 1, 0.1, kind="pii")

    for _ in range(2):
        options = WriteOptions(call, not stream, get_guard_results=lambda: [("output", verdict)])
        writer = FAMILIES["completions"].writer(options)
        for frame in answer.frames:
            writer.feed(frame)

    assert orjson.dumps([frame.doc for frame in answer.frames]) == frames_before


@for_each("lines", [[b"not json"], [b"[1, 2]"], [b"{}", b"1"], []])
@for_each("metadata", [METADATA, BODY_METADATA], ids=["stream", "whole"])
def test_incomplete_documents_are_a_miss(lines: list[bytes], metadata: AnswerMetadata) -> None:
    assert read(serialize_answer(KEY, metadata, lines)) is None


def test_stored_value_contains_no_readable_text() -> None:
    data: Any = legacy_completion("a secret answer, a secret answer")

    assert b"secret answer" not in serialize_answer(KEY, METADATA, [orjson.dumps(data)])


def test_short_response_in_memory_is_not_compressed() -> None:
    value = serialize_answer(KEY, METADATA, LINES, leave_short_uncompressed=True)

    assert value.endswith(b"\n".join(LINES))
    assert raws(read(value)) == LINES
    assert decompress_answer(OTHER_KEY, value, ROOM) is None


@pytest.mark.parametrize("length", [MAX_PLAIN_BYTES // 2, MAX_PLAIN_BYTES, 3 * MAX_PLAIN_BYTES])
def test_long_response_is_always_compressed(length: int) -> None:
    line = orjson.dumps(legacy_completion("a" * length))
    value = serialize_answer(KEY, METADATA, [line], leave_short_uncompressed=True)

    is_short = length < MAX_PLAIN_BYTES
    assert value.startswith(PLAIN_VERSION if is_short else COMPRESSED_VERSION)
    compressed = serialize_answer(KEY, METADATA, [line])
    assert decompress_answer(KEY, value, ROOM) == decompress_answer(KEY, compressed, ROOM)


def test_long_uncompressed_value_is_a_miss() -> None:
    assert decompress_answer(KEY, PLAIN_VERSION + KEY + b"0" * MAX_PLAIN_BYTES, ROOM) is not None
    assert decompress_answer(KEY, PLAIN_VERSION + KEY + b"0" * (MAX_PLAIN_BYTES + 1), ROOM) is None


def decoded_answer(size: int = 10) -> CachedAnswer:
    return CachedAnswer(METADATA, (), size)


def test_decoded_response_requires_name_and_value() -> None:
    decoded, stored = DecodedAnswers(), decoded_answer()
    decoded.add((KEY, 100), b"value", stored)

    assert decoded.find((KEY, 100), b"value") is stored
    assert decoded.find((KEY, 100), b"another value") is None
    assert decoded.find((KEY, 99), b"value") is None
    later = decoded_answer()
    decoded.add((KEY, 100), b"later", later)
    assert decoded.find((KEY, 100), b"value") is None
    assert decoded.find((KEY, 100), b"later") is later


def test_large_responses_are_not_held_decoded() -> None:
    decoded, largest = DecodedAnswers(), decoded_answer(MAX_DECODED_BYTES)
    decoded.add(KEY, b"value", decoded_answer(MAX_DECODED_BYTES + 1))
    decoded.add(b"j" * 32, b"value", largest)

    assert decoded.find(KEY, b"value") is None
    assert decoded.find(b"j" * 32, b"value") is largest


def test_least_recently_used_response_is_evicted_first() -> None:
    decoded = DecodedAnswers()
    keys = [bytes([number]) * 32 for number in range(MAX_DECODED_ANSWERS + 1)]
    for key in keys[:-1]:
        decoded.add(key, b"value", decoded_answer())
    assert decoded.find(keys[0], b"value") is not None

    decoded.add(keys[-1], b"value", decoded_answer())

    assert [decoded.find(key, b"value") is None for key in keys[:3]] == [False, True, False]


ANNA: Json = {"user": "anna", "metadata": {"for": "anna"}, "safety_identifier": "safe-anna"}
BERTHA: Json = {"user": "bertha", "metadata": {"for": "bertha"}, "safety_identifier": "safe-bertha"}
NOBODY: Json = {"user": None, "metadata": {}, "safety_identifier": None}
RESPONSE: Json = {"id": "resp_1", "object": "response", "output": []}


def responses_call(body: Json) -> Call:
    return Call(RequestHead("openai", "responses", "/v1/responses", "req_1"), body)


@for_each(("body", "repeated"), [(BERTHA, BERTHA), ({}, NOBODY)])
def test_responses_repeat_the_request_of_the_call(body: Json, repeated: Json) -> None:
    frame = Frame((ResponseStart("resp_1", "m", 1),), "responses", RESPONSE | ANNA, b"anna")
    event = frame._replace(doc={"type": "response.created", "response": RESPONSE | ANNA})

    replaced = replace_echoed_user_fields(frame, responses_call(body))
    assert replaced == frame._replace(doc=RESPONSE | repeated, raw=None)
    changed = {"type": "response.created", "response": RESPONSE | repeated}
    replaced = replace_echoed_user_fields(event, responses_call(body))
    assert replaced == frame._replace(doc=changed, raw=None)


def test_events_without_the_response_stay() -> None:
    delta = Frame((), "responses", {"type": "response.output_text.delta", "delta": "a"}, b"raw")

    assert replace_echoed_user_fields(delta, responses_call(BERTHA)) is delta
    chat = Frame((), "chat", {"object": "response"})
    assert replace_echoed_user_fields(chat, responses_call(BERTHA)).doc is not None
    assert replace_echoed_user_fields(Frame(()), responses_call(BERTHA)) == Frame(())
