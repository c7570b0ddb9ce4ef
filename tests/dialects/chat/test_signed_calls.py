"""Thought signatures travel within the ids of tool calls, and leave requests before guards."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.signed_calls import (
    MARK,
    MAX_SIGNATURE,
    UNSIGNED,
    shown_id,
    signature_of,
    signed,
    without_signatures,
)
from tests.for_each import for_each

Json = dict[str, Any]
SIGNATURES = ["Eg+/x==", "skip_thought_signature_validator", "é", "\udc00", "A" * 5000]


def call(own_value: Any = "call_1", signature: Any = None) -> Json:
    extra = {} if signature is None else {"thought_signature": signature}
    document: Json = {
        "id": own_value,
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
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
        output = shown_id(call(signature=signature))
        body, results = without_signatures(form, loop(form, output))

        assert body == loop(form, "call_1")
        assert results == {"call_1": signature}
        returned = signed({"messages": [{"role": "assistant", "tool_calls": [call()]}]}, results)
        assert signature_of(returned["messages"][0]["tool_calls"][0]) == signature


def test_id_has_only_letters_that_ids_may_have() -> None:
    output = shown_id(call(signature="Eg+/x=="))

    assert set(output) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@for_each(
    "document",
    [
        call(),
        call(signature=""),
        call(signature=5),
        call(own_value=None, signature="x"),
        call(signature="x" * (MAX_SIGNATURE + 1)),
        call() | {"extra_content": "x"},
        call() | {"extra_content": {"google": []}},
    ],
)
def test_call_without_a_usable_signature_keeps_its_id(document: Json) -> None:
    assert shown_id(document) == document["id"]


@for_each(
    "text",
    [f"call_1{MARK}", f"{MARK}QQ", f"call_1{MARK}é", f"call_1{MARK}_w", "call_1", "", 5, None],
)
def test_id_that_holds_no_signature_stays(text: Any) -> None:
    for form in ("messages", "responses", None):
        body = loop(form or "messages", text)
        document, results = without_signatures(form, body)

        assert (document, results) == (body, {})


@for_each(("calls", "expected"), [
    ([call()], [UNSIGNED]),
    ([call(), call("call_2")], [UNSIGNED, None]),
    ([call(), call("known")], [None, "s"]),
    ([call(signature="own")], ["own"]),
    ([], []),
])  # fmt: skip
def test_unsigned_call_gets_placeholder(calls: list[Json], expected: list[str | None]) -> None:
    body = {"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": calls}]}

    document = signed(body, {"known": "s"})

    assert [signature_of(item) for item in document["messages"][1]["tool_calls"]] == expected
    assert signed({}, {}) == {}


@for_each("odd", ["x", None, 5, [], [None]])
def test_odd_calls_are_left_to_the_provider(odd: Any) -> None:
    for calls in ([odd], [call(), odd], [odd, call()], odd):
        body = {"messages": [{"role": "assistant", "tool_calls": calls}]}

        assert signed(body, {"call_1": "s"}) == body
