"""Which call of a tool a part of a chat's stream is of. How servers say them is in
`tests/adversary/test_tool_calls.py`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.splitting import blank_texts, copy_with_only_text
from proxy.dialects.chat.tool_calls import (
    CALL_LISTS,
    MAX_SIGNATURE,
    SIGNATURE_MARK,
    UNSIGNED_PLACEHOLDER,
    ToolCallNumbering,
    add_signatures,
    add_tool_call_id,
    get_thought_signature,
    make_client_call_id,
    remove_signatures,
)
from proxy.dialects.frames.sequencer import JsonEndDetector
from tests.doubles import Json
from tests.for_each import for_each


def part(arguments: str = "", name: str | None = None, **options: Any) -> Json:
    by_name = {} if name is None else {"name": name}
    return {"function": {**by_name, "arguments": arguments}, **options}


def renumbered(*fragments: Json) -> list[Json]:
    calls = ToolCallNumbering()
    return [calls.renumber_fragment(fragment, 0, ()) for fragment in fragments]


def numbers(*fragments: Json) -> list[int]:
    return [fragment["index"] for fragment in renumbered(*fragments)]


def test_new_id_begins_a_call_only_with_a_name() -> None:
    started = part(name="f", id="a", index=0)

    assert numbers(started, part(name="f", id="b", index=0)) == [0, 1]
    assert numbers(started, part("{", id="b", index=0)) == [0, 0]
    assert numbers(part(name="f", index=0), part(name="g", index=0)) == [0, 1]


def test_repeated_name_begins_a_call_with_its_arguments() -> None:
    document, repeated = part("{}", "f", index=0), part("", "f", index=0)

    assert numbers(document, repeated, part(" ", index=0)) == [0, 0, 0]
    assert numbers(document, repeated, part("{}", index=0)) == [0, 0, 1]
    assert renumbered(document, repeated, part("{}", index=0))[-1] == {
        "index": 1,
        **part("{}", "f"),
    }


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
def test_call_without_id_gets_one(id_: object, answer: object, output: str) -> None:
    assert add_tool_call_id({"id": id_}, answer, 2)["id"] == output


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES), st.lists(st.integers(0, 99)), st.booleans())
def test_end_of_object_is_found_at_any_cut(value: Json, cuts: list[int], spaced: bool) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if spaced else None).decode()
    end, observed = JsonEndDetector(), 0
    for a, b in pairwise(sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})):
        end.feed("arguments", text[a:b])
        observed += b - a
        assert end.is_object_complete == (observed == len(text))

    end.feed("arguments", " ")
    assert end.is_object_complete
    end.feed("arguments", "{}")
    assert not end.is_object_complete


@for_each("text", ["", " ", "1", '"a"', "[]", "{}1", "{}{}", '{"a', '{"a": "}'])
def test_incomplete_object_has_no_end(text: str) -> None:
    end = JsonEndDetector()
    end.feed("arguments", text)

    assert not end.is_object_complete


SIGNATURES = ["Eg+/x==", "skip_thought_signature_validator", "é", "\udc00", "A" * 5000]


def call(own_value: Any = "call_1", signature: Any = None) -> Json:
    extra = {} if signature is None else {"thought_signature": signature}
    function = {"name": "f", "arguments": "{}"}
    document: Json = {"id": own_value, "type": "function", "function": function}
    return document | ({"extra_content": {"google": extra}} if extra else {})


def loop(form: str, own_text: str) -> Json:
    if form == "responses":
        items = [{"type": "function_call", "call_id": own_text, "name": "f", "arguments": "{}"}]
        items.append({"type": "function_call_output", "call_id": own_text, "output": "x"})
        return {"input": [{"role": "user", "content": "hi"}, *items]}
    use = {"type": "tool_use", "id": own_text, "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": own_text, "content": "x"}
    fields = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"messages": [{"role": "user", "content": "hi"}, *fields]}


@for_each("signature", SIGNATURES[:3] + SIGNATURES[4:])
def test_signature_returns_with_the_call(signature: str) -> None:
    for form in ("messages", "responses"):
        output = make_client_call_id("call_1", signature)
        assert re.fullmatch("[A-Za-z0-9_-]+", output)
        body, results = remove_signatures(loop(form, output), CALL_LISTS[form])

        assert body == loop(form, "call_1")
        assert results == {"call_1": signature}
        chat = {"messages": [{"role": "assistant", "tool_calls": [call()]}]}
        [message] = add_signatures(chat, results)["messages"]
        assert get_thought_signature(message["tool_calls"][0]) == signature


@for_each(
    "document",
    [
        *(call(signature=odd) for odd in (None, "", 5, "x" * (MAX_SIGNATURE + 1))),
        *(call() | {"extra_content": "x"}, call() | {"extra_content": {"google": []}}),
    ],
)
def test_call_without_a_usable_signature_keeps_its_id(document: Json) -> None:
    assert make_client_call_id(document["id"], get_thought_signature(document)) == document["id"]


@for_each(
    "text",
    [
        *(f"call_1{SIGNATURE_MARK}{odd}" for odd in ("", "é", "_w")),
        *(f"{SIGNATURE_MARK}QQ", "call_1", "", 5, None),
    ],
)
def test_id_without_signature_is_unchanged(text: Any) -> None:
    for form, member in CALL_LISTS.items():
        body = loop(form, text)
        assert remove_signatures(body, member) == (body, {})


@for_each(("calls", "expected"), [
    ([call()], [UNSIGNED_PLACEHOLDER]),
    ([call(), call("call_2")], [UNSIGNED_PLACEHOLDER, None]),
    ([call(), call("known")], [None, "s"]),
    ([call(signature="own")], ["own"]),
    ([], []),
])  # fmt: skip
def test_unsigned_call_gets_placeholder(calls: list[Json], expected: list[str | None]) -> None:
    body = {"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": calls}]}

    signed = add_signatures(body, {"known": "s"})["messages"][1]["tool_calls"]

    assert [get_thought_signature(item) for item in signed] == expected
    assert add_signatures({}, {}) == {}


@for_each("odd", ["x", None, 5, [], [None]])
def test_invalid_calls_are_forwarded(odd: Any) -> None:
    for calls in ([odd], [call(), odd], [odd, call()], odd):
        body = {"messages": [{"role": "assistant", "tool_calls": calls}]}

        assert add_signatures(body, {"call_1": "s"}) == body


def test_texts_are_kept_alone_or_blanked_in_copies() -> None:
    call: Json = {"type": "t", "index": 7, "b": "y"}
    value: Json = {"a": ["x", call], "name": "whole", "c": {"d": "z", "e": ""}, "f": 1}

    assert copy_with_only_text(value, ("a", 1, "b"), "new") == {"a": [{**call, "b": "new"}]}
    assert copy_with_only_text("x", (), "new") == "new"
    assert blank_texts(value, [("a", 0), ("a", 1, "b")]) == {**value, "a": ["", {**call, "b": ""}]}
    assert value["a"] == ["x", {"type": "t", "index": 7, "b": "y"}]
    assert blank_texts("x", [()]) == ""
