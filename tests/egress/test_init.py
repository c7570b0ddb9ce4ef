"""Requests of guards to URLs, within bounds, and to deployments, through the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.cache import NullCache
from proxy.call.record import Record, new_record, new_request_id
from proxy.egress import (
    MAX_RESPONSE_BYTES,
    HttpGuardClient,
    HttpGuardClients,
    InternalExchange,
    ResponseTooLong,
)
from proxy.errors import InvalidField, LimitExceeded, NotFound, ProxyError
from proxy.guards.engine import Engine
from proxy.guards.run import PolicyGuards
from proxy.limits import Limiter
from proxy.limits.stores.memory import MemoryStore
from proxy.pipeline import Pipeline
from proxy.policy.decide import ActivePolicy
from proxy.telemetry import Emitters
from proxy.types import RequestHead
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.cache.cached_proxy import RuledPolicies
from tests.doubles import (
    PATIENCE_S,
    TRUST,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    chat,
    cut_before_head,
    hang,
    head,
    respond,
)
from tests.fakes import MemorySink
from tests.guards.guard_clients import guard_clients
from tests.policy.decisions import read_text

BODY = {"messages": [{"role": "user", "content": "Is it?"}], "temperature": 0}
POLICIES = """
upstreams:
  local: {{dialect: openai, base_url: '{url}/v1', timeouts: {{total: 5s}}}}
keys: {{}}
policies:
  judged:
    input: [{{guard: keywords, words: [Is]}}]
    cache: {{ttl: 1h}}
    limits: [{{name: two, requests: 2 per minute, per: key}}]
    rules:
      - {{name: cool, when: {{key: {{glob: guard/h*}}}}, cap: {{max_tokens: 7}}}}
deployments:
  judge-smol:
    targets: [{{upstream: local, model: smol, price: {{input: 1, output: 2}}}}]
    policy: judged
    tags: {{team: search}}
tags: {{team: [support, search]}}
"""


def outer() -> Record:
    """Return the record of a client's call that passed another proxy."""
    record = new_record()
    record.set_head(RequestHead("openai", "chat", "/v1/chat/completions", "req_1", via=("other",)))
    return record


@asynccontextmanager
async def guard_egress(
    folder: Path, upstream: ScriptedUpstream
) -> AsyncIterator[tuple[HttpGuardClient, MemorySink]]:
    """Yield the egress of a client's call, in front of a real pipeline."""
    snapshot, sink = read_text(folder, POLICIES.format(url=upstream.url)), MemorySink()
    async with HttpClient(TRUST) as http:
        now = asyncio.get_running_loop().time
        health = Health(now, lambda target, endpoint, state: None)
        pipeline = Pipeline(
            policies=RuledPolicies(ActivePolicy(snapshot), lambda plan: plan),
            limits=Limiter(MemoryStore(now, now), lambda standing: None),
            guards=PolicyGuards(Engine(now)),
            cache=NullCache(),
            upstreams=Upstreams(http, "us", health),
            emitter=Emitters((sink,), _raise),
            start_record=new_record,
        )
        yield HttpGuardClients(http, pipeline.run, new_request_id).build_guard_client(outer()), sink


def _raise(sink: object, error: BaseException) -> None:
    raise error


async def test_deployment_returns_its_text(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("It is.")))
    async with guard_egress(tmp_path, upstream) as (egress, _):
        body = await egress.complete("house", "judge-smol", BODY)
    [request] = upstream.requests

    assert body == "It is."
    assert (request.path, request.json["model"]) == ("/v1/chat/completions", "smol")
    assert (request.json["messages"], request.json["temperature"]) == (BODY["messages"], 0)
    assert request.headers["x-headrace-via"] == "other, us"


async def test_guard_call_is_in_client_trace(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("It is.")))
    async with guard_egress(tmp_path, upstream) as (egress, sink):
        await egress.complete("house", "judge-smol", BODY)
    [record], client = await sink.wait(), egress.record

    assert record.key == "guard/house"
    assert (record.plan.deployment, record.plan.tags) == ("judge-smol", {"team": "search"})
    assert (record.outcome, record.status) == ("success", 200)
    assert record.billing.cost == 5 * 1000 + 3 * 2000
    assert record.ids.trace_id == client.ids.trace_id
    assert record.head.parent.span_id == client.ids.server_span
    assert record.head.request_id != "req_1"
    assert client.attempts == []


