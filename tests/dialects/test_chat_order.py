"""The chunks of a chat in sequence, for clients that read one thing after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from proxy.dialects.chat_order import ChatOrder
from proxy.dialects.waiting import MOST_BYTES, MOST_EVENTS
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from tests.doubles import Json
from tests.for_each import for_each

Said = tuple[str | int, str]


def chunk(finish: str | None = None, **delta: Any) -> Json:
    return {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def called(index: int, arguments: str, **more: str) -> Json:
    name = {"name": more.pop("name")} if "name" in more else {}
    return {"index": index, "function": {**name, "arguments": arguments}, **more}


def calls(*each: Json) -> Json:
    return chunk(tool_calls=[*each])


def order(*, waits: bool = True, apart: bool = False) -> ChatOrder:
    return ChatOrder(waits=waits, apart=apart)


def fed(chunks: Sequence[Json], made: ChatOrder | None = None) -> list[Json]:
    made = made or order()
    return [each for one in chunks for each in made.feed(one, 1)]


def said(chunks: Sequence[Json]) -> list[Said]:
    """Return what chunks say, each with a mark before it where something else begins."""
    out: list[Said] = []
    for each in chunks:
        delta: Mapping[str, Any] = each["choices"][0]["delta"]
        out += [("mark", "")] if "block" in delta else []
        out += [
            (name, delta[name])
            for name in ("reasoning_content", "content", "refusal")
            if delta.get(name)
        ]
        for call in delta.get("tool_calls", ()):
            out.append((call["index"], call["function"]["arguments"]))
    return out


def test_what_comes_one_after_the_other_passes_with_a_mark_where_another_begins() -> None:
    chunks = [
        chunk(role="assistant", content=""),
        *(chunk(content=text) for text in ("a", "b")),
        calls(called(0, '{"a":', id="c0", name="f")),
        calls(called(0, "1}")),
        calls(called(1, '{"b":2}', id="c1", name="f")),
        chunk("tool_calls"),
    ]

    assert said(fed(chunks)) == [
        *(("mark", ""), ("content", "a"), ("content", "b")),
        *(("mark", ""), (0, '{"a":'), (0, "1}")),
        *(("mark", ""), (1, '{"b":2}')),
    ]
    assert fed(chunks)[2] is chunks[2]


def test_calls_that_take_turns_leave_one_after_the_other() -> None:
    chunks = [
        calls(called(0, '{"a":', id="c0"), called(1, "", id="c1")),
        *(calls(called(at, piece)) for at, piece in ((1, '{"b"'), (0, "1"), (1, ":2"), (1, "}"))),
        chunk(content="text"),
    ]
    begun = [("mark", ""), (0, '{"a":'), (0, "1")]
    late = [("mark", ""), (1, ""), (1, '{"b":2}'), ("mark", ""), ("content", "text")]

    assert said(fed(chunks)) == begun
    assert said(fed([*chunks, calls(called(0, "}"))])) == [*begun, (0, "}"), *late]
    assert said(fed([*chunks, chunk("stop")])) == [*begun, *late]


def test_what_waits_at_the_end_of_a_stream_is_left() -> None:
    made = order()
    fed([calls(called(0, "{"), called(1, "{"))], made)

    assert said(made.left()) == [("mark", ""), (1, "{")]


def test_a_chunk_of_many_things_is_parted_in_the_order_of_a_message() -> None:
    many = chunk("stop", content="b", reasoning="a", tool_calls=[called(0, "{}")], role="assistant")
    many |= {"usage": {"total_tokens": 1}}
    many["choices"][0]["logprobs"] = {"content": []}

    *things, end = fed([many])

    assert said(things) == [
        *(("mark", ""), ("reasoning_content", "a")),
        *(("mark", ""), ("content", "b")),
        *(("mark", ""), (0, "{}")),
    ]
    assert ["usage" in each for each in (*things, end)] == [False, False, False, True]
    assert [each["choices"][0]["finish_reason"] for each in (*things, end)] == [None] * 3 + ["stop"]
    assert [each["choices"][0]["logprobs"] for each in (*things, end)] == [
        *(None, {"content": []}, None, None)
    ]


def test_a_refusal_is_said_where_the_text_is_unless_it_has_a_place_of_its_own() -> None:
    chunks = [chunk(content="a"), chunk(refusal="b")]

    assert said(fed(chunks)) == [("mark", ""), ("content", "a"), ("content", "b")]
    assert said(fed(chunks, order(apart=True)))[-2:] == [("mark", ""), ("refusal", "b")]


def test_what_an_upstream_says_of_blocks_is_left_out() -> None:
    chunks = [
        chunk(content="a"),
        chunk(block={"stop": True}),
        chunk(content="b", block={"start": {}}),
    ]

    assert said(fed(chunks)) == [("mark", ""), ("content", "a"), ("content", "b")]


def test_a_call_that_goes_on_once_it_is_over_is_refused_unless_it_says_nothing() -> None:
    made = order()
    fed([calls(called(0, "{}"), called(1, "{}"))], made)

    assert fed([calls(called(0, " \n")), calls({"index": 0})], made) == []
    with pytest.raises(UpstreamInvalid):
        fed([calls(called(0, "1111"))], made)


def test_a_call_that_is_named_anew_behind_a_whole_one_is_another() -> None:
    one, other = called(0, '{"b":2}', name="f"), called(0, '{"a":1}', name="f")
    numbers = [(0, '{"b":2}'), (1, '{"a":1}')]

    for chunks in ([calls(one), calls(other)], [calls(one, other)]):
        assert [each for each in said(fed(chunks)) if each[0] != "mark"] == numbers


def test_a_call_of_free_text_is_over_with_the_choice() -> None:
    custom = {"index": 0, "type": "custom", "custom": {"name": "f", "input": "{}"}}

    assert len(fed([calls(custom), chunk(content="a")])) == 1
    assert len(fed([calls(custom), chunk(content="a"), chunk("stop")])) == 3


def test_where_things_come_in_sequence_none_waits() -> None:
    chunks = [calls(called(0, '{"a":')), calls(called(1, "{}")), chunk(content="a")]

    assert len(fed(chunks, order(waits=False))) == 3


def test_what_waits_and_how_many_calls_there_are_is_bounded() -> None:
    other = chunk(content="a")
    other["choices"][0]["logprobs"] = {"content": [{}]}

    with pytest.raises(AnswerTooLarge):
        fed([calls(called(0, "{")), *[other] * (MOST_EVENTS + 1)])
    with pytest.raises(AnswerTooLarge):
        fed([calls(called(at, "{}")) for at in range(MOST_EVENTS + 1)])


@for_each("data", [{"choices": []}, {"choices": [None]}, {"choices": None}, {}])
def test_a_chunk_without_a_choice_passes(data: Json) -> None:
    assert fed([data]) == [data]


def test_a_thousand_calls_that_wait_and_are_whole_leave_at_once() -> None:
    others = [calls(called(at, "{}")) for at in range(1, 1500)]

    out = said(fed([calls(called(0, "{")), *others, calls(called(0, "}"))]))

    assert [key for key, _ in out if key != "mark"] == [0, 0, *range(1, 1500)]


def test_an_empty_object_where_a_call_begins_stands_for_the_arguments_that_follow() -> None:
    begun = [calls(called(at, "{}", id=f"c{at}", name="f")) for at in range(2)]
    more = [calls(called(at, '{"a":1}')) for at in range(2)]

    assert said(fed([*begun, *more, chunk("stop")])) == [
        *(("mark", ""), (0, ""), (0, '{"a":1}')),
        *(("mark", ""), (1, ""), (1, '{"a":1}')),
    ]
    assert said(fed([*begun, chunk("stop")])) == [
        *(("mark", ""), (0, ""), (0, "{}")),
        *(("mark", ""), (1, ""), (1, "{}")),
    ]


def test_an_empty_object_is_the_arguments_where_something_else_follows_than_a_call() -> None:
    begun = [calls(called(at, "{}", id=f"c{at}", name="f")) for at in range(2)]

    out = said(fed([*begun, chunk(content="a"), chunk("stop")]))

    assert [each for each in out if each[1]] == [(0, "{}"), (1, "{}"), ("content", "a")]


def test_what_is_no_object_behind_an_empty_one_stays_behind_it() -> None:
    begun = calls(called(0, "{}", id="c0", name="f"))

    assert said(fed([begun, calls(called(0, " ")), calls(called(0, "}"))])) == [
        *(("mark", ""), (0, ""), (0, " "), (0, "{}}"))
    ]


def test_the_first_thing_of_a_chunk_alone_keeps_what_is_beside_its_things() -> None:
    many = {**calls(called(0, "{}"), called(1, "{}")), "model": "m", "extra": "x" * 99}

    first, second = fed([many])

    assert ("extra" in first, "extra" in second) == (True, False)
    assert (second["id"], second["model"]) == ("1", "m")


def test_things_that_wait_count_by_what_they_keep_and_not_by_their_chunk() -> None:
    text = orjson.dumps({"a": "x" * 4000}).decode()
    fifty = calls(*(called(at, text, id=f"c{at}", name="f") for at in range(1, 51)))
    made = order()

    made.feed(calls(called(0, "{")), 50)
    assert made.feed(fifty, 210_000) == []
    assert [each for each in said(made.left()) if each[1]] == [(at, text) for at in range(1, 51)]


def test_what_is_kept_of_many_chunks_is_bounded_however_their_things_leave() -> None:
    made, small = order(), MOST_BYTES // 100
    made.feed(calls(called(0, "{", id="c0")), 50)

    def hostile(at: int) -> Json:
        """Return a chunk of a thing that leaves at once, and of one that waits."""
        return {**calls(called(0, "1"), called(at, "x" * 9, id="i" * small)), "extra": "x" * small}

    with pytest.raises(AnswerTooLarge):
        for at in range(1, 101):
            made.feed(hostile(at), 2 * small)
