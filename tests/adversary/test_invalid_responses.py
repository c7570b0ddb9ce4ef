"""Searches for invalid or excessive responses that pass, or that cause an internal error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.adversary.word_guard import WORD, word_guard
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    head,
    item_events,
    message,
    message_events,
    respond,
    response,
    response_events,
    sends,
    stream,
    text_events,
    text_item,
)

CACHE = ", cache: {ttl: 1h}"
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def raw_response(text: str, *, streamed: bool) -> Script:
    """Respond with a JSON text, in which ``PART`` stands for the message of a choice."""
    text = text.replace("PART", "delta" if streamed else "message")

    event = f"data: {text}\n\ndata: [DONE]\n\n".encode()
    events = sends(head(200, "text/event-stream", f"content-length: {len(event)}") + event)
    return events if streamed else respond(text.encode())


CHOICE = (
    '{"choices":[{"index":0,"PART":{"role":"assistant","content":CONTENT},"finish_reason":"stop"'
)
DOCUMENTS = {
    "content": CHOICE.replace("CONTENT", "VALUE") + "}]}",
    "choice": CHOICE.replace("CONTENT", '"ok"') + ',"x":VALUE}]}',
    "top": CHOICE.replace("CONTENT", '"ok"') + '}],"x":VALUE}',
}
MAX_LEVELS = 254
EXCESSIVE = {
    **{
        f"{member}, {depth} levels": (text.replace("VALUE", "[" * depth + "]" * depth), depth)
        for member, text in DOCUMENTS.items()
        for depth in (240, 250, 260, 300, 900, 1100, 5000)
    },
    "values": (DOCUMENTS["top"].replace("VALUE", f"[0{',0' * 1_000_000}]"), MAX_LEVELS),
}


@STREAMED
async def test_depth_and_values_are_bounded(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, "mask", CACHE) as calls:
        for name, (text, depth) in EXCESSIVE.items():
            script = raw_response(text, streamed=streamed)
            fields = {"stop": name}  # another key of the cache
            first, second = [
                await calls.send("chat", script, stream=is_stream, **fields)
                for is_stream in (streamed, not streamed)
            ]

            allowed = (200, 502) if depth < MAX_LEVELS else (502,)
            assert first.reply.status in allowed, name
            assert second.reply.status in (200, 502), name
            for error in (first.record.error, second.record.error):
                assert error is None or error.status == 502, name


REPEATED = {
    "content": '{"choices":[{"index":0,"PART":{"content":"WORD","content":"ok"}}]}',
    "choices": '{"choices":[{"index":0,"PART":{"content":"WORD"}}],'
    '"choices":[{"index":0,"PART":{"content":"ok"}}]}',
    "escaped": '{"choices":[{"index":0,"PART":{"c\\u006fntent":"WORD","content":"ok"}}]}',
    "part": '{"choices":[{"index":0,"PART":{"content":"WORD"},"PART":{"content":"ok"}}]}',
}


@STREAMED
@pytest.mark.parametrize("action", ["block", "mask", "flag"])
async def test_repeated_name_is_refused(
    action: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Readers differ on which of the two values counts."""
    async with word_guard(tmp_path, upstream, action, CACHE) as calls:
        for name, text in REPEATED.items():
            script = raw_response(text.replace("WORD", WORD), streamed=streamed)
            response = await calls.send("chat", script, stream=streamed)

            response.require_hidden(name)
            assert b"upstream_invalid_response" in response.reply.raw, name


RESPONSES: dict[str, tuple[Json, list[Json]]] = {
    "chat": (chat(), chat_events("Par", "is.")),
    "responses": (response(), response_events(item_events(0, text_item("Paris."), "Par", "is."))),
    "messages": (message(), message_events(text_events(0, "Par", "is."))),
}  # fmt: skip
MAX_ESTIMATE = 50  # tokens estimated per second of an interrupted response


CLIENT_NAMES = ("chat", "responses", "messages")
PAIRS = [(api, other) for api in ("responses", "messages") for other in RESPONSES if other != api]


@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_response_of_another_api_is_an_upstream_error(
    client: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, "flag") as calls:
        for (requested, received), end in product(PAIRS, ("done", "bytes", "whole")):
            document, events = RESPONSES[received]
            is_whole = end == "whole"
            script = respond(document) if is_whole else stream(events, is_done=end == "done")
            response = await calls.send(client, script, requested, stream=not is_whole)

            label, reply, record = (requested, received, end), response.reply, response.record
            assert reply.status == 502, label
            assert reply.error.keys() >= {"type", "message"}, label
            assert (reply.json.get("type") == "error") is (client == "messages"), label
            assert record.outcome == "upstream_error", label
            assert record.billing.tokens.output <= MAX_ESTIMATE, label


TYPES: tuple[object, ...] = ([], ["error"], {}, {"a": None}, 1, 1.5, True, None)
CHANGES: tuple[Callable[[list[Json], Json], list[Json]], ...] = (
    lambda events, odd: [odd, *events],
    lambda events, odd: [*events[:2], odd, *events[2:]],
    lambda events, odd: [{**events[0], **odd}, *events[1:]],
    lambda events, odd: [*events[:2], {**events[2], **odd}, *events[3:]],
    lambda events, odd: [odd],
)


@pytest.mark.parametrize("requested", CLIENT_NAMES)
@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_odd_event_type_is_ignored_or_refused(
    client: str, requested: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, "flag") as calls:
        for (number, change), type_ in product(enumerate(CHANGES), TYPES):
            script = stream(change(RESPONSES[requested][1], {"type": type_}))
            response = await calls.send(client, script, requested, stream=True)

            assert response.reply.status in {200, 502}, (number, type_)
            assert b"internal_error" not in response.reply.raw, (number, type_)
            assert response.record.outcome in {"success", "upstream_error"}, (number, type_)
