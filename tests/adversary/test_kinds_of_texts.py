"""A text has the same kind in every API, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import orjson

from proxy.guards.stream.frame_texts import iter_other_texts, list_delta_texts
from proxy.guards.text.documents import collect_request_texts, collect_texts, walk_non_chat
from proxy.guards.text.walk import Text
from proxy.types.events import FamilyName
from tests.adversary.random_streams import frames_of, item, part_events
from tests.doubles import Json, block_events, message, message_events, response, response_events
from tests.for_each import for_each

MARK, NAME = "mark", "f_0"
KINDS: Mapping[str, str] = {
    "text": "content",
    "refusal": "refusal",
    "reasoning": "reasoning",
    "summary": "reasoning",
    "arguments": "arguments",
    "input": "arguments",
}
"""The kind of what items of Responses say."""
CALL: Json = {"id": "call_0", "name": NAME, "input": {"says": MARK}}
BLOCKS: Mapping[str, tuple[Json, Json, Json, str]] = {
    "text": ({"type": "text", "text": MARK}, {"text": ""}, {"type": "text_delta", "text": MARK},
        "content"),
    "thinking": ({"type": "thinking", "thinking": MARK, "signature": "c2ln"}, {"thinking": ""},
        {"type": "thinking_delta", "thinking": MARK}, "reasoning"),
    **{
        kind: (
            {"type": kind, **CALL},
            {"input": {}},
            {"type": "input_json_delta", "partial_json": orjson.dumps({"says": MARK}).decode()},
            "arguments",
        )
        for kind in ("tool_use", "server_tool_use", "mcp_tool_use")
    },
}  # fmt: skip
"""By a type: a block of Messages, what of it is other where it begins, its delta, and its kind."""


def streamed(upstream: FamilyName, events: Sequence[Json]) -> Iterator[Text]:
    for client in ("chat", upstream):
        for frame in frames_of(client, upstream, events):
            yield from [delta_text.text for delta_text in list_delta_texts(frame)]
            yield from collect_texts(iter_other_texts(frame)).texts


def whole_texts(document: Json, family: FamilyName) -> Sequence[Text]:
    return collect_texts(walk_non_chat(document, family, is_event=False)).texts


def kinds(texts: Iterator[Text] | Sequence[Text]) -> dict[str, set[str]]:
    results: dict[str, set[str]] = {MARK: set(), NAME: set()}
    for text in texts:
        for word, kinds in results.items():
            if word in text.text:
                kinds.add(text.kind)
    return results


@for_each("kind", KINDS)
def test_text_of_items_has_one_kind(kind: str) -> None:
    document = item(0, kind, [MARK])
    started = document | {name: [] for name in ("content", "summary") if name in document}
    started |= {name: "" for name in ("arguments", "input") if name in document}
    where = {"output_index": 0, "item_id": "it_0"}
    values = part_events(where, kind, 0, [MARK])
    steps = {"added": started, "done": document}
    added, result = (
        {"type": f"response.output_item.{step}", "output_index": 0, "item": item_document}
        for step, item_document in steps.items()
    )
    events = response_events([added, *values, result], document=response(document))
    names = {"tool"} if NAME in document.values() else set()

    for texts in (
        whole_texts(response(document), "responses"),
        collect_request_texts({"input": [document]}).texts,
        streamed("responses", events),
    ):
        assert kinds(texts) == {MARK: {KINDS[kind]}, NAME: names}


@for_each("kind", BLOCKS)
def test_text_of_blocks_has_one_kind(kind: str) -> None:
    block, started, delta, expected = BLOCKS[kind]
    events = message_events(block_events(0, block | started, delta))
    names = {"tool"} if NAME in block.values() else set()

    for texts in (
        whole_texts(message(block), "messages"),
        collect_request_texts({"messages": [{"role": "assistant", "content": [block]}]}).texts,
        streamed("messages", events),
    ):
        assert kinds(texts) == {MARK: {expected}, NAME: names}
