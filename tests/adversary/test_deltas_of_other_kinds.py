"""Deltas that a chat has no place for, as of the tools that a provider runs: however the texts of
several of them are cut, and whatever turns they take, guards read each as its client does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.messages.writing import MessageEvents
from proxy.dialects.responses.events import ResponseEvents
from proxy.dialects.responses.words import KINDS
from proxy.errors import GuardBlocked
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.stream.placeholders import Masks, placeholder_key
from proxy.types import Chunk
from tests.adversary.test_items_in_turns import (
    CARD,
    CLIENTS,
    DRAWS,
    ITEMS,
    SAYS,
    call_of,
    chunks_of,
    cut,
    drawn,
    guarded,
    in_turns,
    item,
    part_events,
    shown,
)
from tests.adversary.test_turns_of_dialects import chunks_of as chunks_between
from tests.dialects.test_anthropic import events_of
from tests.doubles import Json, block_events, message_events, response, response_events
from tests.for_each import for_each

OF_ITEM: Json = {"output_index": 0, "item_id": "it_0"}
DELTAS: Mapping[str, tuple[Json, Any]] = {
    "response.audio.delta": ({}, "{}"),
    "response.audio.transcript.delta": ({}, "{}"),
    "response.code_interpreter_call_code.delta": (OF_ITEM, "{}"),
    "response.mcp_call_arguments.delta": (OF_ITEM, "{}"),
    "response.shell_call_command.delta": ({"output_index": 0, "command_index": 0}, "{}"),
    "response.shell_call_command.delta ": ({"output_index": 0, "command_index": 1}, "{}"),
    "response.shell_call_output_content.delta": (
        {**OF_ITEM, "command_index": 0},
        {"stdout": "{}"},
    ),
    "response.shell_call_output_content.delta ": (
        {**OF_ITEM, "command_index": 0},
        {"stderr": "{}"},
    ),
    "response.nobody_knows.delta": (OF_ITEM, "{}"),
}
"""By the type: what says of what a delta is, and its text. Two of one type differ in that."""
CUTS = st.lists(st.integers(0, 60), max_size=4)


def delta(name: str, piece: str) -> Json:
    """Return a delta that says a piece of a text."""
    where, text = DELTAS[name]
    inner: Any = piece if text == "{}" else dict.fromkeys(text, piece)
    return {"type": name.strip(), **where, "delta": inner}


def texts_of(chunks: Sequence[Chunk]) -> dict[Any, str]:
    """Return the texts that a client puts together."""
    writer = ResponseEvents(call_of("responses"))
    texts: dict[Any, str] = {}
    for _, event in events_of(b"".join([writer.feed(chunk) for chunk in chunks])):
        if event["type"].endswith(".delta"):
            said = event["delta"]
            for name, piece in said.items() if isinstance(said, dict) else (("", said),):
                place = event["type"], event.get("command_index"), name
                texts[place] = texts.get(place, "") + piece
    return texts


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(DELTAS)), CUTS), min_size=1, max_size=3), DRAWS)
def test_reads_kinds_of_text_apart(said: list[tuple[str, list[int]]], draws: list[int]) -> None:
    kinds = dict(said)
    lists = [[delta(name, piece) for piece in cut(SAYS, each)] for name, each in kinds.items()]
    events = response_events(in_turns(lists, drawn(draws)), whole=response())

    assert list(texts_of(chunks_of("responses", events)).values()) == [SAYS] * len(kinds)
    masked = texts_of(guarded(chunks_of("responses", events), "mask")[0])
    assert set(masked.values()) == {SAYS.replace(CARD, "[CARD]")}
    assert len(masked) == len(kinds)
    with pytest.raises(GuardBlocked):
        guarded(chunks_of("responses", events), "block")


@for_each("name", DELTAS)
def test_a_text_that_is_shown_in_pieces_says_where_each_belongs(name: str) -> None:
    said = "word " * 4000 + SAYS
    events = response_events([delta(name, said)], whole=response())

    texts = texts_of(guarded(chunks_of("responses", events), "mask")[0])

    [(place, text)] = texts.items()
    assert place[:2] == (name.strip(), DELTAS[name][0].get("command_index"))
    assert text == said.replace(CARD, "[CARD]")


def searched(*pieces: str) -> list[Json]:
    """Return the events of a message whose provider runs a tool."""
    begun = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    more = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return message_events(block_events(0, begun, *more))


def asked(*pieces: str) -> list[Json]:
    """Return the events of a response whose provider asks a server of tools."""
    deltas = [delta("response.mcp_call_arguments.delta", piece) for piece in pieces]
    return response_events(deltas, whole=response())


def arguments_of(form: str, chunks: Sequence[Chunk]) -> Json:
    """Return what a client reads of what the tool is asked: an object of JSON."""
    if form == "responses":
        [text] = texts_of(chunks).values()
    else:
        events = events_of(b"".join(map(MessageEvents().feed, chunks)))
        text = "".join(event.get("delta", {}).get("partial_json", "") for _, event in events)
    read: Json = orjson.loads(text)
    return read


@for_each("at", range(0, 40, 3))
@for_each("form", ["messages", "responses"])
def test_what_a_tool_of_the_provider_is_asked_stays_json(form: str, at: int) -> None:
    masks = Masks.of(placeholder_key(), "key")
    placeholder = masks.placeholder("word", value := 'a "fox"\n')
    written = orjson.dumps({"card": int(CARD.replace(" ", "")), "q": f"see {placeholder}"}).decode()
    events = (searched if form == "messages" else asked)(written[:at], written[at:])
    came = chunks_between(form, form, events)

    masked = arguments_of(form, guarded(came, "mask")[0])
    filled = StreamFilter(masks)
    back = [safe for chunk in came for safe in filled.feed(chunk.rewritten(chunk.data))]

    assert masked == {"card": "[CARD]", "q": f"see {placeholder}"}
    assert arguments_of(form, back)["q"] == f"see {value}"


@pytest.mark.parametrize(
    ("form", "kind"),
    [pair for pair in product(CLIENTS, ITEMS) if pair != ("messages", "input")],  # has none
)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, len(SAYS)), CUTS)
def test_reads_part_then_deltas_as_one(form: str, kind: str, at: int, cuts: list[int]) -> None:
    begun, *pieces = SAYS[:at], *cut(SAYS[at:], cuts)
    whole, where = item(0, kind, [SAYS]), {"output_index": 0, "item_id": "it_0"}
    events = part_events(where, kind, 0, pieces)
    rest: Json = {KINDS[kind].member: begun}
    if "part" in events[0]:
        events[0]["part"] |= rest
        rest = {KINDS[kind].within: []}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**whole, **rest}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    came = chunks_of(form, response_events([added, *events, done], whole=response(whole)))

    assert SAYS in str(shown(form, came))
    assert SAYS.replace(CARD, "[CARD]") in str(safe := shown(form, guarded(came, "mask")[0]))
    assert "1111 1111" not in str(safe)
