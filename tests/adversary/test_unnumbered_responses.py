"""Responses events without numbers are read, guarded and translated as numbered ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.items import EventNumbers
from proxy.errors import UpstreamInvalid
from tests.adversary.answers import documents_of, frames_of
from tests.adversary.odd_values import SURROGATES, internal_errors, with_odd
from tests.adversary.test_odd_answers import ITEMS, events_of_item, masked
from tests.dialects.responses.test_items import (
    NUMBERS,
    RICH,
    numbered,
    parts_events,
    thought_events,
    without,
)
from tests.dialects.test_responses import streamed
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.golden.pipeline import Pipeline, written

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
    """Draw a stream that has its numbers, the events of whose items take turns."""
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


def bare(events: Sequence[Json], left_out: Sequence[Sequence[str]]) -> list[Json]:
    """Return events without some of their numbers, each in its turn without others."""
    return [without(event, *left_out[index % len(left_out)]) for index, event in enumerate(events)]


@given(scripts(), LEFT_OUT)
def test_reads_events_without_numbers(script: list[Json], left_out: list[list[str]]) -> None:
    results = numbered(*bare(script, left_out))

    assert results == script
    assert across(results) == across(script)
    assert streamed(masked(deepcopy(results))) == streamed(masked(deepcopy(script)))


def across(events: Sequence[Json]) -> list[Json]:
    return documents_of(written("chat", frames_of("chat", "responses", events)))


@given(scripts(), st.lists(st.sampled_from(["", "x", "msg_0", "fc_1", None, 7]), min_size=1))
def test_writes_events_for_any_kind_of_id(script: list[Json], ids: list[object]) -> None:
    odd = [
        {**document, "item_id": ids[index % len(ids)]} if "item_id" in document else document
        for index, document in enumerate(bare(script, [NUMBERS]))
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
    events = [without(document, *left_out) for document in RICH]
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
        [json.dumps(without(document, *NUMBERS)).encode() for document in script]
    )

    assert pipeline.error is None
    deltas = [
        document["delta"]
        for document in streamed(written("responses", frames))
        if "delta" in document
    ]
    assert deltas == ["", "\U0001f600"]
