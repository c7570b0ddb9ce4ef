"""A response in an API that was not requested is an error of the upstream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    message,
    message_events,
    response,
    response_events,
    stream,
    text_events,
)
from tests.test_pipeline import BEARER

QUESTION = [{"role": "user", "content": "Name the capital of France."}]
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "responses": ("/v1/responses", {"input": QUESTION}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 9}),
}
UPSTREAMS = {"responses": "responses-only", "messages": "via-anthropic"}
ANSWERS: dict[str, tuple[Json, list[Json]]] = {
    "chat": (chat(), chat_events("Par", "is.")),
    "responses": (response(), response_events()),
    "messages": (message(), message_events(text_events(0, "Paris"))),
}
CROSSED = [
    (client, asked, given, ends)
    for client in CLIENTS
    for asked in UPSTREAMS
    for given in ANSWERS
    for ends in ("done", "bytes", "whole")
    if given != asked
]
MAX_ESTIMATE = 50  # tokens: what a second of an interrupted answer is estimated at


@pytest.mark.parametrize("crossed", CROSSED)
async def test_an_answer_of_another_form_is_the_fault_of_the_upstream(
    crossed: tuple[str, str, str, str], proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    by, prompt, text, ends = crossed
    document, events = ANSWERS[text]
    upstream.answer_with(
        answer(document) if ends == "whole" else stream(events, is_done=ends == "done")
    )
    path, body = CLIENTS[by]
    headers = BEARER | {"x-headrace-deployment": UPSTREAMS[prompt]}
    sent_value = {**body, "model": UPSTREAMS[prompt], "stream": ends != "whole"}

    async with proxy.client.post(path, headers=headers, json=sent_value) as response_:
        status, raw = response_.status, await response_.read()

    event = json.loads(raw)
    error: Any = event["error"]
    assert status == 502
    assert "type" in error
    assert "message" in error
    assert (event.get("type") == "error") is (by == "messages")
    [record] = await proxy.sink.wait()
    assert record.outcome == "upstream_error"
    assert record.billing.tokens.output <= MAX_ESTIMATE
