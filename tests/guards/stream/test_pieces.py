"""Names, message parts and members next to choices of a stream: joined and repeated pieces."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from proxy.errors import GuardBlocked
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.texts import MAX_TEXT_KEYS, JoinableTextTracker, RuleFilterFactory
from proxy.guards.text.walk import Text
from proxy.types import Json
from tests.for_each import for_each
from tests.guards.doubles import rule, stream_inspector, tallies
from tests.guards.growth import lines
from tests.guards.stream import frames as made
from tests.guards.stream.frames import HEAD, documents, fed, read

MASK = rule("secret", action="mask")
FLAG = rule("secret", action="flag")
BLOCK = rule("secret", action="block")


def chunk(delta: Json, finish: str | None = None, **options: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **options}


def call(part: Json) -> Json:
    return chunk({"tool_calls": [{"index": 0, **part}]})


def names(outputs: list[Json]) -> list[Any]:
    deltas = [choice["delta"] for document in outputs for choice in document["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    return [call.get("function", {}).get("name") or call.get("type") for call in calls]


@for_each(
    ("member", "expected"),
    [
        (lambda piece: call({"function": {"name": piece}}), ["sec", "ret", " key"]),
        (lambda piece: call({"type": piece}), ["sec"]),
    ],
)
def test_only_first_piece_of_a_type_passes(member: Any, expected: list[str]) -> None:
    """A second name belongs to another call."""
    chunks = [member(piece) for piece in ("sec", "ret", " key")]

    assert [item for item in names(fed(chunks, MASK)) if item] == expected
    assert names(fed(chunks, FLAG)) == ["sec", "ret", " key"]


def test_old_call_name_is_inspected_across_chunks() -> None:
    chunks = [chunk({"function_call": {"name": piece}}) for piece in ("sec", "ret")]

    choices = [choice for document in fed(chunks, MASK) for choice in document["choices"]]
    texts = [each["delta"].get("function_call", {}).get("name") or "" for each in choices]
    assert "secret" not in "".join(texts)


def typed(*texts: str, **options: Any) -> list[Json]:
    return [{"type": "text", "text": text, **options} for text in texts]


@for_each(
    "contents",
    [
        [typed("a sec", "ret, yes")], [["a sec", "ret, yes"]],
        [typed("a s", "ec"), typed("r", "et, yes")],
        [typed("a sec"), [{"type": "reference", "ids": [1]}, *typed("ret, yes")]],
        ["a sec", typed("ret, yes")], [typed("a sec"), "ret, yes"],
        [typed("a sec", index=3), typed("ret, yes", index=3)],
    ],
    ids=str,
)  # fmt: skip
def test_parts_of_a_message_are_one_text(contents: list[Any]) -> None:
    chunks = [chunk({"content": content}) for content in contents]

    assert "".join(map(content_of, fed(chunks, MASK))) == "a [WORD], yes"
    with pytest.raises(GuardBlocked):
        fed(chunks, BLOCK)
    [flagging] = tallies(FLAG)
    assert fed(chunks, flagging)
    assert flagging.findings == {"word": 1}


def content_of(document: Json) -> str:
    """Join the parts of the content of the first choice."""
    content = document["choices"][0]["delta"].get("content") or ""
    parts = [content] if isinstance(content, str) else content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)


def test_numbered_parts_are_one_text() -> None:
    parts = [typed("sec", index=1), typed("ret", index=2), typed(" ok", index=1), "ret"]
    chunks = [chunk({"content": content}) for content in parts]

    assert "".join(map(content_of, fed(chunks, MASK))) == "[WORD] okret"
    assert len(fed(chunks, FLAG)) == len(chunks)


def test_thousands_of_parts_are_joined_in_linear_time() -> None:
    def count(size: int) -> int:
        frames = read(chunk({"content": typed(*["ab"] * size)}))
        work = StreamFilter.for_rules(tallies(MASK))
        return lines(lambda: [work.feed(frame) for frame in frames])

    assert count(800) < 3 * count(400)


@for_each("index", ["7", 7.0])
def test_choice_index_may_be_another_number(index: Any) -> None:
    first_value = {"index": index, "delta": {"content": "a sec"}}
    later = [{"index": 0, "delta": {}}, {"index": index, "delta": {"content": "ret"}}]
    chunks = [{**HEAD, "choices": item} for item in ([first_value], later)]

    with pytest.raises(GuardBlocked):
        fed(chunks, BLOCK)


@for_each("value", [["a secret"], {"a": "a secret"}])
def test_text_in_a_type_is_inspected(value: Any) -> None:
    odd = {**HEAD, "choices": [{"type": value, "delta": {"content": "a", "refusal": "b"}}]}

    assert "secret" not in json.dumps(fed([odd], MASK))
    released, frames = [], StreamFilter.for_rules(tallies(BLOCK))
    with pytest.raises(GuardBlocked):
        for frame in read(odd):
            released += frames.feed(frame)
    assert "secret" not in json.dumps(documents(released))


def test_calls_without_a_number_keep_their_ids() -> None:
    calls = [{"id": id, "function": {"arguments": '{"a": 1}'}} for id in ("one", "two")]

    deltas = [
        document["choices"][0]["delta"] for document in fed([chunk({"tool_calls": calls})], MASK)
    ]
    parts = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert {call["id"] for call in parts if call["function"]["arguments"]} == {"one", "two"}


def test_flagging_guard_fails_on_text_after_its_end() -> None:
    [flagging] = tallies(FLAG)
    chunks = [chunk({"content": "sec"}, finish="stop"), chunk({"content": "ret"})]

    assert "".join(map(content_of, fed(chunks, flagging))) == "secret"
    assert (flagging.to_result().verdict, flagging.error) == ("failed", "text_after_finish")


@pytest.mark.parametrize("path", [("delta", "x" * 2000), ("delta", *["x" * 20] * 60)])
def test_text_with_a_too_long_path_fails_closed(path: tuple[str, ...]) -> None:
    value: Any = "all is well"
    for step in reversed(path):
        value = {step: value}
    odd = {**HEAD, "choices": [{"index": 0, **value}]}

    with pytest.raises(GuardBlocked):
        fed([odd], BLOCK)
    assert fed([odd], FLAG) == [odd]


def chunk_with_member(value: Any, name: str = "note") -> Json:
    return {**HEAD, "choices": [], name: value}


@for_each("stored", [str, lambda part: {"a": [part]}, lambda part: [[part]]])
@for_each("name", ["note", "usage", "name"])
def test_first_piece_next_to_the_choices_passes(name: str, stored: Any) -> None:
    chunks = [chunk_with_member(stored(part), name) for part in ("sec", "ret", "sec", "s")]

    expected = [stored(text) for text in ("sec", "", "sec", "")]
    assert [document[name] for document in fed(chunks, MASK)] == expected
    assert fed(chunks, FLAG) == chunks


@pytest.mark.parametrize("stored", [str, lambda part: [part]])
def test_first_piece_in_the_place_of_choices_passes(stored: Any) -> None:
    frames = read(*(chunk_with_member(stored(part), "choices") for part in ("se", "c")))
    parent = StreamFilter.for_rules(tallies(MASK))

    outputs = [safe.doc for frame in frames for safe in parent.feed(frame)]

    assert [doc["choices"] for doc in outputs if doc] == [stored("se"), stored("")]


def test_same_value_in_each_chunk_passes() -> None:
    chunks = [chunk({"content": "a"}, provider="house")] * 3

    outputs = fed(chunks, rule("q", action="mask"))

    assert [document["provider"] for document in outputs] == ["house"] * 3


@pytest.mark.parametrize(
    "stored", [chunk_with_member, lambda part: call({"function": {"name": part}})]
)
def test_value_that_is_found_when_repeated_passes_once(stored: Any) -> None:
    outputs = fed([stored("42")] * 4, rule("42424242", action="block"))

    assert json.dumps(outputs).count("42") == 1


AZURE: Json = {key: {"filtered": False, "severity": "safe"} for key in ("hate", "violence")}


@for_each("action", [MASK, BLOCK])
@for_each("form", ["delta", "text"])
def test_choice_with_more_texts_keeps_its_form(form: str, action: Any) -> None:
    fields: Any = {"content": "a word "} if form == "delta" else "a word "
    extra = {"content_filter_results": AZURE, "stop_reason": "END", "note": "none"}
    choice = {"index": 0, form: fields, "finish_reason": None, **extra}
    chunks = [{**HEAD, "choices": [{**choice, "finish_reason": end}]} for end in (None, "stop")]

    choices = [document["choices"][0] for document in fed(chunks, action)]

    texts = [item[form] if form == "text" else item[form].get("content", "") for item in choices]
    assert "".join(texts) == 2 * "a word "
    assert [item["finish_reason"] for item in choices].count("stop") == 1


def test_text_in_a_filter_result_is_inspected() -> None:
    fields = {"hate": {"filtered": False, "severity": "a secret"}}
    chunks = [{**HEAD, "choices": [{"index": 0, "delta": {}, "content_filter_results": fields}]}]

    with pytest.raises(GuardBlocked):
        fed(chunks, BLOCK)


def test_number_and_size_of_places_are_bounded() -> None:
    filters = RuleFilterFactory(tallies(rule("absent", action="mask")))
    texts, value = JoinableTextTracker(filters), "x" * 10_000
    tracemalloc.start()
    try:
        omitted = [
            texts.must_remove_complete_text(made.chat({name: value}), Text((name,), value, "other"))
            for name in (f"{number}{value}" for number in range(MAX_TEXT_KEYS + 1))
        ]
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert omitted == [False] * MAX_TEXT_KEYS + [True]
    assert held_bytes < 1024 * 1024


@for_each(
    ("chunks", "verdict"),
    [
        ([{"x": "sec"}, {"x": "ret"}], "not_applicable"),
        ([{"x": {"y": ["sec"]}}, {"x": {"y": ["ret"]}}], "not_applicable"),
        ([{"provider": "openai"}, {"provider": "openai"}], "passed"),
        ([{"x": "retsec"}, {"x": "retsec"}], "not_applicable"),
        ([{"x": "secret"}, {"x": "other"}], "flagged"),
        ([{"usage": {"completion_tokens": 1}}, {"usage": {"completion_tokens": 2}}], "passed"),
    ],
    ids=str,
)
async def test_flag_reports_uninspected_text(chunks: list[dict[str, Any]], verdict: str) -> None:
    watching = stream_inspector(rule("secret", action="flag"))
    choice = {"index": 0, "delta": {"content": "all is well "}}
    docs = [{"choices": [choice], **extra} for extra in chunks]
    for frame in made.read(*docs):
        assert await watching.inspect(frame) == [frame]

    [result] = watching.get_results()
    assert result.verdict == verdict
