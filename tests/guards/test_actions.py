"""Guards that route a request to another target, and guards that request another response."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from proxy.call.summary import summarize
from proxy.limits.claims import estimate_cost
from proxy.money.usage import Price
from proxy.types import Call, ModelCall, Plan, RequestHead, Target, Upstream
from proxy.types.guard import GuardPlan
from tests.doubles import ScriptedUpstream, chat, chat_events, respond, stream
from tests.guards.calls import ask, chat_answer, cut, decision_metric, verdicts
from tests.guards.conftest import Guard
from tests.guards.doubles import rule
from tests.guards.echoes import echoing, received_texts

TO = "to: [{upstream: scale, model: spare, price: {input: 10, output: 30}}]"
ROUTE = f"{{guard: keywords, words: [hippo], action: route, {TO}}}"
RETRY = "{guard: keywords, words: [hippo], action: retry}"
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def models(upstream: ScriptedUpstream) -> list[str]:
    return [request.json["model"] for request in upstream.requests]


@STREAMED
async def test_finding_routes_call(
    streamed: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    proxy = await guard(f"input: [{ROUTE}]", chat_answer("Fine.", streamed=streamed))

    replies = [await ask(proxy, text, stream=streamed) for text in ("Hi", "A hippo")]

    usual, routed = await proxy.sink.wait(2)
    assert [received_texts(reply.raw)[0] for reply in replies] == ["Fine.", "Fine."]
    assert models(upstream) == ["smol", "spare"]
    assert verdicts(usual, "input") == ["passed"]
    assert verdicts(routed, "input") == ["routed"]
    assert [attempt.target.model for attempt in routed.attempts] == ["spare"]
    assert [target.model for target in routed.plan.model_calls[0].targets] == ["spare"]
    assert routed.billing.cost == 5 * 10_000 + 3 * 30_000
    assert decision_metric("keywords", "input", "routed") in await proxy.metrics()


@pytest.mark.parametrize(
    ("guards", "verdict", "model"),
    [(f"input: [{ROUTE}]", "routed", "smol"), (f"output: [{RETRY}]", "retried", "smol")],
)
async def test_shadow_guard_changes_nothing(
    guards: str, verdict: str, model: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    proxy = await guard(guards.replace("action", "mode: shadow, action"), respond(chat("A hippo.")))

    reply = await ask(proxy, "A hippo")

    [record] = await proxy.sink.wait()
    assert (reply.status, models(upstream)) == (200, [model])
    assert [result.verdict for _, result in record.list_guard_results()] == [verdict]


async def test_first_route_wins_unless_blocked(guard: Guard, upstream: ScriptedUpstream) -> None:
    later = ROUTE.replace("model: spare", "model: other").replace("keywords", "keywords, name: b")
    block = "{guard: keywords, name: c, words: [rhino]}"
    proxy = await guard(f"input: [{ROUTE}, {later}, {block}]", respond(chat("Fine.")))

    replies = [await ask(proxy, text) for text in ("A hippo", "A hippo and a rhino")]

    assert [reply.status for reply in replies] == [200, 400]
    assert models(upstream) == ["spare"]


async def test_routed_response_is_cached(guard: Guard, upstream: ScriptedUpstream) -> None:
    proxy = await guard(f"input: [{ROUTE}], cache: {{ttl: 1h}}", respond(chat("Fine.")))

    for _ in range(2):
        await ask(proxy, "A hippo")

    records = await proxy.sink.wait(2)
    assert [record.cache for record in records] == ["miss", "hit"]
    assert len(upstream.requests) == 1
    assert records[1].saved.cost == records[0].billing.cost


async def test_route_without_price_is_refused(guard: Guard, upstream: ScriptedUpstream) -> None:
    free = ROUTE.replace(", price: {input: 10, output: 30}", "")
    proxy = await guard(f"input: [{free}]")
    file = proxy.policies / "policies.yaml"
    text = file.read_text()
    file.write_text(text.replace("  support-chat:\n", "  support-chat:\n    unpriced: refuse\n"))
    headers = {"x-headrace-refresh-cache": "true", "x-headrace-deployment": "support-chat"}

    reply = await ask(proxy, "A hippo", headers)

    assert (reply.status, reply.error["guard"]["kind"]) == (400, "could_not_route")
    assert upstream.requests == []


def test_claim_covers_the_most_expensive_route() -> None:
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


@STREAMED
async def test_retry_shows_only_the_second_response(
    streamed: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    long = "All is calm and well here. " * 20
    upstream.then(
        chat_answer(long, "A hip", "po.", streamed=streamed),
        chat_answer("A cat.", streamed=streamed),
    )
    proxy = await guard(f"output: [{RETRY}]")

    headers = {"x-headrace-deployment": "support-chat"}
    reply = await ask(proxy, "Hi", headers, stream=streamed)

    [record] = await proxy.sink.wait()
    assert (reply.status, received_texts(reply.raw)[0]) == (200, "A cat.")
    assert len(upstream.requests) == 2
    assert verdicts(record, "output") == ["retried", "passed"]
    assert [attempt.reason for attempt in record.attempts] == ["first", "guard"]
    assert [r.served for _, r, bill in summarize(record).attempts if bill] == [False, True]
    assert 0 < (summarize(record).lost_cost or 0) < record.billing.cost
    labels = 'model="gpt-4o-mini",upstream="openai",why="guard"'
    assert f"headrace_upstream_repeats_total{{{labels}}} 1.0" in await proxy.metrics()


@STREAMED
async def test_second_finding_blocks(
    streamed: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    proxy = await guard(f"output: [{RETRY}]", chat_answer("A hip", "po.", streamed=streamed))

    reply = await ask(proxy, "Hi", stream=streamed)

    [record] = await proxy.sink.wait()
    assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked")
    assert len(upstream.requests) == 2
    assert (record.outcome, verdicts(record, "output")) == ("blocked", ["retried", "blocked"])


async def test_failed_retry_is_an_upstream_error(guard: Guard, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(chat("A hippo.")), respond({}, 500))
    proxy = await guard(f"output: [{RETRY}]")

    reply = await ask(proxy, "Hi")

    [record] = await proxy.sink.wait()
    assert (reply.status, reply.error["code"]) == (502, "upstream_unavailable")
    assert [result.served for _, result, bill in summarize(record).attempts if bill] == [False]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_retry_guard_keeps_a_clean_stream(
    size: int, guard: Guard, upstream: ScriptedUpstream
) -> None:
    text = "All is calm and well here, hip hip."
    proxy = await guard(f"output: [{RETRY}]", stream(chat_events(*cut(text, size))))

    reply = await ask(proxy, "Hi", stream=True)

    [record] = await proxy.sink.wait()
    assert (reply.status, received_texts(reply.raw)[0], len(upstream.requests)) == (200, text, 1)
    assert verdicts(record, "output") == ["passed"]


async def test_second_response_is_cached(guard: Guard, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(chat("A hippo.")), respond(chat("A cat.")))
    proxy = await guard(f"output: [{RETRY}], cache: {{ttl: 1h}}")

    outputs = [received_texts((await ask(proxy, "Hi")).raw)[0] for _ in range(2)]

    assert outputs == ["A cat.", "A cat."]
    assert [record.cache for record in await proxy.sink.wait(2)] == ["miss", "hit"]


async def test_second_response_has_its_values(guard: Guard, upstream: ScriptedUpstream) -> None:
    upstream.then(stream(chat_events("A hippo.")), echoing())
    pii = "{guard: pii, entities: [email], action: mask, restore: true}"
    proxy = await guard(f"input: [{pii}], output: [{RETRY}]")

    reply = await ask(proxy, "Write to jane@example.com", stream=True)

    assert received_texts(reply.raw)[0] == "Write to jane@example.com"


EMAIL = "jane@example.com"
NAME = 'Ann "Weir" é'
PROMPT = f"Write to {EMAIL} and {NAME}, [[sic]], then to {EMAIL} again. ["
PII = "{guard: pii, entities: [email], action: mask, restore: true}"
NAMES = f"{{guard: keywords, words: ['{NAME}'], action: mask, restore: true}}"
RESTORED = f"input: [{PII}, {NAMES}]"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("{guard: pii, entities: [email], action: block}", PROMPT),
        ("{guard: keywords, words: [again], action: mask}", PROMPT.replace("again", "[WORD]")),
    ],
)
async def test_output_guards_inspect_placeholders(output: str, text: str, guard: Guard) -> None:
    proxy = await guard(f"{RESTORED}, output: [{output}]", echoing(2))

    reply = await ask(proxy, PROMPT, stream=True)

    assert (reply.status, received_texts(reply.raw)[0]) == (200, text)


async def test_broken_stream_releases_all_it_held(guard: Guard) -> None:
    text = f"{EMAIL} [["
    proxy = await guard(RESTORED, echoing(1, cut=True))

    reply = await ask(proxy, text, stream=True)

    [record] = await proxy.sink.wait()
    assert (received_texts(reply.raw)[0], record.outcome) == (text, "upstream_error")
