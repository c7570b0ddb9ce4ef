"""Events whose type is not a string are ignored, or an error of the upstream."""

from __future__ import annotations

import pytest

from tests.conftest import Proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat_events,
    item_events,
    message_events,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.test_pipeline import BEARER

QUESTION = [{"role": "user", "content": "Name the capital of France."}]
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "responses": ("/v1/responses", {"input": QUESTION}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 9}),
}
UPSTREAMS: dict[str, list[Json]] = {
    "search-answers": chat_events("Par", "is."),
    "responses-only": response_events(item_events(0, text_item("Paris."), "Par", "is.")),
    "via-anthropic": message_events(text_events(0, "Par", "is.")),
}
ODD: tuple[object, ...] = ([], ["error"], {}, {"a": None}, 1, 1.5, True, None)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("deployment", UPSTREAMS)
@pytest.mark.parametrize("by", CLIENTS)
async def test_a_type_that_is_no_text_is_no_fault_of_the_proxy(
    by: str, deployment: str, odd: object, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    path, body = CLIENTS[by]
    events = UPSTREAMS[deployment]
    wholes = [[*events[:position], {"type": odd}, *events[position:]] for position in (0, 2)]
    changed = [
        [*events[:position], {**events[position], "type": odd}, *events[position + 1 :]]
        for position in (0, 2)
    ]
    for value in (*wholes, *changed, [{"type": odd}]):
        upstream.answer_with(stream(value))
        sent_value = {**body, "model": "any", "stream": True}
        headers = BEARER | {"x-headrace-deployment": deployment}
        async with proxy.client.post(path, headers=headers, json=sent_value) as response:
            status, raw = response.status, await response.read()

        assert status in {200, 502}
        assert b"internal_error" not in raw
        [record] = await proxy.sink.wait()
        proxy.sink.forget()
        assert record.outcome in {"success", "upstream_error"}
