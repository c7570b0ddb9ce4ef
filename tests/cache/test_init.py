"""The cache over sockets: what is stored, for whom, and its headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import ProxyError, RequestError
from proxy.ports import OutputGuards
from proxy.types.events import Delta, Frame
from tests.cache.cached_proxy import RULE, SEARCH_KEY, Cached, cached_proxy, until_asked
from tests.conftest import KEY
from tests.doubles import (
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    cut_before_head,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.fakes import Unguarded
from tests.test_pipeline import (
    BEARER,
    PORTKEY,
    ROUTES,
    Route,
    every_route,
    reply_text,
    successful_response,
)

ROUTE = ROUTES["openai"]
COST = 5 * 150 + 3 * 600


async def ask(
    cached: Cached,
    route: Route = ROUTE,
    headers: dict[str, str] | None = None,
    *,
    streamed: bool = False,
) -> tuple[int, str, bytes]:
    sent_headers = {**route.credential, **(headers or {})}
    return await cached.post(route.path, sent_headers, route.body(streamed=streamed))


@every_route
async def test_second_call_gets_the_same_response(
    route: Route, streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(successful_response(route, streamed=streamed))

    _, first_result, first_body = await ask(cached, route, streamed=streamed)
    status, second_result, second_body = await ask(cached, route, streamed=streamed)

    assert (status, first_result, second_result) == (200, "miss", "hit")
    assert len(upstream.requests) == 1
    assert reply_text(route, second_body, streamed=streamed) == " Paris."
    if route.path != "/v1/completion":  # responses there get a new id and date
        assert second_body == first_body


BOTH_FORMS = [
    name
    for name, route in ROUTES.items()
    if route.streams and name != "anthropic" and "input" not in route.content
]
"""Responses and Messages are kept apart by their forms: events are given again as they came."""


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", BOTH_FORMS)
async def test_either_form_serves_the_other(
    name: str, streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    upstream.answer_with(successful_response(route, streamed=streamed))

    await ask(cached, route, streamed=streamed)
    status, result, second_body = await ask(cached, route, streamed=not streamed)

    assert (status, result) == (200, "hit")
    assert len(upstream.requests) == 1
    assert reply_text(route, second_body, streamed=not streamed) == " Paris."


@pytest.mark.parametrize("streamed", [False, True])
async def test_response_with_missing_choices_is_not_cached(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(successful_response(ROUTE, streamed=streamed))
    body = ROUTE.body(streamed=streamed, n=2)

    for _ in range(2):
        assert (await cached.post(ROUTE.path, BEARER, body))[:2] == (200, "miss")

    assert len(upstream.requests) == 2


async def test_hit_is_free_and_reports_savings(cached: Cached, upstream: ScriptedUpstream) -> None:
    await ask(cached)
    async with cached.client.post(
        ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=False)
    ) as response:
        response_headers = response.headers

    miss, hit = await cached.sink.wait(2)
    assert (miss.billing.cost, miss.saved) == (COST, None)
    assert (hit.outcome, hit.status, hit.billing.cost, hit.attempts) == ("success", 200, 0, [])
    assert (hit.saved.cost, hit.saved.tokens) == (COST, miss.billing.tokens)
    assert response_headers["x-headrace-cost-usd"] == "0"
    assert cached.counted('headrace_cache_lookups_total{result="hit"}') == 1
    assert cached.counted('headrace_cache_lookups_total{result="miss"}') == 1
    assert cached.counted("headrace_cache_saved_usd_total") == pytest.approx(COST / 1e9)
    assert cached.counted('headrace_cache_entries{store="memory"}') == 1
    assert cached.counted('headrace_cache_bytes{store="memory"}') > 0


async def test_without_rule_or_store_nothing_is_cached(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    cached.policies.ruled = lambda plan: plan

    assert [(await ask(cached))[1] for _ in range(2)] == ["bypass"] * 2
    assert len(upstream.requests) == 2
    assert cached.counted('headrace_cache_lookups_total{result="bypass"}') == 0
    cached.rule(replace(RULE, store="redis"))  # a store that the process does not have
    assert [(await ask(cached))[1] for _ in range(2)] == ["bypass"] * 2
    assert cached.counted('headrace_cache_lookups_total{result="bypass"}') == 2


async def test_list_of_models_bypasses_cache(cached: Cached, upstream: ScriptedUpstream) -> None:
    route = ROUTES["multimodel"]
    headers = {**BEARER, "x-headrace-deployment": "compare"}
    body = {**route.body(streamed=False), "model": ["first", "second"]}

    assert [(await cached.post(route.path, headers, body))[1] for _ in range(2)] == ["bypass"] * 2
    assert len(upstream.requests) == 4


async def test_embeddings_are_cached(cached: Cached, upstream: ScriptedUpstream) -> None:
    vectors = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "model": "m"}
    upstream.answer_with(respond(vectors))
    body = {"model": "gpt-4o-mini", "input": "Paris"}

    responses = [await cached.post("/v1/embeddings", BEARER, body) for _ in range(2)]

    assert [result for _, result, _ in responses] == ["miss", "hit"]
    assert responses[0][2] == responses[1][2]


async def test_keys_share_no_cached_response(cached: Cached, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(chat("for support")), respond(chat("for search")))
    where = {"x-headrace-deployment": "search-answers"}
    callers = [{"authorization": f"Bearer {key}", **where} for key in (KEY, SEARCH_KEY)]
    route = ROUTES["openai-chat"]

    body = route.body(streamed=False)
    responses = [await cached.post(route.path, caller, body) for caller in (*callers, *callers)]

    assert [result for _, result, _ in responses] == ["miss", "miss", "hit", "hit"]
    contents = [json.loads(body)["choices"][0]["message"]["content"] for *_, body in responses]
    assert contents == ["for support", "for search"] * 2


async def test_calls_of_two_keys_are_not_shared(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    events = chat_events("Par", "is.")
    upstream.answer_with(stream(events, gate=gate))
    where = {"x-headrace-deployment": "search-answers"}
    route = ROUTES["openai-chat"]
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(
                cached.post(
                    route.path,
                    {"authorization": f"Bearer {key}", **where},
                    route.body(streamed=True),
                )
            )
            for key in (KEY, SEARCH_KEY)
        ]
        await until_asked(upstream, 2)
        gate.set()

    assert [task.result()[1] for task in asking] == ["miss", "miss"]


class Masking(Unguarded):
    """A guard that masks or blocks a word in responses."""

    def __init__(self, blocks: ProxyError | None = None) -> None:
        self.blocks = blocks
        self.seen = 0

    def build_output_guards(self) -> OutputGuards:
        return self

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        self.seen += 1
        text = json.dumps(frame.doc)
        if "Paris" not in text:
            return (frame,)
        if self.blocks is not None:
            raise self.blocks
        doc = json.loads(text.replace("Paris", "[city]"))
        events = [
            Delta(event.part, event.text.replace("Paris", "[city]"), event.slot)
            if type(event) is Delta
            else event
            for event in frame.events
        ]
        return (frame._replace(events=tuple(events), doc=doc, raw=None),)


async def test_hit_is_not_inspected_again(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    guard = Masking()
    async with cached_proxy(tmp_path / "policies", upstream, guards=guard) as cached:
        responses = [await ask(cached) for _ in range(2)]

    assert [result for _, result, _ in responses] == ["miss", "hit"]
    assert responses[0][2] == responses[1][2]
    assert b"[city]" in responses[1][2]
    assert guard.seen == 1


async def test_blocked_response_is_not_cached(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(stream(legacy_events(" The", " city", " of Paris.", ".")))
    guard = Masking(RequestError("blocked"))
    async with cached_proxy(tmp_path / "policies", upstream, guards=guard) as cached:
        responses = [await ask(cached, streamed=True) for _ in range(2)]

    assert [result for _, result, _ in responses] == ["miss"] * 2
    assert all(b"blocked" in body and b"Paris" not in body for *_, body in responses)
    assert len(upstream.requests) == 2


FILTERED = legacy_completion(choices=[{"index": 0, "text": "x", "finish_reason": "content_filter"}])
BAD: dict[str, tuple[Script, bool, int]] = {
    "error": (respond({"error": {"message": "x"}}, 500), False, 502),
    "error as 200": (respond({"error": {"message": "x"}}), False, 502),
    "refusal": (respond({"error": {"message": "x"}}, 400), False, 400),
    "no answer": (cut_before_head(), False, 502),
    "cut": (stream(legacy_events("a", "b", "c"), cut_after=2), True, 200),
    "not whole": (stream(legacy_events("a", "b")[:2], is_done=False), True, 200),
    "filtered": (respond(FILTERED), False, 200),
    "too large": (respond(legacy_completion("x" * 3000)), False, 200),
    "too large a stream": (stream(legacy_events(*["x" * 300] * 10)), True, 200),
}


@pytest.mark.parametrize(("script", "streamed", "status"), BAD.values(), ids=BAD.keys())
async def test_incomplete_response_is_sent_but_not_cached(
    script: Script, streamed: bool, status: int, cached: Cached, upstream: ScriptedUpstream
) -> None:
    cached.rule(replace(RULE, max_bytes=2000))
    upstream.answer_with(script)

    responses = [(await ask(cached, streamed=streamed))[:2] for _ in range(2)]

    assert responses == [(status, "miss")] * 2
    assert len(upstream.requests) == 2
    assert cached.counted('headrace_cache_entries{store="memory"}') == 0


async def test_shorter_ttl_ends_earlier_entries(cached: Cached, upstream: ScriptedUpstream) -> None:
    await ask(cached)
    cached.rule(replace(RULE, ttl=5))
    cached.clock.now += 6

    assert (await ask(cached))[1] == "miss"


SCALE = ROUTES["scale-5"]


@pytest.mark.parametrize(
    ("headers", "result", "result_without_permission"),
    [
        ({"cache-control": "no-cache"}, "refresh", "hit"),
        ({"x-portkey-cache-force-refresh": "true"}, "refresh", "hit"),
        ({"cache-control": "max-age=9"}, "refresh", "hit"),
        ({"cache-control": "max-age=10"}, "hit", "hit"),
        ({"cache-control": "max-age=999999"}, "hit", "hit"),
        ({"cache-control": "no-store"}, "hit", "hit"),
        ({"cache-control": "no-store, no-cache"}, "bypass", "hit"),
        ({"x-portkey-cache-namespace": "trial"}, "miss", "miss"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else value,
)
@pytest.mark.parametrize("may_refresh", [True, False])
async def test_client_headers_control_the_cache_as_permitted(
    may_refresh: bool,
    headers: dict[str, str],
    result: str,
    result_without_permission: str,
    cached: Cached,
    upstream: ScriptedUpstream,
) -> None:
    cached.rule(may_refresh=may_refresh)
    assert (await ask(cached, SCALE, {"cache-control": "no-store"}))[1] == "miss"
    assert (await ask(cached, SCALE))[1] == "miss"
    cached.clock.now += 10

    _, observed, _ = await ask(cached, SCALE, headers)

    assert observed == (result if may_refresh else result_without_permission)
    assert len(upstream.requests) == (2 if observed == "hit" else 3)
    *_, record = await cached.sink.wait(3)
    requires_refresh = any(word in str(headers) for word in ("no-cache", "refresh", "max-age"))
    warnings = ["cache refresh ignored: this key may not refresh the cache"]
    assert record.warnings == (warnings if requires_refresh and not may_refresh else [])


async def test_refresh_replaces_entry(cached: Cached, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(legacy_completion("old")), respond(legacy_completion("new")))
    await ask(cached, SCALE)
    await ask(cached, SCALE, {"cache-control": "no-cache"})

    _, result, body = await ask(cached, SCALE)
    assert (result, reply_text(SCALE, body, streamed=False)) == ("hit", "new")


async def test_invalid_cache_control_is_refused(cached: Cached, upstream: ScriptedUpstream) -> None:
    status, _, body = await ask(cached, SCALE, {"x-portkey-cache-force-refresh": "perhaps"})

    assert status == 400
    assert b"x-portkey-cache-force-refresh" in body
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("name", "status"),
    [("", "HIT"), ("x-portkey-cache-force-refresh", "REFRESH"), ("cache-control", "DISABLED")],
)
async def test_portkey_clients_get_portkey_cache_status(
    name: str, status: str, cached: Cached, upstream: ScriptedUpstream
) -> None:
    body = ROUTES["portkey"].body(streamed=False)
    wish = {name: "no-cache, no-store" if name == "cache-control" else "true"} if name else {}
    statuses = []
    for headers in (PORTKEY, {**PORTKEY, **wish}):
        async with cached.client.post("/v1/completions", headers=headers, json=body) as response:
            statuses.append(response.headers["x-portkey-cache-status"])

    assert statuses == ["MISS", status]


async def test_tool_calls_are_cached_by_rule(cached: Cached, upstream: ScriptedUpstream) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    upstream.answer_with(respond(chat(choices=[choice])))
    route = ROUTES["openai-chat"]

    assert [(await ask(cached, route))[1] for _ in range(2)] == ["miss", "miss"]
    cached.rule(replace(RULE, tool_calls=True))
    assert [(await ask(cached, route))[1] for _ in range(2)] == ["miss", "hit"]
