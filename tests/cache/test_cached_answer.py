"""The bytes of a kept answer: they give back what was shown, and refuse to be anything else."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.cached_answer import (
    PLAIN_VERSION,
    SHORT_BYTES,
    VERSION,
    AnswerMetadata,
    CachedAnswer,
    dump,
    inflate,
    parse,
)
from proxy.dialects import DIALECTS, hub
from proxy.dialects.chat.merging import merged
from proxy.dialects.writing import EventWriter, WholeWriter
from proxy.types import Call, RequestHead
from proxy.types.guard import GuardResult
from proxy.usage import Tokens
from tests.doubles import legacy, legacy_events
from tests.for_each import for_each

KEY, OTHER = b"k" * 32, b"o" * 32
ABOUT = AnswerMetadata(1_700_000_000.5, True, "openai", "gpt-4o-mini", Tokens(input=5, output=3))
LINES = [orjson.dumps(event) for event in legacy_events(" Par", "is.")]
VALUE = dump(KEY, ABOUT, LINES)
ROOM = 10_000
CALL = Call(RequestHead("openai", "chat", "/v1/chat/completions", "req_1"), {}, models=("m",))


def read(value: bytes) -> CachedAnswer | None:
    """Read what a store has given for the key, in the two steps that calls take."""
    text = inflate(KEY, value, ROOM)
    return None if text is None else parse(text, CALL)


def whole() -> CachedAnswer:
    line = orjson.dumps(legacy(" Paris."))
    return CachedAnswer(
        AnswerMetadata(0.0, False, "openai", "m", Tokens()), (line,), (legacy(" Paris."),)
    )


STREAM = CachedAnswer(ABOUT, tuple(LINES), tuple(map(orjson.loads, LINES)))


def test_what_was_stored_is_read_again() -> None:
    assert read(VALUE) == STREAM


@for_each(
    "value",
    [
        dump(OTHER, ABOUT, LINES),
        b"\x02" + VALUE[1:],
        VALUE[:-1],
        VALUE[:40],
        b"",
        VERSION + KEY + zlib.compress(b"[1, 2]\n{}"),
        VERSION + KEY + zlib.compress(b'[0, true, "u", "m", {"nonsense": 1}]\n{}'),
        VERSION + KEY + zlib.compress(b'[0, true, "u", "m", {}]'),
        VERSION + KEY + zlib.compress(b"\xff\n{}"),
    ],
    ids=["key", "version", "cut", "short", "empty", "about", "tokens", "no-lines", "not-json"],
)
def test_what_is_not_the_answer_to_this_question_is_none(value: bytes) -> None:
    assert read(value) is None


def test_an_answer_larger_than_the_rule_allows_is_none_and_never_unpacked() -> None:
    bomb = VERSION + KEY + zlib.compress(b"[]\n" + b"0" * 100_000_000, 1)

    assert read(bomb) is None
    assert read(dump(KEY, ABOUT, [b"0" * 9000] * 2)) is None


@given(st.binary(max_size=200))
def test_no_bytes_at_all_do_harm(noise: bytes) -> None:
    assert read(VERSION + KEY + noise) is None
    assert read(noise) is None


def test_a_stream_is_shown_again_byte_for_byte_and_ends() -> None:
    *said, end = STREAM.chunks(streamed=True)

    assert [chunk.raw for chunk in said] == LINES
    assert (end.data, end.last) == (None, True)


def test_a_whole_answer_is_shown_again_byte_for_byte() -> None:
    [chunk] = whole().chunks(streamed=False)

    assert (chunk.raw, chunk.last) == (whole().lines[0], True)
    assert chunk.data == legacy(" Paris.")


def test_each_form_serves_the_other() -> None:
    [as_whole] = STREAM.chunks(streamed=False)
    *as_stream, end = whole().chunks(streamed=True)

    assert as_whole.data == merged(legacy_events(" Par", "is.")) == legacy(" Paris.")
    assert as_whole.last
    assert [chunk.data for chunk in as_stream] == hub.as_stream(legacy(" Paris."))
    assert end.last


WHOLE = AnswerMetadata(0.0, False, "openai", "m", Tokens())
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


def some(*names: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw an object with any of these fields, each as it should be or as it should not."""
    each = {name: anything for name in names}
    each |= {name: good | anything for name, good in fields.items()}
    return st.fixed_dictionaries({}, optional=each)


