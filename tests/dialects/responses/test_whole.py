"""Whole responses become one frame, or the frames of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import UpstreamInvalid
from proxy.types.events import Begin, Delta, End, Finish, Start, Stop, UsageReport
from tests.dialects.responses.frames import kinds, read, texts, without_bytes, written
from tests.dialects.responses.test_reader import FUNCTION_CALL, MESSAGE
from tests.dialects.test_responses import streamed
from tests.doubles import Json, response
from tests.for_each import for_each
from tests.golden.events import value_at

THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "content": None}
THOUGHT["summary"] = [
    {"type": "summary_text", "text": "Hm."},
    {"type": "summary_text", "text": "So"},
]
SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}
CUSTOM: Json = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g"}
CUSTOM["input"] = "x"
DOCUMENT = response(THOUGHT, SEARCH, MESSAGE, FUNCTION_CALL, CUSTOM)
VALUES = ["Hm.", "So", "It is Paris.", '{"place": "Paris"}', "x"]


def test_a_whole_answer_is_one_frame() -> None:
    [frame] = read([DOCUMENT], whole=True)

    matches = [type(event) for event in frame.events]
    assert (matches[0], matches[-3:]) == (Start, [Finish, UsageReport, Stop])
    assert matches.count(Begin) == matches.count(End) == 8
    assert [*texts([frame]).values()] == VALUES
    for event in frame.events:
        if isinstance(event, Delta):
            assert value_at(frame.doc, event.slot) == event.text


def test_clients_of_other_families_get_no_items_of_the_provider() -> None:
    [frame] = read([DOCUMENT], whole=True, crossing=True)

    started = [event.part.kind for event in frame.events if isinstance(event, Begin)]
    assert "opaque" not in started
    assert [*texts([frame]).values()][:2] == ["Hm.", "\n\nSo"]


def test_clients_of_other_families_get_the_reasoning_instead_of_its_summary() -> None:
    item = {**THOUGHT, "content": [{"type": "reasoning_text", "text": "Long."}]}

    results = texts(read([response(item)], whole=True, crossing=True))

    assert [*results.values()] == ["Long."]


@for_each("options", [{}, {"inspect": True}, {"crossing": True}])
def test_a_whole_answer_may_become_a_stream(options: dict[str, bool]) -> None:
    frames = read([DOCUMENT], whole=True, stream=True, **options)

    assert [*texts(frames).values()] == VALUES
    assert all("Delta" not in kinds([frame]) or len(frame.events) < 4 for frame in frames)
    if not options.get("crossing"):
        ended = streamed(written(without_bytes(frames)))[-1]
        assert ended["response"]["output"] == DOCUMENT["output"]


@for_each("status", ["queued", "in_progress"])
def test_a_response_in_the_background_may_be_unfinished(status: str) -> None:
    document = response(status=status, background=True, output=[], usage=None)

    assert kinds(read([document], whole=True)) == ["Start"]
    for options in ({"crossing": True}, {}):
        with pytest.raises(UpstreamInvalid, match="not complete"):
            read([{**document, "background": not options and None}], whole=True, **options)


@for_each("output", [["x"], [None], [MESSAGE, 1]])
def test_items_are_objects(output: list[Any]) -> None:
    with pytest.raises(UpstreamInvalid, match="not an object"):
        read([{**DOCUMENT, "output": output}], whole=True)


@for_each("value", [None, 1, "x", [], ["x"], {}, {"type": "output_text", "text": ["x"]}])
@for_each("options", [{}, {"inspect": True}, {"crossing": True}, {"stream": True}])
def test_odd_values_in_items_never_break_an_answer(value: Any, options: Any) -> None:
    for item in (MESSAGE, THOUGHT, FUNCTION_CALL):
        for name in item:
            changed = {**item, name: value}
            read([response(changed)], whole=True, **options)
            read([response({**item, "content": [value]})], whole=True, **options)
