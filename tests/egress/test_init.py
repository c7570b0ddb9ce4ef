"""The ways out: addresses, within bounds, and deployments, through the pipeline of all calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.app import Stages, build_pipeline
from proxy.app.context import new_record, new_request_id, new_span_id
from proxy.cache import NullCache
from proxy.call.record import Record
from proxy.egress import MAX_RESPONSE_BYTES, HttpEgress, HttpGuardEgress, ResponseTooLong
from proxy.errors import LimitExceeded, NotFound, ProxyError
from proxy.guards.engine import Engine
from proxy.guards.run import PolicyGuards
from proxy.limits import Limiter
from proxy.limits.stores.memory import MemoryStore
from proxy.policy.decide import ActivePolicy
from proxy.policy.store import read_folder
from proxy.telemetry import Emitters
from proxy.types import RequestHead
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.cache.world import RuledPolicies
from tests.doubles import (
    PATIENCE_S,
    TRUST,
    Asked,
    MemorySink,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    cut_before_head,
    hang,
    head,
)
from tests.guards.elsewhere import ways

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
    """The record of a client's call that came through another proxy."""
    record = new_record()
    record.set_head(RequestHead("openai", "chat", "/v1/chat/completions", "req_1", via=("other",)))
    return record


@asynccontextmanager
async def inside(
    folder: Path, upstream: ScriptedUpstream
) -> AsyncIterator[tuple[HttpGuardEgress, MemorySink]]:
    """Give the ways out of a call, before a pipeline as the one of the process."""
    (folder / "p.yaml").write_text(POLICIES.format(url=upstream.url))
    snapshot, sink = read_folder(folder, None), MemorySink()
    async with HttpClient(TRUST) as http:
        now = asyncio.get_running_loop().time
        health = Health(now, lambda target, endpoint, state: None)
        stages = Stages(
            Limiter(MemoryStore(now, now), lambda standing: None),
            PolicyGuards(Engine(now)),
            NullCache(),
            Upstreams(http, "us", new_span_id, health),
        )
        policies = RuledPolicies(ActivePolicy(snapshot), lambda plan: plan)
        pipeline = build_pipeline(policies, stages, Emitters((sink,), _raise))
        yield HttpEgress(http, pipeline.run, new_request_id).of(outer()), sink


def _raise(sink: object, error: BaseException) -> None:
    raise error


async def test_a_deployment_answers_with_its_text(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("It is.")))
    async with inside(tmp_path, upstream) as (out, _):
        body = await out.complete("house", "judge-smol", BODY)
    [request] = upstream.requests

    assert body == "It is."
    assert (request.path, request.json["model"]) == ("/v1/chat/completions", "smol")
    assert (request.json["messages"], request.json["temperature"]) == (BODY["messages"], 0)
    assert request.headers["x-headrace-via"] == "other, us"


async def test_what_a_guard_asks_is_a_call_of_its_own_in_the_trace_of_the_client(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("It is.")))
    async with inside(tmp_path, upstream) as (out, sink):
        await out.complete("house", "judge-smol", BODY)
    [record], client = await sink.wait(), out.record

    assert record.key == "guard/house"
    assert (record.plan.deployment, record.plan.tags) == ("judge-smol", {"team": "search"})
    assert (record.outcome, record.status) == ("success", 200)
    assert record.billing.cost == 5 * 1000 + 3 * 2000
    assert record.ids.trace_id == client.ids.trace_id
    assert record.head.parent.span_id == client.ids.server_span
    assert record.head.request_id != "req_1"
    assert client.attempts == []


async def test_it_has_no_guards_and_no_cache_but_rules_and_limits(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("It is.")))
    async with inside(tmp_path, upstream) as (out, sink):
        for guard in ("house", "house", "other"):
            await out.complete(guard, "judge-smol", {**BODY, "max_tokens": 50})
        with pytest.raises(LimitExceeded):
            await out.complete("house", "judge-smol", BODY)

    assert [request.json["max_tokens"] for request in upstream.requests] == [7, 7, 50]
    assert [record.outcome for record in sink.records] == [*["success"] * 3, "limited"]
    assert {record.cache for record in sink.records} == {"bypass"}
    assert not any(record.guards for record in sink.records)


