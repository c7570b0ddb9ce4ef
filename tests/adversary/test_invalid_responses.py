"""Invalid and excessive responses are an error of the upstream, and never an internal one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    head,
    item_events,
    message,
    message_events,
    response,
    response_events,
    sends,
    stream,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.test_pipeline import BEARER

QUESTION = [{"role": "user", "content": "Name the capital of France."}]
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "responses": ("/v1/responses", {"input": QUESTION}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 9}),
}
UPSTREAMS = {"chat": "search-answers", "responses": "responses-only", "messages": "via-anthropic"}
WORD = "Hydropolis"
GUARDED = """
policies:
  default:
    match: all
    cache: {ttl: 1h}
    output: [{guard: keywords, words: [%s], action: %s}]
"""
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def raw_answer(text: str, *, streamed: bool) -> Script:
    """Respond with this JSON text. ``PART`` is replaced by the message of a choice."""
    text = text.replace("PART", "delta" if streamed else "message")

    event = f"data: {text}\n\ndata: [DONE]\n\n".encode()
    events = sends(head(200, "text/event-stream", f"content-length: {len(event)}") + event)
    return events if streamed else answer(text.encode())


def chat_body(*, streamed: bool) -> Json:
    return {"model": "search-answers", "messages": QUESTION, "stream": streamed}


CHOICE = (
    '{"choices":[{"index":0,"PART":{"role":"assistant","content":CONTENT},"finish_reason":"stop"'
)
PLACES = {
    "content": CHOICE.replace("CONTENT", "VALUE") + "}]}",
    "choice": CHOICE.replace("CONTENT", '"ok"') + ',"x":VALUE}]}',
    "top": CHOICE.replace("CONTENT", '"ok"') + '}],"x":VALUE}',
}
MAX_LEVELS = 254
EXCESSIVE = {
    **{
        f"{place}, {depth} levels": (text.replace("VALUE", "[" * depth + "]" * depth), depth)
        for place, text in PLACES.items()
        for depth in (240, 250, 260, 300, 900, 1100, 5000)
    },
    "values": (PLACES["top"].replace("VALUE", f"[0{',0' * 1_000_000}]"), MAX_LEVELS),
}


@STREAMED
@pytest.mark.parametrize("name", EXCESSIVE)
async def test_depth_and_values_are_bounded(
    name: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text, depth = EXCESSIVE[name]
    upstream.answer_with(raw_answer(text, streamed=streamed))
    policies = policies_for(upstream.url) + GUARDED % (WORD, "mask")
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        statuses = [
            (await proxy.send("/v1/chat/completions", chat_body(streamed=is_stream))).status
            for is_stream in (streamed, not streamed)
        ]
        records = await proxy.sink.wait(2)

    assert statuses[0] in ((200, 502) if depth < MAX_LEVELS else (502,))
    assert statuses[1] in (200, 502)
    assert all(record.error is None or record.error.status == 502 for record in records)


REPEATED = {
    "content": '{"choices":[{"index":0,"PART":{"content":"WORD","content":"ok"}}]}',
    "choices": '{"choices":[{"index":0,"PART":{"content":"WORD"}}],'
    '"choices":[{"index":0,"PART":{"content":"ok"}}]}',
    "escaped": '{"choices":[{"index":0,"PART":{"c\\u006fntent":"WORD","content":"ok"}}]}',
    "part": '{"choices":[{"index":0,"PART":{"content":"WORD"},"PART":{"content":"ok"}}]}',
}


@STREAMED
@pytest.mark.parametrize("action", ["block", "mask", "flag"])
@pytest.mark.parametrize("name", REPEATED)
async def test_repeated_name_is_refused(
    name: str, action: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Readers differ on which of the two values counts."""
    upstream.answer_with(raw_answer(REPEATED[name].replace("WORD", WORD), streamed=streamed))
    policies = policies_for(upstream.url) + GUARDED % (WORD, action)
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        reply = await proxy.send("/v1/chat/completions", chat_body(streamed=streamed))

    assert WORD.encode() not in reply.raw
    assert b"upstream_invalid_response" in reply.raw


ANSWERS: dict[str, tuple[Json, list[Json]]] = {
    "chat": (chat(), chat_events("Par", "is.")),
    "responses": (response(), response_events(item_events(0, text_item("Paris."), "Par", "is."))),
    "messages": (message(), message_events(text_events(0, "Par", "is."))),
}  # fmt: skip
MAX_ESTIMATE = 50  # tokens estimated per second of an interrupted response


@pytest.mark.parametrize("end", ["done", "bytes", "whole"])
@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        (api, other_api)
        for api in ("responses", "messages")
        for other_api in ANSWERS
        if other_api != api
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
async def test_response_of_another_api_is_an_upstream_error(
    client: str, requested: str, answered: str, end: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    document, events = ANSWERS[answered]
    upstream.answer_with(
        answer(document) if end == "whole" else stream(events, is_done=end == "done")
    )
    path, body = CLIENTS[client]
    model = UPSTREAMS[requested]
    body = {**body, "model": model, "stream": end != "whole"}

    reply = await proxy.send(path, body, BEARER | {"x-headrace-deployment": model})

    assert reply.status == 502
    assert reply.error.keys() >= {"type", "message"}
    assert (reply.json.get("type") == "error") is (client == "messages")
    [record] = await proxy.sink.wait()
    assert record.outcome == "upstream_error"
    assert record.billing.tokens.output <= MAX_ESTIMATE


TYPES: tuple[object, ...] = ([], ["error"], {}, {"a": None}, 1, 1.5, True, None)
CHANGES: tuple[Callable[[list[Json], Json], list[Json]], ...] = (
    lambda events, odd: [odd, *events],
    lambda events, odd: [*events[:2], odd, *events[2:]],
    lambda events, odd: [{**events[0], **odd}, *events[1:]],
    lambda events, odd: [*events[:2], {**events[2], **odd}, *events[3:]],
    lambda events, odd: [odd],
)


@for_each("change", CHANGES)
@pytest.mark.parametrize("odd", TYPES, ids=repr)
@pytest.mark.parametrize("requested", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_odd_event_type_is_ignored_or_refused(
    client: str, requested: str, change: Any, odd: object, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    path, body = CLIENTS[client]
    upstream.answer_with(stream(change(ANSWERS[requested][1], {"type": odd})))
    headers = BEARER | {"x-headrace-deployment": UPSTREAMS[requested]}

    reply = await proxy.send(path, {**body, "model": "any", "stream": True}, headers)

    assert reply.status in {200, 502}
    assert b"internal_error" not in reply.raw
    [record] = await proxy.sink.wait()
    assert record.outcome in {"success", "upstream_error"}
