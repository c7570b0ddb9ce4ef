"""Guards that ask somebody else, over real calls: what they find, and whatever goes wrong there."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.egress import MAX_RESPONSE_BYTES
from proxy.settings import LedgerAt
from proxy.telemetry.log import canonical
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    Asked,
    Script,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    chat_events,
    cut_before_head,
    hang,
    scripted_upstream,
    stream,
)
from tests.guards.test_run import ask
from tests.test_pipeline import BEARER, ROUTES, texts

ELSEWHERE = """
upstreams:
  local: {{dialect: openai, base_url: '{url}', api_key: '${{UPSTREAM_KEY}}'}}
deployments:
  judge-smol:
    targets: [{{upstream: local, model: smol, price: {{input: 1, output: 2}}}}]
    policy: judging
policies:
  judging: {judging}
  default: {{match: all, {stage}: [{guard}]}}
"""
WRITTEN = {
    "judge": "{guard: judge, deployment: judge-smol, criteria: No hippos.",
    "webhook": "{guard: webhook, url: 'URL', secret: '${UPSTREAM_KEY}'",
    "presidio": "{guard: presidio, url: 'URL'",
    "moderation": "{guard: moderation, upstream: local",
}
WORD = "hippo"


def verdict(is_found: bool, *where: int) -> dict[str, Any]:
    members = {"reason": WORD, "verdict": "violation" if is_found else "pass"}
    return chat(json.dumps({**members, "score": 0.9 if is_found else 0, "where": where}))


def webhook(request: Any) -> Any:
    places = [(number, text["text"].find(WORD)) for number, text in enumerate(request["texts"])]
    result = [
        {"text": n, "start": position, "end": position + len(WORD)}
        for n, position in places
        if position >= 0
    ]
    return {"findings": result}


def presidio(request: Any) -> Any:
    position = request["text"].find(WORD)
    place = {"entity_type": "PERSON", "start": position, "end": position + len(WORD), "score": 0.85}
    return [place] if position >= 0 else []


def moderation(request: Any) -> Any:
    def result(text: str) -> dict[str, Any]:
        bad = WORD in text
        scores = {"violence": 0.9 if bad else 0.1}
        return {"flagged": bad, "categories": {"violence": bad}, "category_scores": scores}

    return {"results": [result(text) for text in request["input"]]}


def judge(request: Any) -> Any:
    return verdict(WORD in request["messages"][1]["content"])


HONEST: dict[str, Callable[[Any], Any]] = {
    "judge": judge,
    "webhook": webhook,
    "presidio": presidio,
    "moderation": moderation,
}


def honest(kind: str) -> Script:
    """Look at what is asked about, and say so."""

    async def script(request: Asked, wire: Wire) -> None:
        await answer(HONEST[kind](request.json))(request, wire)

    return script


@dataclass
class Place:
    """A guarded proxy, its client, and the server that its guard asks."""

    proxy: Proxy
    client: aiohttp.ClientSession
    elsewhere: ScriptedUpstream


@asynccontextmanager
async def guarded(
    folder: Path,
    upstream: ScriptedUpstream,
    kind: str,
    extra: str = "",
    stage: str = "input",
    judging: str = "{input: [{guard: keywords, words: [horse]}]}",
    **settings: Any,
) -> AsyncIterator[Place]:
    async with scripted_upstream() as elsewhere:
        elsewhere.answer_with(honest(kind))
        guard = f"{WRITTEN[kind].replace('URL', elsewhere.url)}{extra}}}"
        guards = ELSEWHERE.format(url=elsewhere.url, stage=stage, guard=guard, judging=judging)
        policies = folder / "policies"
        policies.mkdir()
        (policies / "guards.yaml").write_text(guards)
        async with (
            running_proxy(policies, world(upstream.url), **settings) as proxy,
            aiohttp.ClientSession(base_url=proxy.url) as client,
        ):
            yield Place(proxy, client, elsewhere)


def served(streamed: bool, text: str) -> Script:
    pieces = [text[index : index + 3] for index in range(0, len(text), 3)]
    return stream(chat_events(*pieces)) if streamed else answer(chat(text))


@pytest.mark.parametrize("kind", WRITTEN)
async def test_what_is_found_in_a_question_blocks_it(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    async with guarded(tmp_path, upstream, kind) as place:
        good, _, _ = await ask(place.client, "Is there a horse?")
        bad, _, reply = await ask(place.client, "Is there a hippo?")
        request_count = len(place.elsewhere.requests)

    assert (good, bad, reply["error"]["code"]) == (200, 400, "guardrail_blocked")
    assert reply["error"]["guard"]["name"] == kind
    assert len(upstream.requests) == 1
    assert request_count >= 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", WRITTEN)
async def test_what_is_found_in_an_answer_blocks_it_before_anything_is_shown(
    kind: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, kind, stage="output") as place:
        upstream.answer_with(served(streamed, "There is a horse."))
        good, output, _ = await ask(place.client, "Is there?", stream=streamed)
        upstream.answer_with(served(streamed, "There is a hippo."))
        bad, _, reply = await ask(place.client, "Is there?", stream=streamed)

    assert texts(ROUTES["openai-chat"], output, streamed=streamed) == "There is a horse."
    assert (good, bad, reply["error"]["code"]) == (200, 400, "guardrail_blocked")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("webhook", "A big [FOUND]."),
        ("presidio", "A big [PERSON]."),
        ("moderation", "[VIOLENCE]"),
        ("judge", "[VIOLATION]"),
    ],
)
async def test_what_is_found_is_masked_where_it_stands(
    kind: str, output: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(served(streamed, "A big hippo."))
    async with guarded(tmp_path, upstream, kind, ", action: mask", "output") as place:
        status, raw, _ = await ask(place.client, "Which?", stream=streamed)

    assert status == 200
    assert texts(ROUTES["openai-chat"], raw, streamed=streamed) == output


async def test_what_is_found_in_an_answer_has_it_asked_for_once_more(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.then(served(streamed=False, text="A hippo."), served(streamed=False, text="A horse."))
    async with guarded(tmp_path, upstream, "webhook", ", action: retry", "output") as place:
        status, _, reply = await ask(place.client, "Which?")

    assert (status, reply["choices"][0]["message"]["content"]) == (200, "A horse.")
    assert [len(upstream.requests), len(place.elsewhere.requests)] == [2, 2]


async def test_what_is_masked_in_a_question_reaches_no_upstream(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    async with guarded(tmp_path, upstream, "presidio", ", action: mask") as place:
        await ask(place.client, "Is hippo there?")
    [request] = upstream.requests

    assert request.json["messages"][0]["content"] == "Is [PERSON] there?"


FAULTS: dict[str, Script] = {
    "slow": hang(),
    "broken": cut_before_head(),
    "failing": answer({"error": {"message": WORD}}, 500),
    "redirecting": answer({}, 307, "location: /elsewhere"),
    "garbage": answer(b"<html>hippo</html>"),
    "empty": answer(b""),
    "huge": answer(b" " * (MAX_RESPONSE_BYTES + 1)),
    "other": answer({"hippo": [{}]}),
}
WRONG_PLACES: dict[str, Any] = {
    "judge": verdict(True, 7),
    "webhook": {"findings": [{"text": 0, "start": 0, "end": 10**6}]},
    "presidio": [{"entity_type": "PERSON", "start": 0, "end": 10**6, "score": 1.0}],
    "moderation": {"results": []},
}


@pytest.mark.parametrize("stage", ["input", "output"])
@pytest.mark.parametrize("fault", [*FAULTS, "misplaced"])
@pytest.mark.parametrize("kind", WRITTEN)
async def test_who_cannot_tell_blocks_unless_the_policy_is_open(
    kind: str, fault: str, stage: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    streamed = stage == "output"
    upstream.answer_with(served(streamed, "A horse."))
    script = FAULTS.get(fault) or answer(WRONG_PLACES[kind])
    deadline = ", deadline: 100ms" if fault == "slow" else ", deadline: 20s"
    outcomes: dict[str, Any] = {}
    for way in ("closed", "open"):
        folder = tmp_path / way
        folder.mkdir()
        extra = f"{deadline}, on_error: {way}"
        async with guarded(folder, upstream, kind, extra, stage) as place:
            place.elsewhere.answer_with(script)
            status, _, body = await ask(place.client, "A horse?", stream=streamed)
            records = await place.proxy.sink.wait(2 if kind == "judge" else 1)
        outcomes[way] = status, body.get("error", {}).get("guard")
        [record] = [item for item in records if item.head.internal_key is None]
        [(_, result)] = record.guard_results()

        assert (result.verdict, bool(result.error)) == ("failed", True)
        assert (result.error == "deadline") == (fault == "slow")
        assert WORD not in orjson.dumps(canonical(record)).decode()

    # It is no fault of the text, and another try may pass.
    assert outcomes["closed"] == (503, {"name": kind, "kind": "could_not_check"})
    assert outcomes["open"][0] == 200


async def test_a_server_that_is_not_there_cannot_tell(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, "webhook") as place:
        (place.proxy.policies / "guards.yaml").write_text(
            "policies: {default: {input: [{guard: webhook, url: 'http://127.0.0.1:1', "
            "secret: '${UPSTREAM_KEY}'}]}}"
        )
        headers = {"x-headrace-refresh-cache": "true"}
        await place.client.get("/v1/models", headers={**BEARER, **headers})
        status, _, reply = await ask(place.client, "A horse?")
        [*_, record] = await place.proxy.sink.wait(2)

    assert (status, reply["error"]["code"]) == (503, "guard_unavailable")
    assert record.guard_results()[0][1].error == "refused"


CANARY = "Xyzzy-7 told the judge"


@pytest.mark.parametrize("kind", WRITTEN)
async def test_no_text_that_is_asked_about_is_told_anybody_else(
    kind: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    async with guarded(tmp_path, upstream, kind) as place:
        await ask(place.client, f"{CANARY} of a horse")
        await ask(place.client, f"{CANARY} of a hippo")
        records = await place.proxy.sink.wait(4 if kind == "judge" else 2)
        async with place.client.get(f"{place.proxy.admin}/metrics") as response:
            metrics = await response.text()
        lines = b"\n".join(orjson.dumps(canonical(record)) for record in records).decode()

    for output in (metrics, lines):
        assert CANARY not in output
        assert "sk-upstream-secret" not in output


async def test_what_a_judge_costs_is_in_a_row_of_its_own(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    file = tmp_path / "calls.db"
    ledger = LedgerAt("sqlite", file)
    async with guarded(tmp_path, upstream, "judge", ledger=ledger) as place:
        await ask(place.client, "A horse?")
        judged, client = await place.proxy.sink.wait(2)
        async with place.client.get(f"{place.proxy.admin}/metrics") as response:
            metrics = await response.text()
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute(
            "select key, deployment, trace_id, cost_nano_usd from calls order by seq"
        ).fetchall()

    trace = client.ids.trace_id
    assert rows == [
        ("guard/judge", "judge-smol", trace, 5 * 1000 + 3 * 2000),
        ("support-widget", "search-answers", trace, None),
    ]
    assert judged.head.parent.span_id == client.ids.server_span
    for deployment in ("judge-smol", "search-answers"):
        counted = re.findall(
            rf'headrace_requests_total{{.*deployment="{deployment}".*}} (.*)', metrics
        )
        assert sum(map(float, counted)) == 1


async def test_a_deployment_may_judge_its_own_calls_without_end(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    own_value = ", message: No."
    upstream.answer_with(answer(verdict(False)))
    async with guarded(
        tmp_path, upstream, "judge", own_value, judging="{extends: default}"
    ) as place:
        place.elsewhere.answer_with(answer(verdict(False)))
        file = place.proxy.policies / "guards.yaml"
        file.write_text(file.read_text().replace("deployment: judge-smol", "deployment: resilient"))
        await place.client.get("/v1/models", headers={**BEARER, "x-headrace-refresh-cache": "true"})
        status, _, _ = await ask(place.client, "A horse?", model="resilient")
        records = await place.proxy.sink.wait(3)

    assert status == 200
    assert [record.key for record in records[1:]] == ["guard/judge", "support-widget"]
    assert len(upstream.requests) == 2


async def test_a_judge_beyond_its_limit_cannot_tell(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    judging = "{limits: [{name: once, requests: 1 per hour, per: deployment}]}"
    async with guarded(tmp_path, upstream, "judge", judging=judging) as place:
        first_count, _, _ = await ask(place.client, "A horse?")
        second, _, reply = await ask(place.client, "A horse?")
        *_, record = await place.proxy.sink.wait(4)

    assert (first_count, second, reply["error"]["guard"]["kind"]) == (200, 503, "could_not_check")
    assert record.guard_results()[0][1].error == "LimitExceeded"
    assert record.limit_decision is None


async def test_an_answer_is_judged_by_the_one_place_that_gave_it(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A horse.")))
    async with guarded(tmp_path, upstream, "judge", stage="output") as place:
        place.elsewhere.then(answer(chat("A horse.")))
        file = place.proxy.policies / "guards.yaml"
        text = file.read_text().replace("dialect: openai", "dialect: openai, max_concurrency: 1")
        file.write_text(text.replace("policy: judging", "policy: default"))
        lookback = (place.proxy.policies / "policies.yaml").read_text()
        lookback = lookback.replace("[search-answers]}", "[search-answers, judge-smol]}")
        (place.proxy.policies / "policies.yaml").write_text(lookback)
        headers = {"authorization": "Bearer hr-search-key"}
        refresh = {**BEARER, "x-headrace-refresh-cache": "true"}
        await place.client.get("/v1/models", headers=refresh)
        body = {"model": "judge-smol", "messages": [{"role": "user", "content": "Which?"}]}
        async with place.client.post(
            "/v1/chat/completions", headers=headers, json=body
        ) as response:
            status = response.status

    assert status == 200
    assert len(place.elsewhere.requests) == 2


async def test_a_client_that_leaves_stops_the_judge_too(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, "judge", ", deadline: 20s") as place:
        place.elsewhere.answer_with(hang())
        with pytest.raises(TimeoutError):
            await ask_briefly(place.client)
        records = await place.proxy.sink.wait(2)

    assert {record.outcome for record in records} == {"client_abort"}
    assert upstream.requests == []


async def ask_briefly(client: aiohttp.ClientSession) -> None:
    body = {"model": "search-answers", "messages": [{"role": "user", "content": "A horse?"}]}
    limit = aiohttp.ClientTimeout(total=0.3)
    await client.post("/v1/chat/completions", headers=BEARER, json=body, timeout=limit)


async def test_a_candidate_does_not_decide_what_guards_ask(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "p.yaml").write_text(world(upstream.url))
    async with guarded(tmp_path, upstream, "judge", candidate=candidate) as place:
        await ask(place.client, "A horse?")
        await place.proxy.sink.wait(2)
        async with place.client.get(f"{place.proxy.admin}/metrics") as response:
            metrics = await response.text()

    assert 'headrace_candidate_decisions_total{kind="key"' not in metrics