async def test_a_deployment_that_is_gone_is_not_found(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with inside(tmp_path, upstream) as (out, sink):
        with pytest.raises(NotFound):
            await out.complete("house", "judge-big", BODY)

    assert [record.status for record in sink.records] == [404]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (answer({"error": {"message": "no"}}, 500), "upstream_unavailable"),
        (answer({"error": {"message": "no"}}, 400), "upstream_refused"),
        (cut_before_head(), "upstream_unavailable"),
        (answer(b"<html>"), "upstream_invalid_response"),
        (answer(chat(None)), "upstream_invalid_response"),  # type: ignore[arg-type]
        (answer({**chat(), "choices": []}), "upstream_invalid_response"),
    ],
)
async def test_a_deployment_that_fails_raises(
    tmp_path: Path, upstream: ScriptedUpstream, script: Any, error: str
) -> None:
    upstream.answer_with(script)
    async with inside(tmp_path, upstream) as (out, _):
        with pytest.raises(ProxyError) as failed:
            await out.complete("house", "judge-smol", BODY)

    assert failed.value.code == error


async def test_whoever_stops_waiting_stops_the_upstream_too(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(hang())
    async with inside(tmp_path, upstream) as (out, sink):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await out.complete("house", "judge-smol", BODY)
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()

    assert [record.outcome for record in sink.records] == ["client_abort"]


async def test_the_time_of_others_is_not_the_proxys_own(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("It is.")))
    async with inside(tmp_path, upstream) as (out, _):
        moments = iter([10.0, 13.0, 20.0, 25.0])
        out.record.now = lambda: next(moments)
        asks = [out.complete("house", "judge-smol", BODY) for _ in range(2)]
        await asyncio.gather(*asks)
        await out.post(upstream.url, {}, b"{}")

    assert out.record.wait_s == 3.0 + 5.0


async def test_the_name_of_the_client_s_call_is_known() -> None:
    async with ways() as out:
        assert out.request_id == "req_1"


async def test_an_address_gets_what_is_sent_and_its_answer_is_given(
    upstream: ScriptedUpstream,
) -> None:
    upstream.answer_with(answer({"a": 1}, 418))
    async with ways() as out:
        assert await out.post(f"{upstream.url}/x", {"x-h": "1"}, b"{}") == (418, b'{"a": 1}')
    [request] = upstream.requests

    assert (request.method, request.path, request.headers["x-h"], request.body) == (
        "POST",
        "/x",
        "1",
        b"{}",
    )


async def test_a_redirect_is_not_followed(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({}, 307, f"location: {upstream.url}/other"))
    async with ways() as out:
        status, _ = await out.post(upstream.url, {}, b"{}")

    assert (status, len(upstream.requests)) == (307, 1)


async def test_an_answer_without_end_is_cut(upstream: ScriptedUpstream) -> None:
    async def endless(request: Asked, wire: Wire) -> None:
        await wire.send(head(200, "application/json", "transfer-encoding: chunked"))
        while not request.closed.is_set():
            await wire.send(b"10000\r\n", b" " * 65536, b"\r\n")

    upstream.answer_with(endless)
    async with ways() as out:
        with pytest.raises(ResponseTooLong):
            await out.post(upstream.url, {}, b"{}")
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()


async def test_the_largest_answer_is_read_whole(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(b" " * MAX_RESPONSE_BYTES))
    async with ways() as out:
        _, body = await out.post(upstream.url, {}, b"{}")

    assert len(body) == MAX_RESPONSE_BYTES


@pytest.mark.parametrize("script", [cut_before_head(), answer(b"", 200, "content-length: 9")])
async def test_who_breaks_off_has_not_answered(upstream: ScriptedUpstream, script: Any) -> None:
    upstream.answer_with(script)
    async with ways() as out:
        with pytest.raises(ConnectionError):
            await out.post(upstream.url, {}, b"{}")


async def test_who_is_not_there_has_not_answered() -> None:
    async with ways() as out:
        with pytest.raises(ConnectionError):
            await out.post("http://127.0.0.1:1/", {}, b"{}")
