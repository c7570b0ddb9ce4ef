"""Events without numbers, and text in unusual places of a stream, are read and guarded."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.responses.items import EventNumbers
from proxy.errors import GuardBlocked, UpstreamInvalid
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.text.members import is_ignored_member
from proxy.types.events import Frame
from proxy.types.guard import Action
from tests.adversary.invalid_values import SURROGATES, internal_errors, with_odd
from tests.adversary.random_streams import documents_of, frames_of
from tests.adversary.test_invalid_values import ITEMS, events_of_item, mask_card
from tests.dialects.responses.test_items import (
    NUMBERS,
    RICH,
    drop_members,
    numbered,
    parts_events,
    thought_events,
)
from tests.dialects.test_responses import streamed
from tests.doubles import (
    Json,
    ScriptedUpstream,
    block_events,
    item_events,
    message_events,
    response,
    response_events,
    stream,
    text_item,
)
from tests.golden.pipeline import Pipeline, written
from tests.guards.calls import ask, guarded
from tests.guards.doubles import rule as rule_of
from tests.guards.doubles import tallies
from tests.guards.stream import frames as made
from tests.test_pipeline import BEARER, MESSAGES

WORD = "hippo"
SAID_ONLY = {"delta": {"content": "a"}}
SPOKEN = {"index": 0, **SAID_ONLY}
TWICE = {"index": 0, "delta": {"content": "a", "reasoning": "b"}}
ODD: dict[str, list[Any]] = {
    "alone": [{"index": 0, "delta": {}, "finish_reason": WORD}],
    "with a text": [{**SPOKEN, "finish_reason": WORD}],
    "with two texts": [{**TWICE, "finish_reason": WORD}],
    "a list": [{**TWICE, "finish_reason": [WORD]}],
    "an object": [{**TWICE, "finish_reason": {"content": WORD}}],
    "an object, by its name": [{**TWICE, "finish_reason": {WORD: "stop"}}],
    "one number twice": [{**SPOKEN, "finish_reason": WORD}, SPOKEN],
    "one number twice, with two texts": [{**TWICE, "finish_reason": WORD}, SPOKEN],
    "a number": [
        {"index": {"content": f"the {WORD}"}, **SAID_ONLY, "finish_reason": "stop"},
        ["b"],
    ],
    "an id": [{"index": 0, "delta": {"id": WORD, "content": "a"}}],
    "a name": [{**SPOKEN, f"the {WORD}": "odd"}],
    "a name with a text": [{"index": 0, f"the {WORD}": f"the {WORD}"}],
    "a name, by two texts": [{**TWICE, f"the {WORD}": {f"the {WORD}": "odd"}}],
    "arguments that are an object": [
        {"index": 0, "delta": {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}}
        for arguments in ({"a": WORD}, {WORD: WORD, "b": [WORD, {"c": WORD}]})
    ],
    "old arguments that are an object": [
        {"index": 0, "delta": {"function_call": {"name": "f", "arguments": {"a": WORD}}}}
    ],
    "a name of a call that is an object": [
        {"index": 0, "delta": {"tool_calls": [{"function": {"name": {"a": WORD}}}]}}
    ],
    "an old name of a call that is an object": [
        {"index": 0, "delta": {"function_call": {"name": {"a": WORD, WORD: 1}}}}
    ],
    "a string for a choice": [f"the {WORD}"],
    "a list for a choice": [[f"the {WORD}"]],
    "no number and one": [{"delta": TWICE["delta"], "finish_reason": WORD}, {"index": 0}],
}
GUARD = "output: [{{guard: keywords, words: [hippo], action: {}}}]"


@pytest.mark.parametrize("action", ["mask", "flag"])
async def test_text_in_unusual_places_is_inspected(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        for name, choices in ODD.items():
            upstream.answer_with(stream([{"choices": choices}]))
            reply = await ask(proxy, "Hi", stream=True)
            [record] = await proxy.sink.wait()
            proxy.sink.forget()

            assert (reply.status, record.is_internal_error) == (200, False), name
            is_shown = action == "flag" and name != "a number"  # which becomes 0
            assert (WORD.encode() in reply.raw) == is_shown, name


async def test_usage_next_to_several_texts_is_guarded(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    usages: tuple[Any, ...] = (WORD, {"note": WORD}, {WORD: 1})
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        for usage in usages:
            upstream.answer_with(stream([{"choices": [TWICE], "usage": usage}]))
            reply = await ask(proxy, "Hi", stream=True, stream_options={"include_usage": True})

            assert reply.status == 200
            assert b'"usage":' in reply.raw
            assert WORD.encode() not in reply.raw


async def test_object_name_of_a_tool_is_guarded(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    block = {"type": "tool_use", "id": "t", "name": {"a": WORD, WORD: 1}, "input": {}}
    upstream.answer_with(stream(message_events(block_events(0, block)), is_done=False))
    body = {"model": "a", "max_tokens": 9, **MESSAGES, "stream": True}
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        headers = BEARER | {"x-headrace-deployment": "via-anthropic"}
        reply = await proxy.send("/v1/messages", body, headers)
        [record] = await proxy.sink.wait()

    assert (reply.status, record.is_internal_error) == (200, False)
    assert WORD.encode() not in reply.raw


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.5, "", "stop", "odd", WORD, f"the {WORD}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["content", "text", "index", WORD]), inner, max_size=2)
    ),
    max_leaves=3,
)
FIELDS = ["index", "delta", "message", "text", "finish_reason", "logprobs", "odd"]
PLACES = [
    "id", "type", "content", "reasoning", "tool_calls", "role", "function_call", "finish_reason",
]  # fmt: skip
DELTAS = st.dictionaries(st.sampled_from(PLACES), VALUES, max_size=3) | VALUES
CHOICES = st.lists(
    st.dictionaries(st.sampled_from(FIELDS), DELTAS, max_size=4) | VALUES, max_size=3
)
CHUNKS = st.lists(
    st.fixed_dictionaries(
        {"choices": CHOICES}, optional={"usage": VALUES, "odd": VALUES, "id": VALUES}
    ),
    min_size=1,
    max_size=3,
)


def read_of(value: Any, level: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield all strings and names of a document that guards read."""
    if isinstance(value, str):
        yield value
    for inner in value if isinstance(value, list) else ():
        yield from read_of(inner, level)
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name
        if not is_ignored_member(level, name, inner):
            yield from read_of(inner, (*level, name))


