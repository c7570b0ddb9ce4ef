"""Whatever turns the calls and texts of a streamed answer take: clients of each form get each call
as one, and no value leaves in halves of two turns, whatever form the upstream speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.hub import chat_order, turning
from proxy.dialects.reading import StreamReader
from proxy.errors import GuardBlocked
from proxy.types import Chunk, Endpoint
from tests.adversary.test_items_in_turns import (
    CARD,
    CLIENTS,
    DRAWS,
    SAYS,
    call_of,
    cut,
    drawn,
    guarded,
    in_turns,
    item,
    part_events,
    shown,
)
from tests.doubles import Json, block_events, message_events, response, response_events
from tests.for_each import for_each

UPSTREAMS: Mapping[str, tuple[str, Endpoint]] = {
    "chat": ("openai", "chat"),
    "messages": ("anthropic", "chat"),
    "responses": ("openai", "responses"),
}
ARGUMENTS = orjson.dumps({"says": SAYS}).decode()
Pieces = Sequence[str]


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def of_chat(texts: Pieces, calls: Sequence[Pieces], draws: Iterator[int]) -> list[Json]:
    """Return the chunks of a chat: some servers let calls, and the text, take turns."""
    things: list[list[Json]] = [[{"content": text} for text in texts]]
    for at, pieces in enumerate(calls):
        begun = {"index": at, "id": f"call_{at}", "function": {"name": f"f_{at}", "arguments": ""}}
        more = [{"index": at, "function": {"arguments": piece}} for piece in pieces]
        things.append([{"tool_calls": [each]} for each in (begun, *more)])
    return [*map(chunk, in_turns(things, draws)), chunk({}, "tool_calls")]


def of_messages(texts: Pieces, calls: Sequence[Pieces], draws: Iterator[int]) -> list[Json]:
    """Return the events of a message, whose blocks no server should let take turns."""
    says = [{"type": "text_delta", "text": text} for text in texts]
    blocks = [block_events(0, {"type": "text", "text": ""}, *says)]
    for at, pieces in enumerate(calls):
        begun = {"type": "tool_use", "id": f"call_{at}", "name": f"f_{at}", "input": {}}
        more = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        blocks.append(block_events(at + 1, begun, *more))
    return message_events(in_turns(blocks, draws), reason="tool_use")


def of_responses(texts: Pieces, calls: Sequence[Pieces], draws: Iterator[int]) -> list[Json]:
    said = [("text", texts), *(("arguments", pieces) for pieces in calls)]
    items, events = list[Json](), list[list[Json]]()
    for at, (kind, pieces) in enumerate(said):
        whole = item(at, kind, ["".join(pieces)])
        where = {"item_id": whole["id"], "output_index": at}
        rest: Json = {"content": []} if kind == "text" else {"arguments": ""}
        empty = {**whole, **rest}
        begun, done = (
            {"type": f"response.output_item.{step}", "output_index": at, "item": each}
            for step, each in (("added", empty), ("done", whole))
        )
        items.append(whole)
        events.append([begun, *part_events(where, kind, 0, pieces), done])
    return response_events(in_turns(events, draws), whole=response(*items))


ANSWERS: Mapping[str, Callable[[Pieces, Sequence[Pieces], Iterator[int]], list[Json]]] = {
    "chat": of_chat,
    "messages": of_messages,
    "responses": of_responses,
}
PAIRS = [(form, upstream) for form in CLIENTS for upstream in UPSTREAMS]


def chunks_of(form: str, upstream: str, documents: Sequence[Json]) -> list[Chunk]:
    """Return an answer as guards in force get it for a client."""
    call, (dialect, endpoint) = call_of(form), UPSTREAMS[upstream]
    client, spoken = DIALECTS[call.head.dialect], DIALECTS[dialect]
    wanted, given = client.families.get(call.head.endpoint), spoken.families.get(endpoint)
    own = wanted is not None and wanted == given
    reader = StreamReader(
        0,
        turning(call, endpoint, client, spoken),
        spoken.server.endpoints.get(endpoint, spoken.server),
        Documents(),
        own=own,
        ordered=True,
        chat_order=None if wanted is None or own else chat_order(call, wanted, waits=given is None),
    )
    made = [each for document in documents for each in reader.read(orjson.dumps(document))]
    return made if made[-1].last else [*made, *reader.end()]


def calls_in(form: str, answer: Any) -> list[str]:
    """Return what a client reads of each call."""
    if form == "chat":
        return [answer[key] for key in sorted(key for key in answer if isinstance(key, int))]
    if form == "messages":
        assert all(each["id"] and each["name"] for each in answer if each["type"] == "tool_use")
        return [each["said"] for each in answer if each["type"] == "tool_use"]
    return [each["arguments"] for each in answer[0] if each["type"] == "function_call"]


def texts_in(form: str, answer: Any) -> list[str]:
    """Return the texts that a client reads by themselves."""
    if form == "chat":
        return [answer["content"]]
    if form == "messages":
        return [each["said"] for each in answer if each["type"] == "text"]
    return [
        part["text"] for each in answer[0] if each["type"] == "message" for part in each["content"]
    ]


CUTS = st.lists(st.integers(0, 60), max_size=4)


@pytest.mark.parametrize(("form", "upstream"), PAIRS, ids=map("-".join, PAIRS))
@settings(max_examples=25, deadline=None)
@given(CUTS, st.lists(CUTS, min_size=2, max_size=3), DRAWS)
def test_calls_are_whole_and_nothing_leaves_in_halves(
    form: str, upstream: str, text: list[int], cuts: list[list[int]], draws: list[int]
) -> None:
    calls = [cut(ARGUMENTS, each) for each in cuts]
    documents = ANSWERS[upstream](cut(SAYS, text), calls, drawn(draws))

    plain = shown(form, chunks_of(form, upstream, documents))
    safe = shown(form, guarded(chunks_of(form, upstream, documents), "mask")[0])

    assert calls_in(form, plain) == [ARGUMENTS] * len(cuts)
    assert calls_in(form, safe) == [ARGUMENTS.replace(CARD, "[CARD]")] * len(cuts)
    assert "".join(texts_in(form, plain)) == SAYS
    assert CARD not in "".join(texts_in(form, safe))
    with pytest.raises(GuardBlocked):
        guarded(chunks_of(form, upstream, documents), "block")


@for_each("form", CLIENTS)
@for_each("mark", [{"start": {"type": "text"}}, {"stop": True}, 1, None])
def test_no_upstream_of_chats_lets_go_what_is_held(form: str, mark: Any) -> None:
    marked = [chunk({"content": piece, "block": mark}) for piece in SAYS]
    documents = [*marked, chunk({}, "stop")]

    safe = shown(form, guarded(chunks_of(form, "chat", documents), "mask")[0])

    assert "".join(texts_in(form, safe)) == SAYS.replace(CARD, "[CARD]")
