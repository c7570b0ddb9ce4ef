"""Chunks of a stream: only what may be shown is left in them, and all else stays in its order."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import hub
from proxy.errors import GuardBlocked
from proxy.guardrails.stream.filter import MOST_STREAMS, StreamFilter
from proxy.types import Chunk, Json
from tests.for_each import for_each
from tests.guardrails.doubles import pieces, rule, tallies

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CUTS = st.lists(st.integers(0, 300), max_size=12)
TEXT = st.lists(
    st.sampled_from(["secret", "sec", "ret", "s e c r e t", " ", "ok", "é"]), max_size=8
).map("".join)


def chunk(delta: Json, index: int = 0, finish: str | None = None, **more: Any) -> Chunk:
    data = {**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}
    return Chunk(data, json.dumps(data).encode())


def spoken(text: str, cuts: Sequence[int], index: int = 0, name: str = "content") -> list[Chunk]:
    return [chunk({name: part}, index) for part in pieces(text, cuts)]


def fed(deltas: StreamFilter, chunks: Sequence[Chunk]) -> list[Chunk]:
    out = [safe for each in chunks for safe in deltas.feed(each)]
    return out + deltas.feed(Chunk(None, last=True))


def text_at(chunks: Sequence[Chunk], *path: str | int, index: int = 0) -> str:
    """Put together what a choice says at a place of its deltas."""
    text = ""
    for each in chunks:
        for choice in (each.data or {}).get("choices", ()):
            value: Any = choice if choice["index"] == index else {}
            for step in path:
                value = _step(value, step)
            text += value or ""
    return text


def _step(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return next((each for each in value or () if each["index"] == step), None)
    return (value or {}).get(step)


def arguments(text: str, call: int) -> Json:
    return {"tool_calls": [{"index": call, "function": {"arguments": text}}]}


MASK = rule("secret", action="mask")
FLAG = rule("secret", action="flag")
BLOCK = rule("secret", action="block")


@given(TEXT, TEXT, CUTS, CUTS)
def test_any_cut_of_two_choices_is_masked_as_each_alone(
    one: str, two: str, cuts: list[int], others: list[int]
) -> None:
    mixed = [
        each
        for pair in zip(
            spoken(one, cuts) + [None] * 30, spoken(two, others, 1) + [None] * 30, strict=False
        )
        for each in pair
        if each is not None
    ]

    out = fed(StreamFilter.under(tallies(MASK)), mixed)

    for index, text in enumerate((one, two)):
        alone = fed(StreamFilter.under(tallies(MASK)), spoken(text, [], index))
        assert text_at(out, "delta", "content", index=index) == text_at(
            alone, "delta", "content", index=index
        )
    assert "secret" not in text_at(out, "delta", "content")
    assert "secret" not in text_at(out, "delta", "content", index=1)


@given(TEXT.filter(lambda text: "s" not in text), CUTS)
def test_chunks_without_findings_pass_as_the_very_objects(text: str, cuts: list[int]) -> None:
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        *spoken(text, cuts),
        chunk({}, finish="stop"),
        Chunk({**HEAD, "choices": [], "usage": {"total_tokens": 3}}),
    ]

    out = fed(StreamFilter.under(tallies(rule("not there at all, and a long one too"))), chunks)

    assert len(out) == len(chunks) + 1
    assert all(a is b for a, b in zip(out, chunks, strict=False))


def test_without_rules_that_hold_everything_passes_at_once() -> None:
    deltas = StreamFilter.under(tallies(rule("secret", action="flag")))
    first = chunk({"content": "a sec"})

    assert deltas.feed(first) == [first]
    assert deltas.feed(first)[0] is first


def test_a_masked_chunk_leaves_as_a_copy_without_its_bytes() -> None:
    whole = chunk({"content": "a secret here, and much more of it"})
    out = fed(StreamFilter.under(tallies(MASK)), [whole])

    assert text_at(out, "delta", "content") == "a [WORD] here, and much more of it"
    assert [each.raw for each in out] == [None] * len(out)
    assert text_at([whole], "delta", "content").startswith("a secret")


def test_what_is_held_leaves_before_the_chunk_that_finishes() -> None:
    deltas = StreamFilter.under(tallies(MASK))
    first, end = chunk({"content": "sec"}), chunk({}, finish="stop", usage={"total_tokens": 1})

    assert deltas.feed(first) == []
    out = deltas.feed(end)

    assert out == [first, end]
    assert out[1] is end


def test_text_in_the_chunk_that_finishes_comes_with_it() -> None:
    deltas = StreamFilter.under(tallies(MASK))

    assert deltas.feed(chunk({"content": "a sec"})) == []
    out = deltas.feed(chunk({"content": "ret"}, finish="stop"))

    assert text_at(out, "delta", "content") == "a [WORD]"
    assert [each.data["choices"][0]["finish_reason"] for each in out if each.data] == [None, "stop"]


def test_without_rules_that_act_what_follows_a_finish_stays() -> None:
    chunks = [chunk({"content": "a"}, finish="stop"), chunk({"content": "b"}, finish="stop")]

    assert fed(StreamFilter.under(tallies(FLAG)), chunks)[:2] == chunks


def test_one_choice_does_not_wait_for_another() -> None:
    deltas = StreamFilter.under(tallies(MASK))

    assert deltas.feed(chunk({"content": "sec"}, 0)) == []
    assert text_at(
        deltas.feed(chunk({"content": "ok now, it is known"}, 1)), "delta", "content", index=1
    )


def test_a_long_chunk_is_not_waited_for() -> None:
    deltas = StreamFilter.under(tallies(MASK))
    long = chunk({"content": "it is all well known " * 5}, usage={"total_tokens": 9})

    (part,) = deltas.feed(long)
    rest = fed(deltas, [])

    assert len(text_at([part], "delta", "content")) == len("it is all well known " * 5) - len(
        "secret"
    )
    assert text_at([part, *rest], "delta", "content") == "it is all well known " * 5
    assert [("usage" in (each.data or {})) for each in [part, *rest]] == [False, True, False]


@for_each(
    "path",
    [
        ("delta", "content"),
        ("delta", "reasoning_content"),
        ("delta", "reasoning"),
        ("delta", "refusal"),
        ("delta", "odd", "inner"),
        ("text",),
        ("delta", "function_call", "arguments"),
    ],
    ids=str,
)
def test_each_kind_of_text_is_looked_at_across_chunks(path: tuple[str, ...]) -> None:
    def at(text: str) -> Chunk:
        value: Any = text
        for step in reversed(path):
            value = {step: value}
        return Chunk({**HEAD, "choices": [{"index": 0, **value}]})

    out = fed(StreamFilter.under(tallies(MASK)), [at(part) for part in ("a s", "ecr", "et.")])

    assert text_at(out, *path) == "a [WORD]."
    with pytest.raises(GuardBlocked):
        fed(StreamFilter.under(tallies(BLOCK)), [at(part) for part in ("a s", "ecr", "et.")])


def test_calls_of_tools_have_windows_of_their_own() -> None:
    chunks = [
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}
        ),
        chunk(arguments('{"to": "sec', 0)),
        chunk(
            {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]}
        ),
        chunk(arguments('{"no": "ret", "x": "sec', 1)),
        chunk(arguments('ret"}', 0)),
        chunk(arguments('ret"}', 1)),
        chunk({}, finish="tool_calls"),
    ]

    out = fed(StreamFilter.under(tallies(MASK)), chunks)

    at = ("delta", "tool_calls")
    assert json.loads(text_at(out, *at, 0, "function", "arguments")) == {"to": "[WORD]"}
    assert json.loads(text_at(out, *at, 1, "function", "arguments")) == {"no": "ret", "x": "[WORD]"}
    assert out[0] is chunks[0]
    assert text_at(out, *at, 1, "function", "name") == "g"


def test_tokens_that_are_not_of_the_text_are_not_shown_while_a_guard_acts() -> None:
    def token(text: str, other: str) -> Chunk:
        tops = [{"token": text}, {"token": other}]
        probs = {"content": [{"token": text, "top_logprobs": tops}]}
        choice = {"index": 0, "delta": {"content": text}, "logprobs": probs}
        return Chunk({**HEAD, "choices": [choice]})

    chunks = [token("a", "sec"), token("b", "ret"), token("c", "c")]

    shown = [each.data for each in fed(StreamFilter.under(tallies(MASK)), chunks) if each.data]
    assert [bool(data["choices"][0]["logprobs"]) for data in shown] == [False, False, True]
    assert "".join(data["choices"][0]["delta"]["content"] for data in shown) == "abc"
    assert fed(StreamFilter.under(tallies(FLAG)), chunks)[:3] == chunks


@given(TEXT, TEXT, st.booleans())
def test_a_whole_answer_in_one_event_keeps_all_it_has(text: str, inner: str, chat: bool) -> None:
    message = {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": json.dumps({"a": inner})},
            }
        ],
    }
    members: Json = {"message": message} if chat else {"text": text, "odd": inner}
    answer = {
        **HEAD,
        "object": "chat.completion" if chat else "text_completion",
        "choices": [{"index": 0, **members, "finish_reason": "stop"}],
        "usage": {"total_tokens": 5},
    }

    out = fed(StreamFilter.under(tallies(MASK)), [Chunk(each) for each in hub.as_stream(answer)])

    masked = fed(StreamFilter.under(tallies(MASK)), spoken(text, []))
    assert text_at(out, *(("delta", "content") if chat else ("text",))) == text_at(
        masked, "delta", "content"
    )
    finishes = [
        choice["finish_reason"] for each in out if each.data for choice in each.data["choices"]
    ]
    assert [each for each in finishes if each] == ["stop"]
    assert finishes[-1] == "stop"
    assert [each.data["usage"] for each in out if each.data and each.data.get("usage")] == [
        {"total_tokens": 5}
    ]
    if chat:
        at = ("delta", "tool_calls", 0)
        assert "secret" not in json.loads(text_at(out, *at, "function", "arguments"))["a"]
        assert (text_at(out, *at, "id"), text_at(out, *at, "function", "name")) == ("a", "f")


def test_log_probs_stay_with_their_text_and_leave_with_it() -> None:
    def token(text: str) -> Chunk:
        choice = {
            "index": 0,
            "delta": {"content": text},
            "logprobs": {"content": [{"token": text, "top_logprobs": []}]},
        }
        return Chunk({**HEAD, "choices": [choice]})

    out = fed(
        StreamFilter.under(tallies(MASK)),
        [token(part) for part in ("it ", "is ", "sec", "ret", " ok")],
    )

    shown = [each.data["choices"][0] for each in out if each.data]
    assert [bool(choice["logprobs"]) for choice in shown] == [True, True, False, False, True]
    assert "".join(choice["delta"]["content"] for choice in shown) == "it is [WORD] ok"


def test_tokens_that_do_not_spell_the_text_are_looked_at() -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "secret"}]}}

    with pytest.raises(GuardBlocked):
        StreamFilter.under(tallies(BLOCK)).feed(Chunk({**HEAD, "choices": [choice]}))


def test_unknown_fields_beside_the_choices_are_looked_at() -> None:
    odd = chunk({}, note="a secret")

    assert [
        each.data["note"] for each in StreamFilter.under(tallies(MASK)).feed(odd) if each.data
    ] == ["a [WORD]"]


def test_texts_that_there_is_no_room_for_are_not_kept() -> None:
    deltas = StreamFilter.under(tallies(rule("secret", action="flag")))
    tracemalloc.start()
    try:
        for number in range(20 * MOST_STREAMS):
            deltas.feed(chunk({"content": "s"}, number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 4 * 1024 * 1024


@given(TEXT.filter(lambda text: "secret" in text), CUTS)
def test_nothing_of_a_block_is_shown(text: str, cuts: list[int]) -> None:
    deltas, out = StreamFilter.under(tallies(BLOCK)), []

    with pytest.raises(GuardBlocked):
        for each in spoken(text, cuts):
            out += deltas.feed(each)
        deltas.feed(Chunk(None, last=True))

    shown = text_at(out, "delta", "content")
    assert text.startswith(shown)
    assert len(shown) <= text.index("secret")


def test_rules_look_at_their_kinds_only() -> None:
    narrow = rule("secret", action="mask", fields=frozenset({"arguments"}))
    out = fed(
        StreamFilter.under(tallies(narrow)),
        [chunk({"content": "a secret"}), chunk(arguments('"secret"', 0))],
    )

    assert text_at(out, "delta", "content") == "a secret"
    assert text_at(out, "delta", "tool_calls", 0, "function", "arguments") == '"[WORD]"'


def test_too_many_texts_fail_closed() -> None:
    deltas = StreamFilter.under(tallies(BLOCK))

    with pytest.raises(GuardBlocked):
        for index in range(2000):
            deltas.feed(chunk({"content": "s"}, index))


def test_what_was_seen_is_counted() -> None:
    at_work = tallies(MASK)
    fed(StreamFilter.under(at_work), [*spoken("a secret", [3, 5]), *spoken("ok", [], 1)])

    result = at_work[0].result()
    assert (result.verdict, result.findings) == ("masked", {"word": 1})
    assert (result.bytes, result.fields) == (10, 2)
