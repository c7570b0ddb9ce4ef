"""Whole answers cut into events, and put together again."""

from __future__ import annotations

import pytest

from proxy.dialects.messages.whole import MessageAccumulator, stream_events
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from tests.doubles import message
from tests.for_each import for_each


@for_each(
    "block",
    [
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "a", "citations": None},
        {"type": "text", "text": "a", "citations": [{"x": 1}, {"x": 2}]},
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "thinking", "thinking": "a"},
        {"type": "thinking"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, {"b": None}]}},
        {"type": "server_tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "mcp_tool_use", "id": "t", "name": "f", "server_name": "s", "input": {"a": 1}},
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "a"}]},
        {"type": "unknown", "text": 5, "members": ["a"]},
        {},
    ],
)
def test_block_is_put_together_from_its_events(block: Json) -> None:
    document = message(block, container={"id": "c"}, stop_sequence="x")
    accumulator = MessageAccumulator()

    for event in stream_events(document):
        accumulator.add(event)

    assert accumulator.message() == document


@for_each("content", [None, "text", 5, {}])
def test_content_that_is_no_list_has_no_blocks(content: object) -> None:
    assert [event["type"] for event in stream_events(message(content=content))] == [
        *("message_start", "message_delta", "message_stop")
    ]


def test_block_that_is_no_object_is_refused() -> None:
    with pytest.raises(UpstreamInvalid, match="content block that is not an object"):
        [*stream_events(message(content=[["text"]]))]
