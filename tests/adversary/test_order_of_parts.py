"""A client that joins parts by their index reads no word that guards read in another order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.random_streams import documents_of, part_events
from tests.adversary.test_cut_texts import ACTIONS, GUARD
from tests.doubles import (
    Json,
    ScriptedUpstream,
    message_events,
    response,
    response_events,
    stream,
    text_events,
)
from tests.guards.calls import guarded
from tests.test_pipeline import BEARER

FIRST, SECOND = "to hydro", "polis now"
RULE = b"in another order than their indexes"


def item_of(index: int, *texts: str) -> Json:
    parts = [{"type": "output_text", "text": text} for text in texts]
    return {"id": f"it_{index}", "type": "message", "role": "assistant", "content": parts}


def item_event(step: str, index: int, *texts: str) -> Json:
    event = f"response.output_item.{step}"
    return {"type": event, "output_index": index, "item": item_of(index, *texts)}


def part(index: int, part_index: int, text: str) -> list[Json]:
    return part_events(
        {"output_index": index, "item_id": f"it_{index}"}, "text", part_index, [text]
    )


def responses_stream(*events: Json, items: int = 1) -> list[Json]:
    whole = item_of(0, FIRST, SECOND)
    output = [whole] if items == 1 else [item_of(0, FIRST), item_of(1, SECOND)]
    return response_events(list(events), document=response(*output))


ADDED = item_event("added", 0)
OUT_OF_ORDER: Mapping[str, tuple[str, list[Json]]] = {
    "first part only in the final document": (
        "/v1/responses",
        responses_stream(ADDED, *part(0, 1, SECOND)),
    ),
    "first part only at the end of its item": (
        "/v1/responses",
        responses_stream(ADDED, *part(0, 1, SECOND), item_event("done", 0, FIRST, SECOND)),
    ),
    "parts in descending order": (
        "/v1/responses",
        responses_stream(ADDED, *part(0, 1, SECOND), *part(0, 0, FIRST)),
    ),
    "deltas in descending order": (
        "/v1/responses",
        responses_stream(part(0, 1, SECOND)[1], part(0, 0, FIRST)[1]),
    ),
    "part that continues after the next one": (
        "/v1/responses",
        responses_stream(ADDED, *part(0, 0, "to "), *part(0, 1, SECOND), part(0, 0, "hydro")[1]),
    ),
    "items in descending order": (
        "/v1/responses",
        responses_stream(
            item_event("added", 1),
            *part(1, 0, SECOND),
            item_event("done", 1, SECOND),
            item_event("added", 0),
            *part(0, 0, FIRST),
            item_event("done", 0, FIRST),
            items=2,
        ),
    ),
    "first item only in the final document": (
        "/v1/responses",
        responses_stream(item_event("added", 1), *part(1, 0, SECOND), items=2),
    ),
    "blocks in descending order": (
        "/v1/messages",
        message_events(text_events(1, SECOND), text_events(0, FIRST)),
    ),
}


def joined_by_index(raw: bytes) -> str:
    """Return the texts of all deltas in the order of their indexes."""
    texts: dict[tuple[Any, ...], str] = {}
    for event in documents_of(raw):
        if event["type"].endswith("delta"):
            delta = event.get("delta", "")
            key = event.get("output_index", 0), event.get("content_index", event.get("index", 0))
            text = delta.get("text", "") if isinstance(delta, dict) else delta
            texts[key] = texts.get(key, "") + text
    return "".join(texts[key] for key in sorted(texts))


@ACTIONS
@pytest.mark.parametrize("name", OUT_OF_ORDER)
async def test_parts_out_of_order_end_an_inspected_stream(
    name: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path, events = OUT_OF_ORDER[name]
    upstream.answer_with(stream(events, is_done=False))
    body: Json = {"model": "responses-only", "input": "Hi", "stream": True}
    headers = dict(BEARER)
    if path == "/v1/messages":
        body |= {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
        del body["input"]
        headers["x-headrace-deployment"] = "via-anthropic"
    async with guarded(tmp_path, upstream, GUARD.format(action)) as proxy:
        reply = await proxy.send(path, body, headers)
        [record] = await proxy.sink.wait()

    assert "hydropolis" not in joined_by_index(reply.raw)
    assert RULE in reply.raw
    assert record.error is not None
    assert record.error.code == "upstream_invalid_response"


THOUGHT = {"type": "reasoning_text", "text": "Hm."}
IN_ORDER: Mapping[str, list[Json]] = {
    "items that take turns": responses_stream(
        item_event("added", 0),
        item_event("added", 1),
        *part(1, 0, "b"),
        *part(0, 0, "a"),
        item_event("done", 0, "a"),
        item_event("done", 1, "b"),
        items=2,
    ),
    "reasoning only in the final document": response_events(
        [item_event("added", 1), *part(1, 0, "b"), item_event("done", 1, "b")],
        document=response(
            {"id": "rs_0", "type": "reasoning", "summary": [], "content": [THOUGHT]},
            item_of(1, "b"),
        ),
    ),
}


@pytest.mark.parametrize("name", IN_ORDER)
async def test_parts_in_order_pass(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(IN_ORDER[name], is_done=False))
    body = {"model": "responses-only", "input": "Hi", "stream": True}
    async with guarded(tmp_path, upstream, GUARD.format("block")) as proxy:
        reply = await proxy.send("/v1/responses", body)

    assert documents_of(reply.raw)[-1]["type"] == "response.completed"
    assert RULE not in reply.raw
