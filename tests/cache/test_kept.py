"""The bytes of a kept answer: they give back what was shown, and refuse to be anything else."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.kept import VERSION, About, Kept, dump, load
from proxy.cache.merging import merged
from proxy.dialects import hub
from proxy.usage import Tokens
from tests.doubles import legacy, legacy_events

KEY, OTHER = b"k" * 32, b"o" * 32
ABOUT = About(1_700_000_000.5, True, "openai", "gpt-4o-mini", Tokens(input=5, output=3))
LINES = [orjson.dumps(event) for event in legacy_events(" Par", "is.")]
VALUE = dump(KEY, ABOUT, LINES)
ROOM = 10_000


def whole() -> Kept:
    line = orjson.dumps(legacy(" Paris."))
    return Kept(About(0.0, False, "openai", "m", Tokens()), (line,))


def test_what_was_stored_is_read_again() -> None:
    assert load(KEY, VALUE, ROOM) == Kept(ABOUT, tuple(LINES))


@pytest.mark.parametrize(
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
    assert load(KEY, value, ROOM) is None


def test_an_answer_larger_than_the_rule_allows_is_none_and_never_unpacked() -> None:
    bomb = VERSION + KEY + zlib.compress(b"[]\n" + b"0" * 100_000_000, 1)

    assert load(KEY, bomb, ROOM) is None
    assert load(KEY, dump(KEY, ABOUT, [b"0" * 9000] * 2), ROOM) is None


@given(st.binary(max_size=200))
def test_no_bytes_at_all_do_harm(noise: bytes) -> None:
    assert load(KEY, VERSION + KEY + noise, ROOM) is None
    assert load(KEY, noise, ROOM) is None


def test_a_stream_is_shown_again_byte_for_byte_and_ends() -> None:
    *said, end = Kept(ABOUT, tuple(LINES)).chunks(streamed=True)

    assert [chunk.raw for chunk in said] == LINES
    assert (end.data, end.last) == (None, True)


def test_a_whole_answer_is_shown_again_byte_for_byte() -> None:
    [chunk] = whole().chunks(streamed=False)

    assert (chunk.raw, chunk.last) == (whole().lines[0], True)
    assert chunk.data == legacy(" Paris.")


def test_each_form_serves_the_other() -> None:
    [as_whole] = Kept(ABOUT, tuple(LINES)).chunks(streamed=False)
    *as_stream, end = whole().chunks(streamed=True)

    assert as_whole.data == merged(legacy_events(" Par", "is.")) == legacy(" Paris.")
    assert as_whole.last
    assert [chunk.data for chunk in as_stream] == hub.as_stream(legacy(" Paris."))
    assert end.last


def test_no_text_is_readable_in_what_is_stored() -> None:
    data: Any = legacy("a secret answer, a secret answer")

    assert b"secret answer" not in dump(KEY, ABOUT, [orjson.dumps(data)])
