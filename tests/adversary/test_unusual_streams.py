"""Searches for streams that fail, leak or lose text because an event is odd but plausible.

Text may be in unusual members, events may have no numbers, and ends may come twice.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GuardBlocked, UpstreamInvalid
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.text.members import is_ignored_member
from proxy.types.events import FamilyName, Frame
from proxy.types.guard import Action
from tests.adversary.api_responses import (
    ARGUMENTS,
    SENTENCE,
    build_item_events,
    cut,
    inspect_frames,
    read_frames,
)
from tests.adversary.client_readers import read_documents, read_response_stream
from tests.adversary.word_guard import WORD, choice, chunk, word_guard
from tests.dialects.responses.test_items import NUMBERS, drop_members, numbered
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
from tests.guards.doubles import rule, tallies
from tests.guards.stream import frames as chat_frames

DELTA = {"delta": {"content": "a"}}
TEXT = {"index": 0, **DELTA}
TWO_TEXTS = {"index": 0, "delta": {"content": "a", "reasoning": "b"}}
UNUSUAL_CHOICES: Mapping[str, list[Any]] = {
    "alone": [{"index": 0, "delta": {}, "finish_reason": WORD}],
    "with a text": [{**TEXT, "finish_reason": WORD}],
    "with two texts": [{**TWO_TEXTS, "finish_reason": WORD}],
    "a list": [{**TWO_TEXTS, "finish_reason": [WORD]}],
    "an object": [{**TWO_TEXTS, "finish_reason": {"content": WORD}}],
    "an object, by its name": [{**TWO_TEXTS, "finish_reason": {WORD: "stop"}}],
    "one number twice": [{**TEXT, "finish_reason": WORD}, TEXT],
    "one number twice, with two texts": [{**TWO_TEXTS, "finish_reason": WORD}, TEXT],
    "a number": [
        {"index": {"content": f"the {WORD}"}, **DELTA, "finish_reason": "stop"},
        ["b"],
    ],
    "an id": [{"index": 0, "delta": {"id": WORD, "content": "a"}}],
    "a name": [{**TEXT, f"the {WORD}": "odd"}],
    "a name with a text": [{"index": 0, f"the {WORD}": f"the {WORD}"}],
    "a name, by two texts": [{**TWO_TEXTS, f"the {WORD}": {f"the {WORD}": "odd"}}],
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
    "no number and one": [{"delta": TWO_TEXTS["delta"], "finish_reason": WORD}, {"index": 0}],
}


@pytest.mark.parametrize("action", ["mask", "flag"])
async def test_text_in_unusual_members_is_inspected(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, action) as calls:
        for name, choices in UNUSUAL_CHOICES.items():
            script = stream([{"choices": choices}])
            response = await calls.send("chat", script, stream=True)

            assert response.reply.status == 200, name
            is_shown = action == "flag" and name != "a number"  # which becomes 0
            assert (WORD.encode() in response.reply.raw) == is_shown, name


async def test_text_in_usage_and_names_is_masked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    options: Json = {"stream": True, "stream_options": {"include_usage": True}}
    usages: tuple[Any, ...] = (WORD, {"note": WORD}, {WORD: 1})
    block = {"type": "tool_use", "id": "t", "name": {"a": WORD, WORD: 1}, "input": {}}
    async with word_guard(tmp_path, upstream, "mask") as calls:
        for usage in usages:
            script = stream([{"choices": [TWO_TEXTS], "usage": usage}])
            response = await calls.send("chat", script, **options)

            response.require_hidden(usage)
            assert b'"usage":' in response.reply.raw
        script = stream(message_events(block_events(0, block)), is_done=False)
        response = await calls.send("messages", script, "messages", stream=True)

    response.require_hidden(block)
    assert response.reply.status == 200


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.5, "", "stop", "odd", WORD, f"the {WORD}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["content", "text", "index", WORD]), inner, max_size=2)
    ),
    max_leaves=3,
)
FIELDS = ["index", "delta", "message", "text", "finish_reason", "logprobs", "odd"]
MEMBERS = [
    "id", "type", "content", "reasoning", "tool_calls", "role", "function_call", "finish_reason",
]  # fmt: skip
DELTAS = st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=3) | VALUES
CHOICE_LISTS = st.lists(
    st.dictionaries(st.sampled_from(FIELDS), DELTAS, max_size=4) | VALUES, max_size=3
)
CHUNKS = st.lists(
    st.fixed_dictionaries(
        {"choices": CHOICE_LISTS}, optional={"usage": VALUES, "odd": VALUES, "id": VALUES}
    ),
    min_size=1,
    max_size=3,
)


def iter_read_texts(value: Any, level: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield all strings and names of a document that guards read."""
    if isinstance(value, str):
        yield value
    for inner in value if isinstance(value, list) else ():
        yield from iter_read_texts(inner, level)
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name
        if not is_ignored_member(level, name, inner):
            yield from iter_read_texts(inner, (*level, name))


