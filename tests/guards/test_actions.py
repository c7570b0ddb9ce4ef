"""Guards that send a question elsewhere, and guards that ask once more for an answer."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.limits.claims import estimate_cost
from proxy.money.usage import Price
from proxy.types import Call, ModelCall, Plan, RequestHead, Target, Upstream
from proxy.types.guard import GuardPlan
from tests.doubles import ScriptedUpstream, answer, chat, chat_events, stream
from tests.guards.doubles import rule
from tests.guards.echoes import echoing, shown
from tests.guards.test_run import ask, guarded

TO = "to: [{upstream: scale, model: spare, price: {input: 10, output: 30}}]"
ROUTE = f"{{guard: keywords, words: [hippo], action: route, {TO}}}"
RETRY = "{guard: keywords, words: [hippo], action: retry}"
MODES = pytest.mark.parametrize("streamed", [False, True])


def saying(*texts: str, streamed: bool) -> Any:
    return stream(chat_events(*texts)) if streamed else answer(chat("".join(texts)))


def verdicts(record: Any, stage: str) -> list[str]:
    return [result.verdict for position, result in record.guard_results() if position == stage]


@MODES
async def test_a_finding_sends_the_call_elsewhere(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(saying("Fine.", streamed=streamed))
    async with guarded(tmp_path, upstream, f"input: [{ROUTE}]") as (proxy, client):
        options: dict[str, Any] = {"stream": True} if streamed else {}
        _, usual, _ = await ask(client, "Hi", **options)
        _, routed, _ = await ask(client, "A hippo", **options)
        value, other_value = await proxy.sink.wait(2)
        async with client.get(f"{proxy.admin}/metrics") as response:
            metrics = await response.text()

    assert [shown(usual)[0], shown(routed)[0]] == ["Fine.", "Fine."]
    assert [request.json["model"] for request in upstream.requests] == ["smol", "spare"]
    assert (verdicts(value, "input"), verdicts(other_value, "input")) == (["passed"], ["routed"])
    assert [attempt.target.model for attempt in other_value.attempts] == ["spare"]
    assert [target.model for target in other_value.plan.model_calls[0].targets] == ["spare"]
    assert other_value.billing.cost == 5 * 10_000 + 3 * 30_000
    labels = 'guard="keywords",shadow="false",stage="input",verdict="routed"'
    assert f"headrace_guard_decisions_total{{{labels}}} 1.0" in metrics


async def test_in_shadow_the_call_goes_where_it_would(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    shadow = ROUTE.replace("action", "mode: shadow, action")
    upstream.answer_with(answer(chat("Fine.")))
    async with guarded(tmp_path, upstream, f"input: [{shadow}]") as (proxy, client):
        await ask(client, "A hippo")
        [record] = await proxy.sink.wait()

    assert [request.json["model"] for request in upstream.requests] == ["smol"]
    assert verdicts(record, "input") == ["routed"]


async def test_the_first_guard_that_routes_has_its_way_and_one_that_blocks_ends_it(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    later = ROUTE.replace("model: spare", "model: other").replace("keywords", "keywords, name: b")
    block = "{guard: keywords, name: c, words: [rhino]}"
    upstream.answer_with(answer(chat("Fine.")))
    guards = f"input: [{ROUTE}, {later}, {block}]"
    async with guarded(tmp_path, upstream, guards) as (_, client):
        status, _, _ = await ask(client, "A hippo")
        blocked, _, _ = await ask(client, "A hippo and a rhino")

    assert (status, blocked) == (200, 400)
    assert [request.json["model"] for request in upstream.requests] == ["spare"]


async def test_an_answer_from_elsewhere_is_kept_by_itself(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Fine.")))
    guards = f"input: [{ROUTE}], cache: {{ttl: 1h}}"
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        for _ in range(2):
            await ask(client, "A hippo")
        records = await proxy.sink.wait(2)

    assert [record.cache for record in records] == ["miss", "hit"]
    assert len(upstream.requests) == 1
    assert records[1].saved.cost == records[0].billing.cost


async def test_a_call_that_may_only_be_priced_is_not_sent_where_nobody_knows_the_price(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    free = ROUTE.replace(", price: {input: 10, output: 30}", "")
    async with guarded(tmp_path, upstream, f"input: [{free}]") as (proxy, client):
        file = proxy.policies / "policies.yaml"
        text = file.read_text().replace(
            "  support-chat:\n", "  support-chat:\n    unpriced: refuse\n"
        )
        file.write_text(text)
        headers = {"x-headrace-refresh-cache": "true", "x-headrace-deployment": "support-chat"}
        status, _, reply = await ask(client, "A hippo", headers=headers)

    assert (status, reply["error"]["guard"]["kind"]) == (400, "could_not_route")
    assert upstream.requests == []


def test_a_claim_is_of_the_dearest_target_that_a_guard_may_choose() -> None:
    upstream = Upstream("openai", "openai", "http://localhost")
    cheap = Target(upstream, "smol", prices=(Price(Decimal(1), Decimal(1)),))
    dear = Target(upstream, "large", prices=(Price(Decimal(100), Decimal(100)),))
    routes = rule("hippo", action="route", route_targets=(dear,))
    head = RequestHead("openai", "chat", "/v1/chat/completions", "req_1")
    call = Call(head, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10})

    def cost(*rules: Any) -> int | None:
        plan = Plan("1", "k", "d", {}, (ModelCall("smol", (cheap,)),), guards=GuardPlan(rules))
        return estimate_cost(plan, call)

    assert cost() is not None
    assert cost(routes) == 100 * (cost() or 0)
    assert cost(rule("hippo", action="route", route_targets=(dear,), shadow=True)) == cost()


@MODES
async def test_an_answer_is_asked_for_once_more_and_nothing_of_the_first_is_shown(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    long = "All is calm and well here. " * 20
    upstream.then(
        saying(long, "A hip", "po.", streamed=streamed), saying("A cat.", streamed=streamed)
    )
    async with guarded(tmp_path, upstream, f"output: [{RETRY}]") as (proxy, client):
        headers = {"x-headrace-deployment": "support-chat"}
        options: dict[str, Any] = {"stream": True} if streamed else {}
        status, raw, _ = await ask(client, "Hi", headers=headers, **options)
        [record] = await proxy.sink.wait()
        async with client.get(f"{proxy.admin}/metrics") as response:
            metrics = await response.text()

    assert (status, shown(raw)[0]) == (200, "A cat.")
    assert len(upstream.requests) == 2
    assert verdicts(record, "output") == ["retried", "passed"]
    assert [attempt.reason for attempt in record.attempts] == ["first", "guard"]
    assert [fate.served for _, fate, bill in record.billing.attempts if bill] == [False, True]
    assert record.billing.lost_cost is not None
    assert record.billing.cost is not None
    assert 0 < record.billing.lost_cost < record.billing.cost
    repeats = 'model="gpt-4o-mini",upstream="openai",why="guard"'
    assert f"headrace_upstream_repeats_total{{{repeats}}} 1.0" in metrics


@MODES
async def test_a_second_answer_like_the_first_is_blocked(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(saying("A hip", "po.", streamed=streamed))
    async with guarded(tmp_path, upstream, f"output: [{RETRY}]") as (proxy, client):
        options: dict[str, Any] = {"stream": True} if streamed else {}
        status, _, reply = await ask(client, "Hi", **options)
        [record] = await proxy.sink.wait()

    assert (status, reply["error"]["code"]) == (400, "guardrail_blocked")
    assert len(upstream.requests) == 2
    assert (record.outcome, verdicts(record, "output")) == ("blocked", ["retried", "blocked"])


async def test_an_upstream_that_fails_the_second_time_is_told_of(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.then(answer(chat("A hippo.")), answer({}, 500))
    async with guarded(tmp_path, upstream, f"output: [{RETRY}]") as (proxy, client):
        status, _, reply = await ask(client, "Hi")
        [record] = await proxy.sink.wait()

    assert (status, reply["error"]["code"]) == (502, "upstream_unavailable")
    assert [fate.served for _, fate, bill in record.billing.attempts if bill] == [False]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_a_guard_that_may_retry_holds_a_stream_and_changes_nothing_of_it(
    size: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = "All is calm and well here, hip hip."
    upstream.answer_with(
        stream(chat_events(*(text[index : index + size] for index in range(0, len(text), size))))
    )
    async with guarded(tmp_path, upstream, f"output: [{RETRY}]") as (proxy, client):
        status, raw, _ = await ask(client, "Hi", stream=True)
        [record] = await proxy.sink.wait()

    assert (status, shown(raw)[0], len(upstream.requests)) == (200, text, 1)
    assert verdicts(record, "output") == ["passed"]


async def test_what_is_kept_is_the_answer_that_was_shown(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.then(answer(chat("A hippo.")), answer(chat("A cat.")))
    guards = f"output: [{RETRY}], cache: {{ttl: 1h}}"
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        texts = [shown((await ask(client, "Hi"))[1])[0] for _ in range(2)]
        records = await proxy.sink.wait(2)

    assert texts == ["A cat.", "A cat."]
    assert [record.cache for record in records] == ["miss", "hit"]


async def test_values_come_back_in_the_second_answer_too(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.then(stream(chat_events("A hippo.")), echoing())
    pii = "{guard: pii, entities: [email], action: mask, restore: true}"
    async with guarded(tmp_path, upstream, f"input: [{pii}], output: [{RETRY}]") as (_, client):
        _, raw, _ = await ask(client, "Write to jane@example.com", stream=True)

    assert shown(raw)[0] == "Write to jane@example.com"


async def test_a_guard_in_shadow_asks_nothing(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    shadow = RETRY.replace("action", "mode: shadow, action")
    async with guarded(tmp_path, upstream, f"output: [{shadow}]") as (proxy, client):
        status, _, _ = await ask(client, "Hi")
        [record] = await proxy.sink.wait()

    assert (status, len(upstream.requests)) == (200, 1)
    assert verdicts(record, "output") == ["retried"]