call = some("id", "index", "name", function=some("name", "arguments"))
message = some("role", "content", "refusal", tool_calls=st.lists(call, max_size=2))
choice = some("index", "text", "finish_reason", "logprobs", message=message, delta=message)
kind = st.sampled_from(["chat.completion", "chat.completion.chunk", "text_completion"])
event = some("id", "data", "usage", "error", object=kind, choices=st.lists(choice, max_size=2))


@given(st.lists(event, min_size=1, max_size=3), st.sampled_from([ABOUT, WHOLE]))
def test_what_is_well_formed_and_no_answer_is_none_or_can_be_shown_to_all(
    said: list[Any], about: AnswerMetadata
) -> None:
    value = dump(KEY, about, [orjson.dumps(each) for each in said])

    kept = read(value)

    for dialect in DIALECTS.values() if kept is not None else ():
        for streamed in (False, True):
            event = EventWriter(dialect.client, wants_usage=True)
            writer = event if streamed else WholeWriter(dialect.client, CALL)
            for chunk in kept.chunks(streamed=streamed) if kept else ():
                writer.feed(chunk)


@for_each("name", DIALECTS)
@for_each("streamed", [False, True])
@for_each("about", [ABOUT, WHOLE], ids=["stream", "whole"])
def test_nobody_who_is_shown_an_answer_changes_it_for_the_next(
    about: AnswerMetadata, streamed: bool, name: str
) -> None:
    """What was decoded once is shown to all who ask again, at the same time."""
    told = {"enkrypt_policy_detections": {"output": {}}, "hook_results": {"after": [{"id": "x"}]}}
    used = {"usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    events = legacy_events(" Par", "is.") if about.streamed else [legacy(" Paris.")]
    kept = read(dump(KEY, about, [orjson.dumps({**each, **told, **used}) for each in events]))
    assert kept is not None
    before = orjson.dumps(kept.events)
    found = GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 10, 1, 0.1, kind="pii")
    client = DIALECTS[name].client

    for _ in range(2):
        for chunk in kept.chunks(streamed=streamed):
            writer = (
                EventWriter(client, wants_usage=True, verdicts=lambda: [("output", found)])
                if streamed
                else WholeWriter(client, CALL, lambda: [("output", found)])
            )
            writer.feed(chunk)

    assert orjson.dumps(kept.events) == before


@for_each(
    "lines",
    [
        [b"{}"],
        [b"not json"],
        [b"[1, 2]"],
        [b'{"choices": {"index": 0}}'],
        [b'{"choices": [7]}'],
        [b'{"choices": [{"delta": "x"}]}'],
        [b'{"choices": [{"index": "0"}]}'],
    ],
)
@for_each("about", [ABOUT, WHOLE], ids=["stream", "whole"])
def test_what_is_no_answer_is_none(lines: list[bytes], about: AnswerMetadata) -> None:
    assert read(dump(KEY, about, lines)) is None


@for_each("count", [-1, 1.5, "1", True, 2**60])
def test_tokens_that_are_no_counts_are_none(count: object) -> None:
    about = orjson.dumps([0, False, "u", "m", {"input": count}])
    value = VERSION + KEY + zlib.compress(about + b"\n" + orjson.dumps(legacy()))

    assert read(value) is None


def test_no_text_is_readable_in_what_is_stored() -> None:
    data: Any = legacy("a secret answer, a secret answer")

    assert b"secret answer" not in dump(KEY, ABOUT, [orjson.dumps(data)])


def test_a_short_answer_that_nobody_else_can_read_is_stored_as_it_is() -> None:
    value = dump(KEY, ABOUT, LINES, short_as_is=True)

    assert value.endswith(b"\n".join(LINES))
    assert read(value) == STREAM
    assert inflate(OTHER, value, ROOM) is None


@pytest.mark.parametrize("length", [SHORT_BYTES // 2, SHORT_BYTES, 3 * SHORT_BYTES])
def test_a_long_answer_is_compressed_wherever_it_is_stored(length: int) -> None:
    line = orjson.dumps(legacy("a" * length))
    value = dump(KEY, ABOUT, [line], short_as_is=True)

    is_short = length < SHORT_BYTES
    assert value.startswith(PLAIN_VERSION if is_short else VERSION)
    assert inflate(KEY, value, ROOM) == inflate(KEY, dump(KEY, ABOUT, [line]), ROOM)


def test_what_is_as_it_is_and_not_short_is_none() -> None:
    assert inflate(KEY, PLAIN_VERSION + KEY + b"0" * SHORT_BYTES, ROOM) is not None
    assert inflate(KEY, PLAIN_VERSION + KEY + b"0" * (SHORT_BYTES + 1), ROOM) is None