@pytest.mark.parametrize("action", ["mask", "flag", "block"])
def test_chunks_never_fail_or_leak(action: Action, examples: int) -> None:
    @settings(max_examples=examples * 3, deadline=None)
    @given(CHUNKS)
    def check_chunks(chunks: list[dict[str, Any]]) -> None:
        frames = StreamFilter.for_rules(tallies(rule(WORD, action=action)))
        outputs: list[Frame] = []
        try:
            for frame in chat_frames.read(*copy.deepcopy(chunks)):
                outputs += frames.feed(frame)
        except GuardBlocked:
            assert action != "flag"
        if action != "flag":
            assert WORD not in "\n".join(iter_read_texts(chat_frames.documents(outputs)))

    check_chunks()


ITEMS = st.lists(
    st.tuples(
        st.sampled_from(["text", "refusal", "summary", "reasoning", "arguments"]),
        st.integers(1, 3),
        st.lists(st.integers(1, 60), max_size=6),
    ),
    min_size=1,
    max_size=4,
)
QUERY: Json = {"type": "web_search_call", "action": {"query": SENTENCE}}
MISSING_NUMBERS = st.one_of(
    st.just([NUMBERS]),
    st.lists(st.lists(st.sampled_from(NUMBERS), unique=True), min_size=1, max_size=9),
)


@st.composite
def responses_streams(draw: st.DrawFn, *, has_bare_items: bool = False) -> list[Json]:
    """Draw a stream of items that take turns. A bare item has no other event than its last."""
    items: list[list[Json]] = []
    for index, (kind, count, cuts) in enumerate(draw(ITEMS)):
        text = ARGUMENTS if kind == "arguments" else SENTENCE
        pieces = [cut(text, cuts)] * (1 if kind == "arguments" else count)
        events = build_item_events(index, kind, *pieces)
        items.append(events[-1:] if has_bare_items and draw(st.booleans()) else events)
    if draw(st.booleans()):
        done = {"type": "response.output_item.done", "item": {**QUERY, "id": "ws_1"}}
        items.append([done])
    waiting, order, mixed = [[*events] for events in items], dict[int, int](), list[Json]()
    while any(waiting):
        chosen = draw(st.sampled_from([n for n, events in enumerate(waiting) if events]))
        index = order.setdefault(chosen, len(order))
        mixed.append({**waiting[chosen].pop(0), "output_index": index})
    final = {e["output_index"]: e["item"] for e in mixed if e["type"].endswith("output_item.done")}
    return response_events(mixed, document=response(*(final[n] for n in sorted(final))))


def without_numbers(events: Sequence[Json], missing: Sequence[Sequence[str]]) -> list[Json]:
    """Return events without some of their numbers, which vary by event."""
    return [drop_members(e, *missing[n % len(missing)]) for n, e in enumerate(events)]


def read_as_chat(events: Sequence[Json]) -> list[Json]:
    return read_documents(written("chat", read_frames("chat", "responses", events)))


def mask_card(events: Sequence[Json]) -> bytes:
    frames = read_frames("responses", "responses", copy.deepcopy(events))
    return written("responses", inspect_frames(frames)[0])


@given(responses_streams(), MISSING_NUMBERS)
def test_events_without_numbers_are_read(events: list[Json], missing: list[list[str]]) -> None:
    found = numbered(*without_numbers(events, missing))

    assert found == events
    assert read_as_chat(found) == read_as_chat(events)
    assert streamed(mask_card(found)) == streamed(mask_card(events))


@given(responses_streams(has_bare_items=True))
def test_repeated_items_are_masked_like_their_deltas(events: list[Json]) -> None:
    raw = mask_card(events)

    assert b"1111 1111" not in raw
    output = read_response_stream(raw)
    expected = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == [item["type"] for item in expected]


