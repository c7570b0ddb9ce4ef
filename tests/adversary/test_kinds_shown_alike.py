"""A word cut over two kinds of text is found if the client's API shows both as one kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects.responses.schema import TEXT_BY_KIND
from tests.adversary.random_streams import documents_of, part_events
from tests.adversary.test_cut_texts import ACTIONS, CLIENTS, GUARD, chunks
from tests.conftest import Reply
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    response,
    response_events,
    stream,
)
from tests.guards.calls import guarded

Pieces = Sequence[tuple[str, str]]
"""Pieces of a response in order, each a kind and a text."""
CHAT_MEMBERS = {"text": "content", "refusal": "refusal"}


def chat_stream(pieces: Pieces) -> Script:
    return chunks(*({CHAT_MEMBERS[kind]: text} for kind, text in pieces), {})


def whole_chat(pieces: Pieces) -> Script:
    message: Json = {"role": "assistant"}
    for kind, text in pieces:
        member = CHAT_MEMBERS[kind]
        message[member] = message.get(member, "") + text
    return answer(chat(choices=[{"index": 0, "message": message, "finish_reason": "stop"}]))


def response_items(pieces: Pieces) -> tuple[Json, list[Json]]:
    """Return a response whose item has each piece as a part, and the events of the item."""
    item_type = TEXT_BY_KIND[pieces[0][0]].item_type
    item: Json = {"id": "it_0", "type": item_type, "role": "assistant", "content": []}
    events: list[Json] = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
    done: Json = {**item, "content": [], "summary": []}
    for kind, text in pieces:
        text_type = TEXT_BY_KIND[kind]
        parts = done[text_type.list_member]
        events += part_events({"output_index": 0, "item_id": "it_0"}, kind, len(parts), [text])
        parts.append({"type": text_type.part_type, text_type.member: text})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": done})
    return response(done), events


def response_stream(pieces: Pieces) -> Script:
    document, events = response_items(pieces)
    return stream(response_events(events, document=document), is_done=False)


def whole_response(pieces: Pieces) -> Script:
    return answer(response_items(pieces)[0])


UPSTREAMS: Mapping[str, tuple[str, Callable[[Pieces], Script]]] = {
    "chat stream": ("search-answers", chat_stream),
    "whole chat": ("search-answers", whole_chat),
    "response stream": ("responses-only", response_stream),
    "whole response": ("responses-only", whole_response),
}


def cuts(first: str, second: str) -> Iterator[Pieces]:
    yield (first, "to hydro"), (second, "polis now")
    yield (second, "to hydro"), (first, "polis now")
    yield (first, "to hy"), (second, "dropo"), (first, "lis now")


def displayed_texts(reply: Reply) -> str:
    """Return the texts and the reasoning that an application shows, or the error."""
    texts: list[Any] = []
    documents = documents_of(reply.raw) if b"data: " in reply.raw else [json.loads(reply.raw)]
    for document in documents:
        blocks = document.get("content") or [document.get("delta") or {}]
        for choice in document.get("choices") or ():
            blocks = [choice.get("delta") or choice.get("message") or {}]
        texts += [
            block.get(name)
            for block in blocks
            for name in ("thinking", "reasoning_content", "text", "content")
        ]
    return "".join(text for text in texts if isinstance(text, str)) or reply.raw.decode()


@ACTIONS
@pytest.mark.parametrize("fields", ["", ", fields: [content]", ", fields: [refusal]"])
async def test_messages_client_gets_no_word_cut_over_text_and_refusal(
    fields: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    cases = product(["messages"], UPSTREAMS, cuts("text", "refusal"))
    await check(list(cases), action, fields, tmp_path, upstream)


@ACTIONS
async def test_no_client_gets_a_word_cut_over_reasoning_and_its_summary(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstreams = "response stream", "whole response"
    cases = product(["messages", "chat"], upstreams, cuts("reasoning", "summary"))
    await check(list(cases), action, "", tmp_path, upstream)


async def check(
    cases: Sequence[tuple[str, str, Pieces]],
    action: str,
    fields: str,
    folder: Path,
    upstream: ScriptedUpstream,
) -> None:
    """Check each case, streamed and whole, and the cached response."""
    guards = GUARD.format(action + fields) + ", cache: {ttl: 1h}"
    async with guarded(folder, upstream, guards) as proxy:
        for (client, name, pieces), is_stream in product(cases, (True, False)):
            model, make = UPSTREAMS[name]
            if name.endswith("stream") and not is_stream:
                continue
            upstream.answer_with(make(pieces))
            label = f"{client}, {name}, {pieces}, {is_stream}"
            path, body = CLIENTS[client]
            body = body | {"messages": [{"role": "user", "content": label}]}
            body |= {"model": model, "stream": is_stream}
            for cache in ("miss", "hit"):
                reply = await proxy.send(path, body)
                [record] = await proxy.sink.wait()
                proxy.sink.forget()

                assert not record.is_internal_error, label
                assert "hydropolis" not in displayed_texts(reply), (label, cache)
                if action == "mask":
                    assert (record.cache, reply.status) == (cache, 200), label
