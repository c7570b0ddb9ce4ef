"""Merging of streamed chat chunks into a whole response."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.chat.merging import merge_chunks, split_into_chunks
from tests.doubles import chat, chat_events, legacy_completion, legacy_events, usage
from tests.for_each import for_each


def events(*deltas: Any, finish: str = "stop") -> list[dict[str, Any]]:
    """Return a chat stream of these deltas."""
    steps = [*((delta, None) for delta in deltas), ({}, finish)]
    choices = [{"index": 0, "delta": delta, "finish_reason": end} for delta, end in steps]
    return [chat_events()[0] | {"choices": [choice]} for choice in choices]


def message(*deltas: Any, **how: Any) -> Any:
    return merge_chunks(events(*deltas, **how))["choices"][0]["message"]


@pytest.mark.parametrize(
    "full_value", [legacy_completion(" Paris."), chat("Paris.")], ids=["legacy", "chat"]
)
def test_split_response_is_merged_to_the_original(full_value: Any) -> None:
    assert merge_chunks(split_into_chunks(full_value)) == full_value


def test_choices_are_separated_and_sorted() -> None:
    frame = {"id": "cmpl-1", "object": "text_completion"}
    pieces = [(1, "b"), (0, "a"), (1, "B"), (0, "A")]
    fields = [{**frame, "choices": [{"index": i, "text": t}]} for i, t in pieces]

    assert [c["text"] for c in merge_chunks(fields)["choices"]] == ["aA", "bB"]


def test_last_usage_is_kept_if_any() -> None:
    first_event, *later_events = legacy_events("x", with_usage=False)
    counted = [{**first_event, "usage": usage(1, 1)}, {**first_event, "usage": usage(5, 3)}]

    assert merge_chunks(counted)["usage"] == usage(5, 3)
    assert "usage" not in merge_chunks([{**first_event, "usage": None}, *later_events])


def test_pieces_of_a_tool_call_are_joined() -> None:
    def piece(index: int, arguments: str, **options: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **options}]}

    fields = message(
        {"role": "assistant", "content": None},
        {"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "f"}}]},
        piece(0, '{"a"'),
        piece(0, ": 1}", id="", type="function"),
        piece(1, "{}", id="c1"),
        finish="tool_calls",
    )

    first_call = {
        "id": "c0",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": 1}'},
    }
    assert fields["tool_calls"] == [first_call, {"id": "c1", "function": {"arguments": "{}"}}]
    assert fields["content"] is None


def test_other_members_of_providers_are_joined() -> None:
    fields = message(
        {"role": "assistant", "reasoning_content": "Hm"},
        {"role": "assistant", "reasoning_content": "m."},
        {"audio": {"id": "a", "data": "AA"}},
        {"audio": {"id": "a", "data": "BB", "expires_at": 9}},
        {"content": "Yes", "annotations": [{"type": "url"}]},
        {"annotations": [{"type": "url"}, "odd"]},
    )

    assert fields["reasoning_content"] == "Hmm."
    assert fields["audio"] == {"id": "a", "data": "AABB", "expires_at": 9}
    assert fields["annotations"] == [{"type": "url"}, {"type": "url"}, "odd"]


def test_logprobs_are_joined_in_both_forms() -> None:
    deltas = events({"content": "a"}, {"content": "b"})
    legacy = legacy_events("a", "b", with_usage=False)
    for event, other, token in zip(deltas, legacy, "ab", strict=False):
        event["choices"][0]["logprobs"] = {"content": [{"token": token}]}
        other["choices"][0]["logprobs"] = {"tokens": [token], "text_offset": [0]}

    joined = merge_chunks(deltas)["choices"][0]["logprobs"]
    assert joined["content"] == [{"token": "a"}, {"token": "b"}]
    assert merge_chunks(legacy)["choices"][0]["logprobs"]["tokens"] == ["a", "b"]


def test_invalid_deltas_raise_nothing() -> None:
    fields = merge_chunks([{"choices": None}, {"choices": ["x", {"index": "?", "text": "a"}]}, {}])

    assert fields["choices"] == [{"index": "?", "text": "a"}]


@for_each("odd", [5, {}, ["a"], True, None])
def test_value_of_another_type_removes_no_text(odd: Any) -> None:
    fields = [{"content": [{"type": "text", "text": text}]} for text in ("a", odd, "b")]

    texts = [item["text"] for item in message(*fields)["content"]]
    assert [text for text in texts if text != odd] == ["a", "b"]
    assert message({"refusal": "a"}, {"refusal": odd}, {"refusal": "b"})["refusal"] == "ab"


def test_many_pieces_are_joined_in_linear_time() -> None:
    """With quadratic time this would take minutes."""
    count = 30_000
    pieces = [{"content": "ab " * 30} for _ in range(count)]
    calls = [{"index": number, "function": {"arguments": "x"}} for number in range(count)]

    fields = message(*pieces, {"tool_calls": calls}, {"tool_calls": calls})

    assert len(fields["content"]) == 90 * count
    assert [call["function"]["arguments"] for call in fields["tool_calls"]] == ["xx"] * count


def test_merged_chunks_are_not_changed() -> None:
    values = events(*({"content": text, "audio": {"data": text}} for text in "ab"))
    text_before = repr(values)

    merge_chunks(values)

    assert repr(values) == text_before


def test_items_without_usable_index_are_appended() -> None:
    odd = [{"index": [1], "a": "x"}, {"index": None, "a": "y"}]

    assert message({"content": "c", "b": odd}, {"b": odd})["b"] == odd + odd


def test_deepest_allowed_chunks_are_merged() -> None:
    deep: dict[str, Any] = {"x": 1}
    for _ in range(120):
        deep = {"index": 0, "parts": [deep]}

    document = merge_chunks([{"choices": [{"index": 0, "delta": deep}]}] * 3)

    assert document["choices"][0]["delta"]["index"] == 0


def thoughts(*texts: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts]}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


SOURCE: dict[str, Any] = {"type": "reference", "reference_ids": [1]}


@for_each(
    ("pieces", "content"),
    [
        (["", [thoughts("One ")], [thoughts("capital.")]], [thoughts("One capital.")]),
        ([[thoughts("Hm.")], "Par", "is.", ""], [thoughts("Hm."), text("Paris.")]),
        ([[thoughts("Hm.")], [text("Par")], "is."], [thoughts("Hm."), text("Paris.")]),
        (["Par", "is.", [thoughts("Hm.")]], [text("Paris."), thoughts("Hm.")]),
        ([[text("a"), SOURCE], [SOURCE], [text("b")]], [text("a"), SOURCE, SOURCE, text("b")]),
        ([[{**text("a"), "x": 1}], [text("b")]], [{**text("a"), "x": 1}, text("b")]),
        ([[text("a")], None, ["b", 5], [{"type": ["text"]}]],
            [text("a"), "b", 5, {"type": ["text"]}]),
        ([[], ""], []),
    ],
)  # fmt: skip
def test_part_lists_and_texts_become_one_content(pieces: list[Any], content: Any) -> None:
    deltas = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]

    document = merge_chunks([{"object": "chat.completion.chunk", **piece} for piece in deltas])

    assert document["choices"][0]["message"]["content"] == content