@given(
    responses_streams(), st.lists(st.sampled_from(["", "x", "msg_0", "fc_1", None, 7]), min_size=1)
)
def test_events_are_written_for_any_kind_of_id(events: list[Json], ids: list[object]) -> None:
    odd = [
        {**event, "item_id": ids[index % len(ids)]} if "item_id" in event else event
        for index, event in enumerate(without_numbers(events, [NUMBERS]))
    ]

    found = numbered(*odd)

    assert [event["sequence_number"] for event in found] == [*range(len(events))]
    assert all("output_index" in event for event in found[2:-1])
    pipeline = Pipeline("responses", "responses", inspect=True)
    frames = pipeline.frames([orjson.dumps(event) for event in found])
    assert pipeline.error is None or isinstance(pipeline.error, UpstreamInvalid)  # ids that repeat
    streamed(written("responses", frames))


def test_surrogate_pair_is_joined_without_numbers() -> None:
    events = response_events(item_events(0, text_item("\U0001f600"), "\ud83d", "\ude00"))
    pipeline = Pipeline("responses", "responses")

    documents = (json.dumps(event).encode() for event in without_numbers(events, [NUMBERS]))
    frames = pipeline.frames([*documents])

    assert pipeline.error is None
    written_events = streamed(written("responses", frames))
    assert [e["delta"] for e in written_events if "delta" in e] == ["", "\U0001f600"]


@pytest.mark.parametrize("action", ["flag", "mask", "block"])
async def test_legacy_client_gets_deltas_of_cumulative_chunks(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    texts = (("Hello", "Hello", None), (" you", "Hello you", None), ("", "Hello you", "stop"))
    chunks = [
        chunk({**choice({"content": text}, finish), "message": {"content": so_far}})
        for text, so_far, finish in texts
    ]
    async with word_guard(tmp_path, upstream, action) as calls:
        response = await calls.send("completions", stream(chunks), stream=True)

    assert response.texts[("first"), "text"] == "Hello you"


@pytest.mark.parametrize("index", [-1, 16384, "none"])
async def test_invalid_index_of_an_end_chunk_fails_no_complete_stream(
    index: Any, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    used = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    texts = [chunk(choice({"content": f"text {n}"}, "stop", n)) for n in (0, 1)]
    end = chunk(choice({"role": "assistant", "content": ""}, "stop", index), usage=used)
    async with word_guard(tmp_path, upstream, "mask") as calls:
        response = await calls.send("chat", stream([*texts, end]), stream=True, n=2)

    record = response.record
    assert (response.reply.status, record.error) == (200, None)
    assert all(text in response.reply.raw for text in (b"text 0", b"text 1"))
    assert (record.billing.usage_source, record.billing.tokens.total) == ("provider", 12)


@pytest.mark.parametrize("client", ["chat", "messages", "completions"])
async def test_client_of_one_choice_gets_the_first_with_text(
    client: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    choices = (
        choice({"role": "assistant", "content": ""}),
        choice({"content": "the text"}, index=1),
        choice({"content": "another"}),
        choice({}, "length", 1),
        choice({}, "stop"),
    )
    async with word_guard(tmp_path, upstream, "mask") as calls:
        script = stream(map(chunk, choices))
        raw = (await calls.send(client, script, stream=True, max_tokens=9)).reply.raw

    assert b"the text" in raw
    assert b"another" not in raw
    assert b'"length"' in raw or b'"max_tokens"' in raw


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
@pytest.mark.parametrize("pieces", [("", "ab", "c"), ("", "", "abc"), ("a", "", "bc"), ("abc", "")])
@pytest.mark.parametrize("is_tool_call", [False, True])
def test_empty_deltas_repeat_no_text(
    client: FamilyName, pieces: Sequence[str], is_tool_call: bool
) -> None:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "abc"}
    item = call if is_tool_call else text_item("abc")
    events = response_events(item_events(0, item, *pieces), document=response(item))
    pipeline = Pipeline("responses", client, inspect=client == "responses")
    frames = pipeline.frames([orjson.dumps(event) for event in events])
    documents = read_documents(written(client, frames))

    assert pipeline.error is None
    deltas = [delta for document in documents for delta in _list_delta_texts(document)]
    assert "".join(deltas) == "abc"
    assert "abcabc" not in json.dumps(documents)


def _list_delta_texts(document: Json) -> Iterator[str]:
    """Yield each text of a delta, of any family."""
    for choice_ in document.get("choices", ()):
        yield choice_["delta"].get("content") or ""
        yield from (
            call["function"]["arguments"] for call in choice_["delta"].get("tool_calls", ())
        )
    delta = document.get("delta", "")
    yield delta if isinstance(delta, str) else delta.get("text") or delta.get("partial_json") or ""