async def test_guard_call_has_only_rules_and_limits(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("It is.")))
    async with guard_egress(tmp_path, upstream) as (egress, sink):
        for guard in ("house", "house", "other"):
            await egress.complete(guard, "judge-smol", {**BODY, "max_tokens": 50})
        with pytest.raises(LimitExceeded):
            await egress.complete("house", "judge-smol", BODY)

    assert [request.json["max_tokens"] for request in upstream.requests] == [7, 7, 50]
    assert [record.outcome for record in sink.records] == [*["success"] * 3, "limited"]
    assert {record.cache for record in sink.records} == {"bypass"}
    assert not any(record.guards for record in sink.records)


async def test_missing_deployment_is_not_found(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with guard_egress(tmp_path, upstream) as (egress, sink):
        with pytest.raises(NotFound):
            await egress.complete("house", "judge-big", BODY)

    assert [record.status for record in sink.records] == [404]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (respond({"error": {"message": "no"}}, 500), "upstream_unavailable"),
        (respond({"error": {"message": "no"}}, 400), "upstream_refused"),
        (cut_before_head(), "upstream_unavailable"),
        (respond(b"<html>"), "upstream_invalid_response"),
        (respond(chat(None)), "upstream_invalid_response"),  # type: ignore[arg-type]
        (respond({**chat(), "choices": []}), "upstream_invalid_response"),
    ],
)
async def test_failing_deployment_raises(
    tmp_path: Path, upstream: ScriptedUpstream, script: Any, error: str
) -> None:
    upstream.answer_with(script)
    async with guard_egress(tmp_path, upstream) as (egress, _):
        with pytest.raises(ProxyError) as failed:
            await egress.complete("house", "judge-smol", BODY)

    assert failed.value.code == error


async def test_cancellation_closes_the_upstream(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    async with guard_egress(tmp_path, upstream) as (egress, sink):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await egress.complete("house", "judge-smol", BODY)
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()

    assert [record.outcome for record in sink.records] == ["client_abort"]


async def test_time_of_services_is_not_overhead(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("It is.")))
    async with guard_egress(tmp_path, upstream) as (egress, _):
        moments = iter([10.0, 13.0, 20.0, 25.0])
        egress.record.now = lambda: next(moments)
        calls = [egress.complete("house", "judge-smol", BODY) for _ in range(2)]
        await asyncio.gather(*calls)
        await egress.post(upstream.url, {}, b"{}")

    assert egress.record.wait_s == 3.0 + 5.0


async def test_webhook_receives_body_and_returns_response(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({"a": 1}, 418))
    async with guard_clients() as egress:
        assert egress.request_id == "req_1"
        assert await egress.post(f"{upstream.url}/x", {"x-h": "1"}, b"{}") == (418, b'{"a": 1}')
    [request] = upstream.requests

    assert (request.method, request.path) == ("POST", "/x")
    assert (request.headers["x-h"], request.body) == ("1", b"{}")


async def test_redirect_is_not_followed(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({}, 307, f"location: {upstream.url}/other"))
    async with guard_clients() as egress:
        status, _ = await egress.post(upstream.url, {}, b"{}")

    assert (status, len(upstream.requests)) == (307, 1)


async def test_endless_response_is_aborted(upstream: ScriptedUpstream) -> None:
    async def endless(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "application/json", "transfer-encoding: chunked"))
        while not request.closed.is_set():
            await wire.send(b"10000\r\n", b" " * 65536, b"\r\n")

    upstream.answer_with(endless)
    async with guard_clients() as egress:
        with pytest.raises(ResponseTooLong):
            await egress.post(upstream.url, {}, b"{}")
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()


async def test_largest_response_is_read(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(b" " * MAX_RESPONSE_BYTES))
    async with guard_clients() as egress:
        _, body = await egress.post(upstream.url, {}, b"{}")

    assert len(body) == MAX_RESPONSE_BYTES


@pytest.mark.parametrize("script", [cut_before_head(), respond(b"", 200, "content-length: 9")])
async def test_failed_connection_raises(upstream: ScriptedUpstream, script: Any) -> None:
    upstream.answer_with(script)
    async with guard_clients() as egress:
        for url in (upstream.url, "http://127.0.0.1:1/"):
            with pytest.raises(ConnectionError):
                await egress.post(url, {}, b"{}")


HEAD = RequestHead(
    "openai", "chat", "guard", "req_2", deployment="judge-smol", internal_key="guard/house"
)
QUESTION = {"messages": [{"role": "user", "content": "Is it?"}]}


async def test_guard_call_names_the_deployment() -> None:
    exchange = InternalExchange(HEAD, QUESTION)
    call = await exchange.read_call(exchange.read_head())

    assert (call.head, call.requested_models, call.stream) == (HEAD, ("judge-smol",), False)
    assert call.body["messages"] == QUESTION["messages"]
    assert exchange.is_disconnected
    with pytest.raises(InvalidField):
        await InternalExchange(HEAD, {"messages": []}).read_call(HEAD)
