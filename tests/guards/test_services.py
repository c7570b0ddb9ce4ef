"""Guards that ask a service or a model, over real calls."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import orjson
import pytest

from proxy.settings import LedgerLocation
from proxy.telemetry.log import build_call_line
from tests.conftest import policies_for
from tests.doubles import ScriptedUpstream, chat, hang, respond
from tests.guards.calls import ask
from tests.guards.conftest import StartRemoteGuard
from tests.guards.remote import GUARDS, remotely_guarded, served, verdict
from tests.test_pipeline import BEARER, ROUTES, reply_text

STREAMED = pytest.mark.parametrize("streamed", [False, True])
REFRESH = {"x-headrace-refresh-cache": "true"}


@STREAMED
@pytest.mark.parametrize("kind", GUARDS)
async def test_finding_in_response_blocks(
    kind: str, streamed: bool, remote_guard: StartRemoteGuard, upstream: ScriptedUpstream
) -> None:
    running = await remote_guard(kind, stage="output")
    replies = []
    for text in ("There is a horse.", "There is a hippo."):
        upstream.answer_with(served(streamed, text))
        replies.append(await ask(running.proxy, "Is there?", stream=streamed))

    good, bad = replies
    output = reply_text(ROUTES["openai-chat"], good.raw, streamed=streamed)
    assert (good.status, output) == (200, "There is a horse.")
    assert (bad.status, bad.error["code"]) == (400, "guardrail_blocked")


@STREAMED
@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("webhook", "A big [FOUND]."),
        ("presidio", "A big [PERSON]."),
        ("moderation", "[VIOLENCE]"),
        ("judge", "[VIOLATION]"),
    ],
)
async def test_finding_in_response_is_masked(
    kind: str, output: str, streamed: bool, remote_guard: StartRemoteGuard
) -> None:
    script = served(streamed, "A big hippo.")
    running = await remote_guard(kind, ", action: mask", "output", script=script)

    reply = await ask(running.proxy, "Which?", stream=streamed)

    assert reply.status == 200
    assert reply_text(ROUTES["openai-chat"], reply.raw, streamed=streamed) == output


@pytest.mark.parametrize("kind", GUARDS)
async def test_finding_blocks_and_is_in_no_log_or_metric(
    kind: str, remote_guard: StartRemoteGuard, upstream: ScriptedUpstream
) -> None:
    canary = "Xyzzy-7 told the judge"
    running = await remote_guard(kind, script=respond(chat("Sure.")))

    texts = (f"{canary} of a horse", f"{canary} of a hippo")
    good, bad = [await ask(running.proxy, text) for text in texts]

    assert (good.status, bad.status, bad.error["code"]) == (200, 400, "guardrail_blocked")
    assert bad.error["guard"]["name"] == kind
    assert len(upstream.requests) == 1
    records = await running.proxy.sink.wait(4 if kind == "judge" else 2)
    lines = b"\n".join(orjson.dumps(build_call_line(record)) for record in records).decode()
    for output in (await running.proxy.metrics(), lines):
        assert canary not in output
        assert "sk-upstream-secret" not in output


async def test_judge_has_its_own_row_of_cost(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("Sure.")))
    file = tmp_path / "calls.db"
    ledger = LedgerLocation("sqlite", file)
    async with remotely_guarded(tmp_path, upstream, "judge", ledger=ledger) as running:
        await ask(running.proxy, "A horse?")
        judged, client = await running.proxy.sink.wait(2)
        metrics = await running.proxy.metrics()
    with closing(sqlite3.connect(file)) as db:
        query = "select key, deployment, trace_id, cost_nano_usd from calls order by seq"
        rows = db.execute(query).fetchall()

    trace = client.ids.trace_id
    assert rows == [
        ("guard/judge", "judge-smol", trace, 5 * 1000 + 3 * 2000),
        ("support-widget", "search-answers", trace, None),
    ]
    assert judged.head.parent.span_id == client.ids.server_span
    for deployment in ("judge-smol", "search-answers"):
        pattern = rf'headrace_requests_total{{.*deployment="{deployment}".*}} (.*)'
        assert sum(map(float, re.findall(pattern, metrics))) == 1


async def test_deployment_may_judge_its_own_calls(
    remote_guard: StartRemoteGuard, upstream: ScriptedUpstream
) -> None:
    running = await remote_guard(
        "judge", ", message: No.", judging="{extends: default}", script=respond(verdict(False))
    )
    file = running.proxy.policies / "guards.yaml"
    file.write_text(file.read_text().replace("deployment: judge-smol", "deployment: resilient"))
    await running.proxy.send("/v1/models", headers=BEARER | REFRESH, method="GET")

    reply = await ask(running.proxy, "A horse?", model="resilient")

    records = await running.proxy.sink.wait(3)
    assert reply.status == 200
    assert [record.key for record in records[1:]] == ["guard/judge", "support-widget"]
    assert len(upstream.requests) == 2


async def test_judge_over_its_limit_fails(remote_guard: StartRemoteGuard) -> None:
    judging = "{limits: [{name: once, requests: 1 per hour, per: deployment}]}"
    running = await remote_guard("judge", judging=judging, script=respond(chat("Sure.")))

    first, second = [await ask(running.proxy, "A horse?") for _ in range(2)]

    *_, record = await running.proxy.sink.wait(4)
    assert (first.status, second.status) == (200, 503)
    assert second.error["guard"]["kind"] == "could_not_check"
    assert record.list_guard_results()[0][1].error == "LimitExceeded"
    assert record.limit_decision is None


async def test_judge_shares_the_slot_of_its_target(remote_guard: StartRemoteGuard) -> None:
    """A response of a target with one slot is judged by the same target."""
    running = await remote_guard("judge", stage="output", script=respond(chat("A horse.")))
    running.service.then(respond(chat("A horse.")))
    guards = running.proxy.policies / "guards.yaml"
    text = guards.read_text().replace("dialect: openai", "dialect: openai, max_concurrency: 1")
    guards.write_text(text.replace("policy: judging", "policy: default"))
    policies = running.proxy.policies / "policies.yaml"
    text = policies.read_text()
    policies.write_text(text.replace("[search-answers]}", "[search-answers, judge-smol]}"))
    await running.proxy.send("/v1/models", headers=BEARER | REFRESH, method="GET")

    other_key = {"authorization": "Bearer hr-search-key"}
    reply = await ask(running.proxy, "Which?", other_key, model="judge-smol")

    assert reply.status == 200
    assert len(running.service.requests) == 2


async def test_client_disconnect_stops_the_judge(
    remote_guard: StartRemoteGuard, upstream: ScriptedUpstream
) -> None:
    running = await remote_guard("judge", ", deadline: 20s")
    running.service.answer_with(hang())
    body = {"model": "search-answers", "messages": [{"role": "user", "content": "A horse?"}]}
    limit = aiohttp.ClientTimeout(total=0.3)

    with pytest.raises(TimeoutError):
        await running.proxy.client.post(
            "/v1/chat/completions", headers=BEARER, json=body, timeout=limit
        )

    records = await running.proxy.sink.wait(2)
    assert {record.outcome for record in records} == {"client_abort"}
    assert upstream.requests == []


async def test_candidate_is_not_compared_for_judges(
    tmp_path: Path, remote_guard: StartRemoteGuard, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("Sure.")))
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "p.yaml").write_text(policies_for(upstream.url))
    running = await remote_guard("judge", candidate=candidate)

    await ask(running.proxy, "A horse?")

    await running.proxy.sink.wait(2)
    assert 'headrace_candidate_decisions_total{kind="key"' not in await running.proxy.metrics()
