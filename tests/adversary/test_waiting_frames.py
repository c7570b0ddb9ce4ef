"""Searches for frames that an upstream repeats without end while they wait for a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.adversary.word_guard import GuardedCalls, choice, chunk
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat_events,
    message_events,
    stream,
    text_events,
    usage,
)
from tests.for_each import for_each
from tests.guards.calls import guarded

GUARD = "output: [{guard: keywords, patterns: ['xq[0-9]{4}zt'], whole_words: false, action: mask}]"
LONG_TEXT = "x" * 1_000_000


def block(number: int, kind: str = "text", **members: str) -> Json:
    content = {"type": kind, **({"text": ""} if kind == "text" else {}), **members}
    return {"type": "content_block_start", "index": number, "content_block": content}


def citation(text: str, number: int = 1) -> Json:
    location = {"document_index": 0, "start_char_index": 0, "end_char_index": 1}
    cited = {"type": "char_location", "cited_text": text, "document_title": "t", **location}
    return {
        **{"type": "content_block_delta", "index": number},
        "delta": {"type": "citations_delta", "citation": cited},
    }


def delta(**members: Any) -> Json:
    return chunk(choice(members))


WITHOUT_CHOICES = chunk()
HELD_CHUNK = delta(role="assistant", content="a")
MANY = 5_000
OPEN_BLOCK: list[Json] = message_events(text_events(0, "A word"))[:4]
HELD_BLOCK: list[Json] = message_events(text_events(0, "a"))[:4]
WAITING: dict[str, tuple[str, list[Json], list[Any]]] = {
    "large citations of another block": (
        "messages",
        [*OPEN_BLOCK, block(1)],
        [citation(LONG_TEXT)] * 12,
    ),
    "large blocks": (
        "messages",
        OPEN_BLOCK,
        [block(number + 1, "odd", odd=LONG_TEXT) for number in range(12)],
    ),
    "citations behind a held text": ("messages", HELD_BLOCK, [citation("b", 0)] * MANY),
    "large citations behind a held text": ("messages", HELD_BLOCK, [citation(LONG_TEXT, 0)] * 12),
    "reasoning behind a held start": ("chat", [HELD_CHUNK], [delta(reasoning_content="b ")] * MANY),
    "members behind a held member": (
        "chat",
        [delta(role="assistant"), delta(y="b ", x="a")],
        [delta(y="b ")] * MANY,
    ),
}
"""The family of an upstream, the beginning of its stream, and the events that wait."""


@for_each(("family", "first", "repeated"), WAITING.values(), ids=[*WAITING])
async def test_waiting_frames_are_bounded(
    family: str,
    first: Sequence[Json],
    repeated: Sequence[Any],
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    async with guarded(tmp_path, upstream, GUARD) as proxy:
        script = stream([*first, *repeated], is_done=family == "chat")
        calls = GuardedCalls(proxy, upstream)
        record = (await calls.send(family, script, family, stream=True)).record

    assert record.outcome == "upstream_error"
    assert record.error.code == "upstream_answer_too_large"


EMPTY: dict[str, Any] = {
    "deltas": delta(content=""),
    "chunks": WITHOUT_CHOICES,
    "long chunks": json.dumps(WITHOUT_CHOICES).encode() + b" " * 10_000,
    "another choice": {"id": "c1", "choices": [{"index": 1, "delta": {"content": "b "}}]},
}


@for_each("empty", EMPTY.values(), ids=[*EMPTY])
async def test_empty_chunks_do_not_wait(
    empty: Any, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    role, word, *end = chat_events("a")
    upstream.answer_with(stream([role, word, *[empty] * MANY, *end]))
    async with guarded(tmp_path, upstream, GUARD) as proxy:
        reply = await proxy.chat(stream=True)
        [record] = await proxy.sink.wait()

    assert record.outcome == "success"
    lines = [line[6:] for line in reply.raw.splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    assert [delta["content"] for delta in deltas if delta.get("content")] == ["a"]
    assert len(lines) < 10


async def test_guard_of_whole_texts_holds_all_events(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    role, word, *end = chat_events("a")
    counted = {**delta(content=""), "usage": usage()}
    upstream.answer_with(stream([role, word, *[counted] * MANY, *end]))
    async with guarded(tmp_path, upstream, "output: [{guard: length, characters: 9}]") as proxy:
        reply = await proxy.chat(stream=True)
        [record] = await proxy.sink.wait()

    assert record.outcome == "success"
    assert reply.raw.count(b"data: {") > MANY
