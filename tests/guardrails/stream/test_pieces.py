"""Names, parts of messages, and what stands beside the choices of a stream: which pieces are one
text, and of which only the first is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.errors import GuardBlocked
from proxy.guardrails.stream.filter import StreamFilter
from proxy.types import Chunk, Json
from tests.for_each import for_each
from tests.guardrails.doubles import rule, tallies
from tests.guardrails.growth import lines
from tests.guardrails.stream.test_filter import (
    BLOCK,
    FLAG,
    HEAD,
    MASK,
    chunk,
    fed,
    text_at,
)


def test_a_name_is_looked_at_at_once() -> None:
    named = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "secret"}}]})

    out = StreamFilter.under(tallies(MASK)).feed(named)

    assert text_at(out, "delta", "tool_calls", 0, "function", "name") == "[WORD]"


def call(part: Json) -> Chunk:
    return chunk({"tool_calls": [{"index": 0, **part}]})


@pytest.mark.parametrize("name", ["name", "type"])
def test_of_a_name_in_pieces_the_first_alone_passes_while_a_guard_acts(name: str) -> None:
    def put(part: str) -> Chunk:
        return call({"function": {"name": part}} if name == "name" else {"type": part})

    at = ("delta", "tool_calls", 0, *(("function",) if name == "name" else ()), name)
    chunks = [put(part) for part in ("sec", "ret", " key")]

    assert text_at(fed(StreamFilter.under(tallies(MASK)), chunks), *at) == "sec"
    assert text_at(fed(StreamFilter.under(tallies(FLAG)), chunks), *at) == "secret key"


def test_another_call_has_a_name_of_its_own() -> None:
    chunks = [
        chunk({"tool_calls": [{"index": number, "function": {"name": name}}]})
        for number, name in enumerate(("one", "two"))
    ]

    out = fed(StreamFilter.under(tallies(MASK)), chunks)

    assert out[:2] == chunks


def typed(*texts: str, **more: Any) -> list[Json]:
    return [{"type": "text", "text": text, **more} for text in texts]


@for_each(
    "contents",
    [
        [typed("a sec", "ret, yes")],
        [["a sec", "ret, yes"]],
        [typed("a s", "ec"), typed("r", "et, yes")],
        [typed("a sec"), [{"type": "reference", "ids": [1]}, *typed("ret, yes")]],
        ["a sec", typed("ret, yes")],
        [typed("a sec"), "ret, yes"],
        [typed("a sec", index=3), typed("ret, yes", index=3)],
    ],
    ids=str,
)
def test_the_parts_of_a_message_are_one_text(contents: list[Any]) -> None:
    chunks = [chunk({"content": content}) for content in contents]

    out = fed(StreamFilter.under(tallies(MASK)), chunks)

    assert "".join(spoken_in(each) for each in out) == "a [WORD], yes"
    with pytest.raises(GuardBlocked):
        fed(StreamFilter.under(tallies(BLOCK)), chunks)
    flagging = tallies(FLAG)
    assert fed(StreamFilter.under(flagging), chunks)
    assert flagging[0].findings == {"word": 1}


def spoken_in(each: Chunk) -> str:
    """Put together the parts of the content of the first choice."""
    content = each.data["choices"][0]["delta"].get("content", "") if each.data else ""
    parts = [content] if isinstance(content, str) else content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)


def test_of_numbered_parts_those_with_the_first_number_pass_while_a_guard_acts() -> None:
    parts = [typed("sec", index=1), typed("ret", index=2), typed(" ok", index=1), "ret"]
    chunks = [chunk({"content": content}) for content in parts]

    shown = "".join(map(spoken_in, fed(StreamFilter.under(tallies(MASK)), chunks)))
    assert shown == "sec ok"
    assert fed(StreamFilter.under(tallies(FLAG)), chunks)[:4]


def test_thousands_of_parts_are_put_together_in_linear_time() -> None:
    def read(size: int) -> int:
        whole = chunk({"content": typed(*["ab"] * size)})
        return lines(lambda: fed(StreamFilter.under(tallies(MASK)), [whole]))

    assert read(800) < 3 * read(400)


@for_each("index", ["7", 7.0, "seven", 1.5])
def test_a_choice_is_the_one_whose_number_it_has_whatever_its_type(index: Any) -> None:
    first = {"index": index, "delta": {"content": "a sec"}}
    then = [{"index": 0, "delta": {}}, {"index": index, "delta": {"content": "ret"}}]
    chunks = [Chunk({**HEAD, "choices": each}) for each in ([first], then)]

    with pytest.raises(GuardBlocked):
        fed(StreamFilter.under(tallies(BLOCK)), chunks)


def test_a_choice_that_ends_keeps_its_number() -> None:
    ends = {"index": "seven", "delta": {"content": "a", "refusal": "b"}, "finish_reason": "stop"}

    out = fed(StreamFilter.under(tallies(MASK)), [Chunk({**HEAD, "choices": [ends]})])

    numbers = [choice["index"] for each in out if each.data for choice in each.data["choices"]]
    assert set(numbers) == {"seven"}


@for_each("name", ["index", "type"])
@for_each("value", [["a secret"], {"a": "a secret"}])
def test_what_tells_items_apart_and_is_a_text_is_in_no_part_of_its_chunk(
    name: str, value: Any
) -> None:
    odd = {name: value, "delta": {"content": "a", "refusal": "b"}}

    out = fed(StreamFilter.under(tallies(MASK)), [Chunk({**HEAD, "choices": [odd]})])

    assert "secret" not in json.dumps([each.data for each in out])
    released: list[Chunk] = []
    deltas = StreamFilter.under(tallies(BLOCK))
    with pytest.raises(GuardBlocked):
        released += deltas.feed(Chunk({**HEAD, "choices": [odd]}))
        released += deltas.flush()
    assert "secret" not in json.dumps([each.data for each in released])


def test_calls_without_a_number_keep_their_ids() -> None:
    calls = [{"id": id, "function": {"arguments": '{"a": 1}'}} for id in ("one", "two")]

    out = fed(StreamFilter.under(tallies(MASK)), [chunk({"tool_calls": calls})])

    parts = [
        call
        for each in out
        if each.data
        for call in each.data["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert {call["id"] for call in parts if call["function"]["arguments"]} == {"one", "two"}


def test_a_guard_that_only_flags_cannot_tell_of_a_text_that_goes_on_after_its_end() -> None:
    flagging = tallies(FLAG)
    chunks = [chunk({"content": "sec"}, finish="stop"), chunk({"content": "ret"})]

    assert fed(StreamFilter.under(flagging), chunks)[:2] == chunks
    assert flagging[0].result().verdict == "failed"
    assert flagging[0].result().error == "text_after_finish"


@pytest.mark.parametrize("path", [("delta", "x" * 2000), ("delta", *["x"] * 600, "y" * 600)])
def test_a_text_with_a_longer_way_to_it_than_is_kept_fails_closed(path: tuple[str, ...]) -> None:
    value: Any = "all is well"
    for step in reversed(path):
        value = {step: value}
    odd = Chunk({**HEAD, "choices": [{"index": 0, **value}]})

    with pytest.raises(GuardBlocked):
        fed(StreamFilter.under(tallies(BLOCK)), [odd])
    assert fed(StreamFilter.under(tallies(FLAG)), [odd])[0] is odd


def beside(value: Any, name: str = "note") -> Chunk:
    return Chunk({**HEAD, "choices": [], name: value})


@for_each("put", [str, lambda part: {"a": [part]}, lambda part: [[part]]])
@for_each("name", ["note", "usage", "name"])
def test_beside_the_choices_a_text_in_pieces_is_its_first(name: str, put: Any) -> None:
    chunks = [beside(put(part), name) for part in ("sec", "ret", "sec", "s")]

    out = fed(StreamFilter.under(tallies(MASK)), chunks)

    shown = [each.data[name] for each in out if each.data]
    assert shown == [put("sec"), put(""), put("sec"), put("")]
    assert fed(StreamFilter.under(tallies(FLAG)), chunks)[:4] == chunks


@pytest.mark.parametrize("put", [str, lambda part: [part]])
def test_what_stands_for_a_choice_and_is_none_is_its_first_piece(put: Any) -> None:
    out = fed(
        StreamFilter.under(tallies(MASK)), [beside(put(part), "choices") for part in ("se", "c")]
    )

    assert [each.data["choices"] for each in out if each.data] == [put("se"), put("")]


def test_what_is_the_same_in_each_chunk_passes_in_each() -> None:
    chunks = [chunk({"content": "a"}, provider="house", obfuscation=x) for x in "abc"]

    out = fed(StreamFilter.under(tallies(rule("q", action="mask"))), chunks)

    shown = [each.data for each in out if each.data]
    assert [data["provider"] for data in shown] == ["house"] * 3
    assert [data["obfuscation"] for data in shown] == ["a", "", ""]


@pytest.mark.parametrize("put", [beside, lambda part: call({"function": {"name": part}})])
def test_what_says_something_when_it_is_said_again_is_said_once(put: Any) -> None:
    out = fed(StreamFilter.under(tallies(rule("42424242", action="block"))), [put("42")] * 4)

    assert json.dumps([each.data for each in out if each.data]).count("42") == 1


AZURE: Json = {
    "hate": {"filtered": False, "severity": "safe"},
    "violence": {"filtered": False, "severity": "safe"},
}


@for_each("action", [MASK, BLOCK])
@for_each(("form", "said"), [("delta", {"content": "a word "}), ("text", "a word ")])
def test_each_chunk_of_a_choice_with_more_texts_has_the_form_that_clients_look_into(
    form: str, said: Any, action: Any
) -> None:
    beside = {"content_filter_results": AZURE, "stop_reason": "END", "note": "none"}
    choice = {"index": 0, form: said, "finish_reason": None, **beside}
    chunks = [
        Chunk({**HEAD, "choices": [{**choice, "finish_reason": end}]}) for end in (None, "stop")
    ]
    watching = StreamFilter.under(tallies(action))

    out = [safe.data or {} for chunk in chunks for safe in watching.feed(chunk)]

    assert len(out) > len(chunks)
    choices = [each["choices"][0] for each in out]
    assert all(isinstance(each[form], type(said)) for each in choices)
    texts = [each[form] if form == "text" else each[form].get("content", "") for each in choices]
    assert "".join(texts) == 2 * "a word "
    assert [each["finish_reason"] for each in choices].count("stop") == 1


@pytest.mark.parametrize("action", [MASK, FLAG])
def test_a_chunk_with_what_azure_has_filtered_passes_whole(action: Any) -> None:
    def put(content: str, end: str | None = None) -> Chunk:
        beside = {"content_filter_results": AZURE, "finish_reason": end}
        return Chunk({**HEAD, "choices": [{"index": 0, "delta": {"content": content}, **beside}]})

    chunks = [put("a word "), put("or two "), put("", "stop")]

    assert fed(StreamFilter.under(tallies(action)), chunks)[:3] == chunks


def test_a_text_in_the_place_of_a_word_of_the_filter_is_read() -> None:
    said = {"hate": {"filtered": False, "severity": "a secret"}}
    told = Chunk({**HEAD, "choices": [{"index": 0, "delta": {}, "content_filter_results": said}]})

    with pytest.raises(GuardBlocked):
        fed(StreamFilter.under(tallies(BLOCK)), [told])
