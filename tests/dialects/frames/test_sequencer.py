"""Interleaved parts are released one after the other, with all of their text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.frames.sequencer import MAX_FRAMES, Sequencer
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types.events import (
    RESPONSE_END,
    Closing,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    replace_at_slot,
)
from tests.checked import checked
from tests.doubles import response_events
from tests.golden.pipeline import Pipeline

START = Frame((ResponseStart("id", "model", None),))
FINISH, LAST_FRAME = Frame((Finish(0, "stop"),)), Frame((RESPONSE_END,), last=True)


def sequenced(frames: Iterable[Frame]) -> list[Frame]:
    """Return the sequenced frames of a response. Checks their order before and after."""
    sequencer = Sequencer()
    out = [item for frame in checked(frames, split=True) for item in sequencer.feed(frame)]
    return checked([*out, *sequencer.end()], split=True, sequenced=True)


def frame_of(event: Event) -> Frame:
    return Frame((event,))


def frames_of(*events: Event) -> list[Frame]:
    """Return the start of a response and a frame for each event."""
    return [START, *map(frame_of, events)]


def deltas_of(frames: Iterable[Frame]) -> list[Delta]:
    return [event for frame in frames for event in frame.events if isinstance(event, Delta)]


def texts(frames: Iterable[Frame]) -> list[str]:
    """Return the texts of the parts in the order in which they begin."""
    results: dict[Part, str] = {}
    for frame in frames:
        for event in frame.events:
            if isinstance(event, PartStart | Delta):
                text = event.text if isinstance(event, Delta) else ""
                results[event.part] = results.get(event.part, "") + text
    return [*results.values()]


def test_tool_call_ends_with_its_json() -> None:
    a, b = (Part("arguments", number, closing="json") for number in range(2))
    deltas = (a, '{"a":'), (b, '{"b"'), (b, ":2}"), (a, '"}"}'), (a, " ")
    frames = frames_of(PartStart(a), PartStart(b), *(Delta(*delta) for delta in deltas))

    assert texts(sequenced([*frames, FINISH, LAST_FRAME])) == ['{"a":"}"}', '{"b":2}']

    with pytest.raises(UpstreamInvalid, match="continued a tool call"):
        sequenced([*frames, frame_of(Delta(a, "x")), FINISH, LAST_FRAME])


def test_children_of_an_item_are_sequenced() -> None:
    item = Part("item", 0)
    children = [Part("text", number, parent=item) for number in range(3)]
    frames = frames_of(
        *map(PartStart, (item, *children)),
        *(Delta(part, str(part.number)) for part in (*children, *children)),
        *map(PartEnd, (*reversed(children), item)),
    )

    assert texts(sequenced([*frames, FINISH, LAST_FRAME])) == ["", "00", "11", "22"]


def test_waiting_parts_follow_the_open_one_at_a_cut() -> None:
    items = [Part("item", number) for number in range(2)]
    children = [Part("text", number, parent=items[0]) for number in range(3)]
    opened = [event for c in children for event in (PartStart(c), Delta(c, str(c.number)))]
    assert texts(sequenced(frames_of(PartStart(items[0]), *opened))) == ["", "0", "1", "2"]

    children = [Part("text", 0, parent=item) for item in items]
    deltas = [Delta(part, str(index)) for index, part in enumerate(children)]
    frames = frames_of(*map(PartStart, (*items, *children)), *deltas)
    assert texts(sequenced(frames)) == ["", "0", "", "1"]


def test_frames_before_an_error_are_returned() -> None:
    a, b, c = (Part("arguments", number, closing="json") for number in range(3))
    frames = frames_of(
        PartStart(a), Delta(a, "{}"), PartStart(b), PartStart(c), Delta(c, "{}"), Delta(a, "x")
    )
    sequencer = Sequencer()
    out = [item for frame in frames for item in sequencer.feed(frame)]

    with pytest.raises(UpstreamInvalid, match="continued a tool call"):
        sequencer.feed(frame_of(Delta(b, "{}")))

    assert texts([*out, *sequencer.end()]) == ["{}", "{}", "{}"]


def test_waiting_deltas_are_joined_in_their_document() -> None:
    a, b = (Part("text", number) for number in range(2))
    sequencer = Sequencer()
    for event in (PartStart(a), PartStart(b)):
        sequencer.feed(frame_of(event))
    for text in "xyz":
        doc = {"at": 1, "delta": {"text": text}}
        assert sequencer.feed(Frame((Delta(b, text, ("delta", "text")),), "messages", doc)) == []

    [_, begin, delta] = sequencer.feed(frame_of(PartEnd(a)))

    assert begin == frame_of(PartStart(b))
    assert delta.doc == {"at": 1, "delta": {"text": "xyz"}}
    assert texts([begin, delta]) == ["xyz"]


def test_waiting_text_is_bounded() -> None:
    sequencer = Sequencer()
    sequencer.feed(frame_of(PartStart(Part("text", 0))))
    with pytest.raises(ResponseTooLarge, match="interleaved"):
        for number in range(MAX_FRAMES + 1):
            sequencer.feed(frame_of(PartStart(Part("text", number + 1))))


def test_replacing_copies_only_the_path() -> None:
    doc = {"a": [{"b": "x"}, {"b": "y"}], "c": {}}
    document = replace_at_slot(doc, ("a", 1, "b"), "z")

    assert doc["a"] == [{"b": "x"}, {"b": "y"}]
    assert document == {"a": [{"b": "x"}, {"b": "z"}], "c": {}}
    assert document["c"] is doc["c"]


CLOSINGS: list[Closing] = ["marked", "implicit", "json"]


@given(
    st.lists(st.sampled_from(CLOSINGS), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_no_text_is_lost(kinds: list[Closing], turns: list[int], choices: list[int]) -> None:
    parts = [
        Part("arguments" if closing == "json" else "text", number, closing=closing, choice=choice)
        for number, (closing, choice) in enumerate(zip(kinds, choices, strict=False))
    ]
    frames, expected = frames_of(*map(PartStart, parts)), defaultdict[Part, str](str)
    for index, turn in enumerate(turns):
        part = parts[turn % len(parts)]
        text = f"[{index}]" if part.closing == "json" and expected[part] else "{"
        text = text if part.closing == "json" else f"{index},"
        expected[part] += text
        frames.append(frame_of(Delta(part, text)))
    frames += [frame_of(PartEnd(part)) for part in parts if part.closing == "marked"]
    frames += [frame_of(Finish(choice, "stop")) for choice in {part.choice for part in parts}]

    result: dict[Part, str] = defaultdict(str)
    for delta in deltas_of(sequenced([*frames, LAST_FRAME])):
        origin = delta.part
        while origin.continues is not None:
            origin = origin.continues
        result[origin] += delta.text

    assert result == {part: text for part, text in expected.items() if text}


def test_part_that_begins_with_its_item_ends_before_the_next() -> None:
    location = {"output_index": 0, "item_id": "a"}
    events = [
        {"type": "response.output_text.delta", "delta": text, **location, "content_index": index}
        for text, index in (("a", 0), ("b", 1), ("c", 0))
    ]
    pipeline = Pipeline("responses", "responses", inspect=True)

    frames = pipeline.frames([json.dumps(event).encode() for event in response_events(events)])

    assert [delta.text for delta in deltas_of(frames)][:3] == ["a", "c", "b"]
