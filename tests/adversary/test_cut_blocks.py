"""A stream that a model cuts into blocks of Messages is judged as one text: of what is found across
blocks no more is shown than what had left before the next one began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat_order import ChatOrder
from proxy.dialects.messages.reading import EventTurn
from proxy.dialects.messages.writing import MessageEvents
from proxy.errors import GuardBlocked
from proxy.guardrails.stream.feeding import Feeding
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.text.weight import SHEET
from proxy.types import Chunk
from proxy.types.guard import Action
from tests.adversary.test_cut_parts import SAYS
from tests.for_each import for_each
from tests.guardrails.doubles import tallies
from tests.guardrails.stream.test_words import made

T = TypeVar("T")
Json = dict[str, Any]
CARD = "my card is 4111 1111 1111 1111, is it not"
FOUND: Mapping[str, tuple[str, str]] = {
    "card": (CARD, "4111 1111 1111 1111"),
    "key": SAYS["a name before it"],
}
KINDS = ("pii", "secrets")


def own(said: Sequence[str], between: Sequence[Json]) -> list[Chunk]:
    """Return the chunks of an upstream of Messages, with other blocks between the texts."""
    events: list[Json] = [{"type": "message_start", "message": {"id": "1", "model": "m"}}]
    blocks: list[tuple[Json, Json | None]] = []
    for text in said:
        if blocks:
            blocks += [(each, None) for each in between]
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": text}))
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        if delta is not None:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    read = EventTurn(own=True).feed
    return [Chunk(made, None) for event in events for made in read(event)]


def of_a_chat(said: Sequence[str], between: Sequence[Json]) -> list[Chunk]:
    """Return the chunks of an upstream that speaks no Messages, with a call between the texts."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    deltas: list[Json] = []
    for text in said:
        if deltas:
            deltas.append({"tool_calls": [call]})
        deltas.append({"content": text})
    order = ChatOrder(waits=True, apart=False)
    return [
        Chunk(made, None)
        for delta in deltas
        for made in order.feed({"id": "1", "choices": [{"index": 0, "delta": delta}]}, 0)
    ]


WAYS: Mapping[str, Callable[[Sequence[str]], list[Chunk]]] = {
    "text after text": partial(own, between=()),
    "tools between": partial(own, between=[{"type": "tool_use", "id": "c", "name": "f"}]),
    "a chat's call between": partial(of_a_chat, between=()),
}


def blocks_of(chunks: Sequence[Chunk], action: Action = "mask") -> list[Json]:
    """Return the blocks that a client reads under the guards, each with its text."""
    rules = [made(kind, action) for kind in KINDS]
    guarded, events = StreamFilter.under(tallies(*rules)), MessageEvents()
    raw = b"".join(
        events.feed(safe) for chunk in chunks for safe in guarded.feed(chunk)
    ) + b"".join(events.feed(safe) for safe in guarded.feed(Chunk(None, None, last=True)))
    blocks: list[Json] = []
    for line in raw.splitlines():
        event = orjson.loads(line[6:]) if line.startswith(b"data: ") else {}
        if event.get("type") == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
        elif event.get("type") == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            blocks[-1]["text"] = blocks[-1].get("text", "") + event["delta"].get("text", "")
    return blocks


def text_of(blocks: Sequence[Json]) -> str:
    return "".join(block.get("text", "") for block in blocks if block["type"] == "text")


@for_each("way", WAYS)
@for_each("name", FOUND)
def test_what_is_found_across_two_blocks_is_masked_from_the_second_on(name: str, way: str) -> None:
    text, found = FOUND[name]
    begin = text.index(found)
    for cut in range(begin + 1, begin + len(found)):
        *_, second = blocks = blocks_of(WAYS[way]((text[:cut], text[cut:])))

        assert not second["text"].startswith(text[cut : begin + len(found)]), cut
        assert text_of(blocks).startswith(text[:begin]), cut


@pytest.mark.parametrize("way", WAYS)
def test_what_blocks_across_two_blocks_blocks(way: str) -> None:
    for text, found in FOUND.values():
        cut = text.index(found) + len(found) // 2
        with pytest.raises(GuardBlocked):
            blocks_of(WAYS[way]((text[:cut], text[cut:])), "block")


@for_each("way", WAYS)
@for_each("before", ["Your card is", "It is 5", "see it.", "a 4111 11"])
def test_finds_match_at_block_start_after_any_end(before: str, way: str) -> None:
    found = FOUND["card"][1]
    said = (before, f"{found}, is it not")

    assert found not in text_of(blocks_of(WAYS[way](said)))
    with pytest.raises(GuardBlocked):
        blocks_of(WAYS[way](said), "block")


@given(st.sampled_from(sorted(WAYS)), st.lists(st.integers(0, 90), max_size=6))
def test_no_cut_reveals_a_masked_value(way: str, cuts: list[int]) -> None:
    text = f"{CARD}? {FOUND['key'][0]} and {CARD}."
    edges = sorted({0, *cuts, len(text)})
    said = [text[a:b] for a, b in pairwise(edges)]

    shown = text_of(blocks_of(WAYS[way](said)))

    assert not any(found in shown for _, found in FOUND.values())


async def test_what_is_held_leaves_before_a_block_that_begins_with_a_long_text() -> None:
    async def at_once(job: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return job()

    feeding = Feeding(StreamFilter.under(tallies(made("pii"))), at_once)
    chunks = own(["a last wo", "x" * (SHEET + 1)], ())
    long = {"index": 0, "delta": {"content": "y" * (SHEET + 1), "block": {"start": {}}}}
    said: list[str] = []
    for chunk in [*chunks[:3], Chunk({"choices": [long]}, None)]:
        for safe in await feeding.feed(chunk):
            delta = (safe.data or {})["choices"][0]["delta"]
            said += ["a block begins"] if "start" in delta.get("block", ()) else []
            said += [delta["content"]] if delta.get("content") else []

    assert said[:3] == ["a block begins", "a last wo", "a block begins"]
    assert "".join(said[3:]).startswith("yyy")
