"""Searches for guarded words split over the parts, items and blocks of Responses and Messages.

An application may join parts by their indexes or show two kinds of text as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest

from proxy.dialects.responses.schema import TEXT_BY_KIND
from tests.adversary.api_responses import build_part_events
from tests.adversary.client_readers import read_documents
from tests.adversary.word_guard import ACTIONS, stream_deltas, word_guard
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
)
from tests.for_each import for_each

START, END = "to hydro", "polis now"
LOCATION: Json = {"output_index": 0, "item_id": "a", "content_index": 0}
PART_2: Json = {**LOCATION, "content_index": 1}
ITEM_2: Json = {"output_index": 1, "item_id": "b", "content_index": 0}
LOCATIONS: Mapping[str, list[tuple[str, Json]]] = {
    **{
        f"{name} between": [("hydro", LOCATION), ("X", where), ("polis", LOCATION)]
        for name, where in {
            "another id": LOCATION | {"item_id": "b"},
            "no id": LOCATION | {"item_id": None},
            "another type of index": LOCATION | {"content_index": 0.0},
            "another part": PART_2,
            "another item": ITEM_2,
        }.items()
    },
    "an item with the same id": [
        *(("hydro", LOCATION), ("X", ITEM_2)),
        ("polis", ITEM_2 | {"output_index": 2, "item_id": "a"}),
    ],
    "two parts that do not end": [("hydro", LOCATION), ("polis", PART_2)],
    "two items that do not end": [("hydro", LOCATION), ("polis", ITEM_2)],
    "parts in another order": [("polis", PART_2), ("hydro", LOCATION)],
    "items in another order": [("polis", ITEM_2), ("hydro", LOCATION)],
}


@ACTIONS
@for_each("kind", ["output_text", "reasoning_summary_text", "reasoning_text", "refusal"])
async def test_locations_of_responses_hide_no_word(
    kind: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    index_name = "summary_index" if kind.endswith("summary_text") else "content_index"
    async with word_guard(tmp_path, upstream, action) as calls:
        for name, deltas in LOCATIONS.items():
            events = []
            for text, where in deltas:
                located = {**where, index_name: where["content_index"]}
                if index_name != "content_index":
                    del located["content_index"]
                events.append({"type": f"response.{kind}.delta", "delta": text, **located})
            script = stream(response_events(events), is_done=False)
            response = await calls.send("responses", script, "responses", stream=True)

            response.require_hidden(name)
            is_ordered = not name.endswith("order")
            assert (action == "mask" and is_ordered) <= (response.reply.status == 200), name


def item(index: int, *texts: str) -> Json:
    parts = [{"type": "output_text", "text": text} for text in texts]
    return {"id": f"it_{index}", "type": "message", "role": "assistant", "content": parts}


def item_event(step: str, index: int, *texts: str) -> Json:
    event = f"response.output_item.{step}"
    return {"type": event, "output_index": index, "item": item(index, *texts)}


def part(index: int, part_index: int, text: str) -> list[Json]:
    where = {"output_index": index, "item_id": f"it_{index}"}
    return build_part_events(where, "text", part_index, [text])


def one_item(*events: Json) -> list[Json]:
    return response_events(
        [item_event("added", 0), *events], document=response(item(0, START, END))
    )


def two_items(*events: Json, texts: Sequence[str] = (START, END)) -> list[Json]:
    items = [item(index, text) for index, text in enumerate(texts)]
    return response_events(list(events), document=response(*items))


def whole_item(index: int, text: str) -> list[Json]:
    added, done = item_event("added", index), item_event("done", index, text)
    return [added, *part(index, 0, text), done]


OUT_OF_ORDER: Mapping[str, tuple[str, list[Json]]] = {
    "first part only in the final document": ("responses", one_item(*part(0, 1, END))),
    "first part only at the end of its item": (
        "responses",
        one_item(*part(0, 1, END), item_event("done", 0, START, END)),
    ),
    "parts in descending order": ("responses", one_item(*part(0, 1, END), *part(0, 0, START))),
    "deltas in descending order": (
        "responses",
        response_events(
            [part(0, 1, END)[1], part(0, 0, START)[1]], document=response(item(0, START, END))
        ),
    ),
    "part that continues after the next one": (
        "responses",
        one_item(*part(0, 0, "to "), *part(0, 1, END), part(0, 0, "hydro")[1]),
    ),
    "items in descending order": (
        "responses",
        two_items(*whole_item(1, END), *whole_item(0, START)),
    ),
    "first item only in the final document": (
        "responses",
        two_items(item_event("added", 1), *part(1, 0, END)),
    ),
    "blocks in descending order": (
        "messages",
        message_events(text_events(1, END), text_events(0, START)),
    ),
}
ORDER_RULE = b"in another order than their indexes"


@ACTIONS
@for_each("name", OUT_OF_ORDER)
async def test_parts_out_of_order_end_an_inspected_stream(
    name: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    api, events = OUT_OF_ORDER[name]
    async with word_guard(tmp_path, upstream, action) as calls:
        response = await calls.send(api, stream(events, is_done=False), api, stream=True)

    response.require_hidden(name)
    assert ORDER_RULE in response.reply.raw
    assert response.record.error is not None
    assert response.record.error.code == "upstream_invalid_response"


THOUGHT = {"type": "reasoning_text", "text": "Hm."}
IN_ORDER: Mapping[str, list[Json]] = {
    "items that take turns": two_items(
        *(item_event("added", 0), item_event("added", 1)),
        *(*part(1, 0, "b"), *part(0, 0, "a")),
        *(item_event("done", 0, "a"), item_event("done", 1, "b")),
        texts=("a", "b"),
    ),
    "reasoning only in the final document": response_events(
        whole_item(1, "b"),
        document=response(
            {"id": "rs_0", "type": "reasoning", "summary": [], "content": [THOUGHT]}, item(1, "b")
        ),
    ),
}


@for_each("events", IN_ORDER.values(), ids=[*IN_ORDER])
async def test_parts_in_order_pass(
    events: list[Json], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, "block") as calls:
        script = stream(events, is_done=False)
        response = await calls.send("responses", script, "responses", stream=True)

    assert read_documents(response.reply.raw)[-1]["type"] == "response.completed"
    assert ORDER_RULE not in response.reply.raw


Pieces = Sequence[tuple[str, str]]
"""The pieces of a response in order, each a kind and a text."""
CHAT_MEMBERS = {"text": "content", "refusal": "refusal"}


def stream_chat(pieces: Pieces) -> Script:
    return stream_deltas(*({CHAT_MEMBERS[kind]: text} for kind, text in pieces), {})


def answer_chat(pieces: Pieces) -> Script:
    message: Json = {"role": "assistant"}
    for kind, text in pieces:
        member = CHAT_MEMBERS[kind]
        message[member] = message.get(member, "") + text
    return respond(chat(choices=[{"index": 0, "message": message, "finish_reason": "stop"}]))


def build_item(pieces: Pieces) -> tuple[Json, list[Json]]:
    """Return a response whose item has each piece as a part, and the events of the item."""
    item_type = TEXT_BY_KIND[pieces[0][0]].item_type
    started: Json = {"id": "it_0", "type": item_type, "role": "assistant", "content": []}
    events: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": started}
    ]
    done: Json = {**started, "content": [], "summary": []}
    for kind, text in pieces:
        text_type = TEXT_BY_KIND[kind]
        parts = done[text_type.list_member]
        where = {"output_index": 0, "item_id": "it_0"}
        events += build_part_events(where, kind, len(parts), [text])
        parts.append({"type": text_type.part_type, text_type.member: text})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": done})
    return response(done), events


def stream_response(pieces: Pieces) -> Script:
    document, events = build_item(pieces)
    return stream(response_events(events, document=document), is_done=False)


SCRIPTS: Mapping[str, tuple[str, Callable[[Pieces], Script], Sequence[bool]]] = {
    "streamed chat": ("chat", stream_chat, [True]),
    "whole chat": ("chat", answer_chat, [True, False]),
    "streamed response": ("responses", stream_response, [True]),
    "whole response": ("responses", lambda p: respond(build_item(p)[0]), [True, False]),
}
"""The API of an upstream, its script, and whether clients may request a stream."""


def list_splits(first: str, second: str) -> Iterator[Pieces]:
    yield (first, START), (second, END)
    yield (second, START), (first, END)
    yield (first, "to hy"), (second, "dropo"), (first, "lis now")


@ACTIONS
@pytest.mark.parametrize(
    ("kinds", "clients", "fields"),
    [
        *(
            (("text", "refusal"), ["messages"], fields)
            for fields in ("", ", fields: [content]", ", fields: [refusal]")
        ),
        (("reasoning", "summary"), ["messages", "chat"], ""),
    ],
    ids=str,
)
async def test_word_split_over_kinds_of_text_is_hidden(
    kinds: tuple[str, str],
    clients: Sequence[str],
    fields: str,
    action: str,
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    """The APIs of these clients show both kinds as one, also from the cache."""
    scripts = [name for name in SCRIPTS if "text" in kinds or name.endswith("response")]
    async with word_guard(tmp_path, upstream, action + fields, ", cache: {ttl: 1h}") as calls:
        for client, name, pieces in product(clients, scripts, list_splits(*kinds)):
            api, build_script, stream_options = SCRIPTS[name]
            for is_stream in stream_options:
                label = f"{client}, {name}, {pieces}, {is_stream}"
                body = {"messages": [{"role": "user", "content": label}], "stream": is_stream}
                for cache in ("miss", "hit"):
                    response = await calls.send(client, build_script(pieces), api, **body)

                    response.require_hidden(label, cache)
                    if action == "mask":
                        status = response.record.cache, response.reply.status
                        assert status == (cache, 200), label
                        # Whole responses have one order, and some reasoning is left out.
                        is_shown = "text" in kinds and name.startswith("streamed")
                        assert not is_shown or b"[WORD]" in response.reply.raw, label
