"""Frames that wait for a text or a part are bounded for any repetition by an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.doubles import Json, ScriptedUpstream, message_events, stream, text_events
from tests.for_each import for_each
from tests.guards.calls import guarded
from tests.test_pipeline import BEARER, MESSAGES

GUARD = "output: [{guard: keywords, patterns: ['xq[0-9]{4}zt'], whole_words: false, action: mask}]"
FILL = "x" * 1_000_000


def block(number: int, kind: str = "text", **members: str) -> Json:
    content = {"type": kind, **({"text": ""} if kind == "text" else {}), **members}
    return {"type": "content_block_start", "index": number, "content_block": content}


def citation(text: str) -> Json:
    place = {"document_index": 0, "start_char_index": 0, "end_char_index": 1}
    cited = {"type": "char_location", "cited_text": text, "document_title": "t", **place}
    delta = {"type": "citations_delta", "citation": cited}
    return {"type": "content_block_delta", "index": 1, "delta": delta}


OPEN_BLOCK: list[Json] = message_events(text_events(0, "A word"))[:4]
WAITING: dict[str, tuple[str, list[Json], list[Json]]] = {
    "large citations of another block": (
        "messages",
        [*OPEN_BLOCK, block(1)],
        [citation(FILL)] * 12,
    ),
    "large blocks": (
        "messages",
        OPEN_BLOCK,
        [block(number + 1, "odd", odd=FILL) for number in range(12)],
    ),
}
"""The family of an upstream, the beginning of its stream, and the events that wait."""
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "messages": ("/v1/messages", {**MESSAGES, "max_tokens": 9}),
}
MODELS = {"chat": "search-answers", "messages": "via-anthropic"}


@for_each(("family", "first", "repeated"), WAITING.values(), ids=[*WAITING])
async def test_waiting_frames_are_bounded(
    family: str,
    first: Sequence[Json],
    repeated: Sequence[Json],
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    upstream.answer_with(stream([*first, *repeated], is_done=family == "chat"))
    path, body = CLIENTS[family]
    async with guarded(tmp_path, upstream, GUARD) as proxy:
        headers = {**BEARER, "x-headrace-deployment": MODELS[family]}
        await proxy.send(path, {"model": "a", **body, "stream": True}, headers)
        [record] = await proxy.sink.wait()

    assert record.outcome == "upstream_error"
    assert record.error.code == "upstream_answer_too_large"
