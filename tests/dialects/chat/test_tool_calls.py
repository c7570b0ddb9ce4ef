"""Which call of a tool a part of a chat's stream is of. How servers say them is in
`tests/adversary/test_tool_calls.py`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.tool_calls import (
    CallNumbers,
    named_by_us,
)
from proxy.dialects.frames.sequencer import ObjectEnd
from proxy.errors import ResponseTooLarge
from tests.doubles import Json
from tests.for_each import for_each


def part(arguments: str = "", name: str | None = None, **options: Any) -> Json:
    by_name = {} if name is None else {"name": name}
    return {"function": {**by_name, "arguments": arguments}, **options}


def numbers(*fragments: Json, max_calls: int = 100) -> list[int]:
    calls = CallNumbers(max_calls)
    return [calls.renumbered(fragment, 0, ())["index"] for fragment in fragments]


def test_an_id_that_is_new_begins_a_call_only_with_a_name() -> None:
    started = part(name="f", id="a", index=0)

    assert numbers(started, part(name="f", id="b", index=0)) == [0, 1]
    assert numbers(started, part("{", id="b", index=0)) == [0, 0]


def test_a_name_alone_behind_a_whole_call_begins_another_once_it_says_something() -> None:
    document, repeated = part("{}", "f", index=0), part("", "f", index=0)

    assert numbers(document, repeated, part(" ", index=0)) == [0, 0, 0]
    assert numbers(document, repeated, part("{}", index=0)) == [0, 0, 1]
    calls = CallNumbers(100)
    [*_, last_document] = [
        calls.renumbered(fragment, 0, ()) for fragment in (document, repeated, part("{}", index=0))
    ]
    assert last_document == {"index": 1, **part("{}", "f")}


def test_another_name_without_an_id_is_another_call() -> None:
    assert numbers(part(name="f", index=0), part(name="g", index=0)) == [0, 1]


@for_each(
    ("id_", "answer", "output"),
    [
        ("a", "1", "a"),
        (7, "1", "7"),
        (None, "chatcmpl-1", "call_chatcmpl-1_2"),
        ("", "a/b c", "call_a_b_c_2"),
        ([], None, "call_2"),
        ({}, "", "call_2"),
    ],
)
def test_a_call_without_an_id_gets_one(id_: object, answer: object, output: str) -> None:
    assert named_by_us({"id": id_}, answer, 2)["id"] == output


def test_calls_are_bounded() -> None:
    with pytest.raises(ResponseTooLarge):
        numbers(*(part(index=index) for index in range(4)), max_calls=3)


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES), st.lists(st.integers(0, 99)), st.booleans())
def test_finds_end_of_object_at_any_cut(value: Json, cuts: list[int], spaced: bool) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if spaced else None).decode()
    end, observed = ObjectEnd(), 0
    for a, b in pairwise(sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})):
        end.feed("arguments", text[a:b])
        observed += b - a
        assert end.is_over == (observed == len(text))

    end.feed("arguments", " ")
    assert end.is_over
    end.feed("arguments", "{}")
    assert not end.is_over


@for_each("text", ["", " ", "1", '"a"', "[]", "{}1", "{}{}", '{"a', '{"a": "}'])
def test_what_is_no_whole_object_is_not_over(text: str) -> None:
    end = ObjectEnd()
    end.feed("arguments", text)

    assert not end.is_over