@pytest.mark.parametrize("action", ["mask", "flag", "block"])
def test_chunks_never_fail_or_leak(action: Action, examples: int) -> None:
    @settings(max_examples=examples * 3, deadline=None)
    @given(CHUNKS)
    def check_chunks(chunks: list[dict[str, Any]]) -> None:
        frames = StreamFilter.for_rules(tallies(rule_of(WORD, action=action)))
        outputs: list[Frame] = []
        try:
            for frame in made.read(*copy.deepcopy(chunks)):
                outputs += frames.feed(frame)
        except GuardBlocked:
            assert action != "flag"
        if action != "flag":
            assert WORD not in "\n".join(read_of(made.documents(outputs)))

    check_chunks()


TEXT = "my card is 4111 1111 1111 1111, is it not"
PARTS = st.lists(
    st.sampled_from([{"type": "output_text", "text": TEXT}, {"type": "refusal", "refusal": TEXT}]),
    min_size=1,
    max_size=3,
)
SUMMARIES = st.lists(st.just(TEXT), min_size=1, max_size=3)
LEFT_OUT = st.one_of(
    st.just([NUMBERS]),
    st.lists(st.lists(st.sampled_from(NUMBERS), unique=True), min_size=1, max_size=9),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[Json]:
    """Draw a numbered stream whose items are interleaved."""
    items: list[list[Json]] = [
        events_of_item(index, kind, cuts)[1] for index, (kind, cuts) in enumerate(draw(ITEMS))
    ]
    items += [parts_events(10 + index, *draw(PARTS)) for index in range(draw(st.integers(0, 2)))]
    items += [
        thought_events(20 + index, *draw(SUMMARIES)) for index in range(draw(st.integers(0, 2)))
    ]
    items = [events for events in items if not _is_thought(events) or len(events) > 1]
    waiting = [list(events) for events in items]
    order: dict[int, int] = {}
    mixed: list[Json] = []
    while any(waiting):
        local_value = draw(
            st.sampled_from([index for index, events in enumerate(waiting) if events])
        )
        event = waiting[local_value].pop(0)
        mixed.append({**event, "output_index": order.setdefault(local_value, len(order))})
    result = [document for document in mixed if document["type"] == "response.output_item.done"]
    output = [
        document["item"]
        for document in sorted(result, key=lambda document: int(document["output_index"]))
    ]
    return response_events(mixed, document=response(*output))


def _is_thought(events: Sequence[Json]) -> bool:
    return bool(events[0]["item"]["type"] == "reasoning")


def without_numbers(events: Sequence[Json], left_out: Sequence[Sequence[str]]) -> list[Json]:
    """Return events without some of their numbers, which vary by event."""
    return [
        drop_members(event, *left_out[index % len(left_out)]) for index, event in enumerate(events)
    ]


@given(scripts(), LEFT_OUT)
def test_events_without_numbers_are_read(script: list[Json], left_out: list[list[str]]) -> None:
    results = numbered(*without_numbers(script, left_out))

    assert results == script
    assert as_chat(results) == as_chat(script)
    assert streamed(mask_card(deepcopy(results))) == streamed(mask_card(deepcopy(script)))


def as_chat(events: Sequence[Json]) -> list[Json]:
    return documents_of(written("chat", frames_of("chat", "responses", events)))


@given(scripts(), st.lists(st.sampled_from(["", "x", "msg_0", "fc_1", None, 7]), min_size=1))
def test_events_are_written_for_any_kind_of_id(script: list[Json], ids: list[object]) -> None:
    odd = [
        {**document, "item_id": ids[index % len(ids)]} if "item_id" in document else document
        for index, document in enumerate(without_numbers(script, [NUMBERS]))
    ]

    results = numbered(*odd)

    assert [document["sequence_number"] for document in results] == [*range(len(script))]
    assert all("output_index" in document for document in results[2:-1])
    pipeline = Pipeline("responses", "responses", inspect=True)
    frames = pipeline.frames([orjson.dumps(event) for event in results])
    assert pipeline.error is None or isinstance(pipeline.error, UpstreamInvalid)  # ids that repeat
    streamed(written("responses", frames))


@pytest.mark.parametrize("left_out", [(), NUMBERS], ids=["numbered", "bare"])
def test_odd_event_is_read_or_refused(left_out: tuple[str, ...]) -> None:
    events = [drop_members(document, *left_out) for document in RICH]
    for index, event in enumerate(events):

        def read(odd: Json, index: int = index) -> None:
            numbers = EventNumbers()
            for document in (*events[:index], odd, *events[index + 1 :]):
                json.dumps(numbers.add_missing(document) or document)

        assert internal_errors(with_odd(event, *SURROGATES), read) == []


def test_surrogate_pair_is_joined_without_numbers() -> None:
    script = response_events(item_events(0, text_item("\U0001f600"), "\ud83d", "\ude00"))
    pipeline = Pipeline("responses", "responses")

    frames = pipeline.frames(
        [json.dumps(drop_members(document, *NUMBERS)).encode() for document in script]
    )

    assert pipeline.error is None
    deltas = [
        document["delta"]
        for document in streamed(written("responses", frames))
        if "delta" in document
    ]
    assert deltas == ["", "\U0001f600"]


@pytest.mark.parametrize("action", ["flag", "mask", "block"])
async def test_legacy_client_gets_deltas_of_cumulative_chunks(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    def chunk(text: str, so_far: str, finish: str | None = None) -> Json:
        delta, whole = ({"role": "assistant", "content": content} for content in (text, so_far))
        choice = {"index": 0, "delta": delta, "message": whole, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}

    chunks = [chunk("Hello", "Hello"), chunk(" you", "Hello you"), chunk("", "Hello you", "stop")]
    upstream.answer_with(stream(chunks))
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        reply = await proxy.complete(model="search-answers", stream=True)

    lines = [line.removeprefix("data: ") for line in reply.raw.decode().splitlines()]
    documents = [json.loads(line) for line in lines if line.startswith("{")]
    assert "".join(c["text"] for d in documents for c in d["choices"]) == "Hello you"


def choice_chunk(index: Any, delta: Json, finish: str | None = None, **members: Any) -> Json:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **members}


USED = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.mark.parametrize("index", [-1, 16384, "none"])
async def test_invalid_index_of_an_end_chunk_fails_no_complete_stream(
    index: Any, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    texts = [choice_chunk(number, {"content": f"text {number}"}, "stop") for number in (0, 1)]
    end = choice_chunk(index, {"role": "assistant", "content": ""}, "stop", usage=USED)
    upstream.answer_with(stream([*texts, end]))
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        reply = await ask(proxy, "Hi", stream=True, n=2)
        [record] = await proxy.sink.wait()

    assert (reply.status, record.error) == (200, None)
    assert b"text 0" in reply.raw
    assert b"text 1" in reply.raw
    assert record.billing.source == "provider"
    assert record.billing.tokens.total == 12


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/completions"])
async def test_client_of_one_choice_gets_the_first_with_text(
    path: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    chunks = [
        choice_chunk(0, {"role": "assistant", "content": ""}),
        choice_chunk(1, {"content": "the text"}),
        choice_chunk(0, {"content": "another"}),
        choice_chunk(1, {}, "length"),
        choice_chunk(0, {}, "stop"),
    ]
    upstream.answer_with(stream(chunks))
    body = {"model": "search-answers", "stream": True, "max_tokens": 9}
    body |= {"prompt": "Hi"} if path == "/v1/completions" else MESSAGES
    async with guarded(tmp_path, upstream, GUARD.format("mask")) as proxy:
        reply = await proxy.send(path, body)

    assert b"the text" in reply.raw
    assert b"another" not in reply.raw
    assert (b'"length"' in reply.raw) or (b'"max_tokens"' in reply.raw)
