"""Another target steps in while nothing has reached the client, and never after."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy
from tests.doubles import (
    Script,
    ScriptedUpstream,
    answer,
    cut_before_head,
    event,
    hang,
    legacy,
    legacy_events,
    piece,
    stream,
)
from tests.test_pipeline import BEARER, ROUTES, texts
from tests.upstream.test_client import STREAM_HEAD, raw


@pytest.fixture
def proxy(hasty_proxy: Proxy) -> Proxy:
    return hasty_proxy


ROUTE = ROUTES["openai"]
FAILURES = {
    "500": answer({}, 500),
    "429": answer({}, 429, "retry-after: 9"),
    "bad key": answer({}, 401),
    "cut": cut_before_head(),
    "silent": hang(),
    "no answer": answer(b"<html>", media_type="text/html"),
    "garbled": answer(b'{"choices": ['),
}
FIRST_EVENTS = {
    "an error event": raw(STREAM_HEAD, piece(event({"error": {"message": "overloaded"}}))),
    "an empty stream": raw(STREAM_HEAD, b"0\r\n\r\n"),
}


def body(*, streamed: bool) -> dict[str, object]:
    return {**ROUTE.body(streamed=streamed), "model": "resilient"}


async def ask(client: ClientSession, *, streamed: bool = False) -> tuple[int, bytes]:
    async with client.post(ROUTE.path, headers=BEARER, json=body(streamed=streamed)) as response:
        return response.status, await response.read()


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_falls_back(failure: Script, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": failure, "spare": answer(legacy())}

    status, body = await ask(proxy.client)

    assert (status, texts(ROUTE, body, streamed=False)) == (200, " Paris.")
    assert [request.path for request in upstream.requests][-1] == "/v4/beta/completions"
    [record] = await proxy.sink.wait()
    assert record.outcome == "success"
    assert [attempt.error is None for attempt in record.attempts] == [False, True]
    [served] = [bill for _, fate, bill in record.billing.attempts if bill and fate.served]
    assert (served.usage.tokens.input, served.usage.tokens.output) == (5, 3)
    assert bool(record.billing.lost_cost) == record.attempts[0].is_billable
    counted = await proxy.metrics()
    labels = 'deployment="resilient",to_upstream="scale",upstream="openai"'
    assert f"headrace_fallbacks_total{{{labels}}} 1.0" in counted


@pytest.mark.parametrize("failure", FIRST_EVENTS.values(), ids=FIRST_EVENTS.keys())
async def test_a_stream_falls_back_before_its_first_event(
    failure: Script, upstream: ScriptedUpstream, client: ClientSession
) -> None:
    events = stream(legacy_events(" Par", "is."), is_done=False)
    upstream.by_model = {"primary": failure, "spare": events}

    status, body = await ask(client, streamed=True)

    assert (status, texts(ROUTE, body, streamed=True)) == (200, " Paris.")


async def test_deadline_stops_fallback(upstream: ScriptedUpstream, client: ClientSession) -> None:
    upstream.by_model = {"primary": hang()}
    route = ROUTES["portkey"]
    headers = {"x-portkey-api-key": route.credential["x-portkey-api-key"]}
    headers |= {"x-portkey-virtual-key": "resilient", "x-portkey-request-timeout": "200"}

    async with client.post(route.path, headers=headers, json=body(streamed=False)) as response:
        assert response.status == 408

    assert len(upstream.requests) == 1


async def test_portkey_target_header(upstream: ScriptedUpstream, client: ClientSession) -> None:
    upstream.by_model = {"primary": answer({}, 500)}
    route = ROUTES["portkey"]
    headers = {**route.credential, "x-portkey-virtual-key": "resilient"}

    async with client.post(route.path, headers=headers, json=body(streamed=False)) as response:
        assert response.headers["x-portkey-retry-attempt-count"] == "1"
        assert response.headers["x-portkey-last-used-option-index"] == "config.targets[1]"
