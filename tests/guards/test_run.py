"""Guards over real calls: blocked, masked, flagged or only counted; in, out, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    legacy,
    stream,
)
from tests.test_pipeline import BEARER, ROUTES, Route, texts

EMAIL = "jane@example.com"
WORD = "{guard: keywords, words: [hippo, Größe]}"
PII = "{guard: pii, entities: [email], action: mask}"


@asynccontextmanager
async def guarded(
    folder: Path, upstream: ScriptedUpstream, guards: str
) -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession]]:
    policies = f"{world(upstream.url)}\npolicies:\n  default: {{match: all, {guards}}}\n"
    async with (
        running_proxy(folder / "policies", policies) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        yield proxy, client


async def ask(
    client: aiohttp.ClientSession,
    content: Any,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> tuple[int, bytes, dict[str, Any]]:
    messages = [{"role": "user", "content": content}]
    body = {"model": "search-answers", "messages": messages, **options}
    path, headers = "/v1/chat/completions", {**BEARER, **(headers or {})}
    async with client.post(path, headers=headers, json=body) as response:
        raw = await response.read()
        return response.status, raw, json.loads(raw) if raw.startswith(b"{") else {}


async def test_a_question_with_a_word_of_the_list_is_blocked_before_anything_is_asked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with guarded(tmp_path, upstream, f"input: [{WORD}]") as (proxy, client):
        status, _, reply = await ask(client, "Where is the h\u200bIPP\u043e?")
        [record] = await proxy.sink.wait()
        async with client.get(f"{proxy.admin}/metrics") as response:
            metrics = await response.text()

    assert (status, reply["error"]["code"]) == (400, "guardrail_blocked")
    assert reply["error"]["guard"] == {"name": "keywords", "kind": "word"}
    assert upstream.requests == []
    assert (record.outcome, record.billing.cost) == ("blocked", 0)
    labels = 'guard="keywords",shadow="false",stage="input",verdict="blocked"'
    assert f"headrace_guard_decisions_total{{{labels}}} 1.0" in metrics


@pytest.mark.parametrize("name", ROUTES)
async def test_no_route_lets_a_word_pass(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route: Route = ROUTES[name]
    words = {"messages": [{"role": "user", "content": "a hippo"}]}
    fields = words if route.chat else {"prompt": "a hippo"}
    async with (
        guarded(tmp_path, upstream, f"input: [{WORD}]") as (_, client),
        client.post(
            route.path, headers=route.credential, json=route.body(streamed=False, **fields)
        ) as response,
    ):
        status = response.status

    assert status in (400, 446)
    assert upstream.requests == []


async def test_what_is_masked_in_a_question_never_reaches_the_upstream(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("Sure.")))
    async with guarded(tmp_path, upstream, f"input: [{PII}]") as (proxy, client):
        status, _, _ = await ask(client, f"Write to {EMAIL} please")
        [record] = await proxy.sink.wait()

    assert status == 200
    [request] = upstream.requests
    assert request.json["messages"][0]["content"] == "Write to [EMAIL] please"
    [(stage, result)] = record.guard_results()
    assert (stage, result.verdict, result.findings) == ("input", "masked", {"email": 1})


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 100])
async def test_an_answer_is_masked_however_its_stream_is_cut(
    pieces: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = f"Please write to {EMAIL} tomorrow."
    cut = [text[i : i + pieces] for i in range(0, len(text), pieces)]
    upstream.answer_with(stream(chat_events(*cut)))
    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (proxy, client):
        status, raw, _ = await ask(client, "Hi", stream=True)
        [record] = await proxy.sink.wait()

    assert status == 200
    route = ROUTES["openai-chat"]
    assert texts(route, raw, streamed=True) == "Please write to [EMAIL] tomorrow."
    assert raw.rstrip().endswith(b"data: [DONE]")
    [(stage, result)] = record.guard_results()
    assert (stage, result.verdict, result.findings) == ("output", "masked", {"email": 1})
    assert record.billing.tokens.total == 8


async def test_a_whole_answer_is_masked(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(chat(f"Write to {EMAIL}.")))
    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, _, reply = await ask(client, "Hi")

    assert reply["choices"][0]["message"]["content"] == "Write to [EMAIL]."


async def test_an_answer_that_is_blocked_is_a_clean_error_and_paid(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    async with guarded(tmp_path, upstream, f"output: [{WORD}]") as (proxy, client):
        status, _, reply = await ask(client, "Hi")
        [record] = await proxy.sink.wait()

    assert (status, reply["error"]["code"]) == (400, "guardrail_blocked")
    assert (record.outcome, record.billing.tokens.total) == ("blocked", 8)


async def test_a_stream_that_is_blocked_ends_with_an_error_and_nothing_of_the_match(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    long = "All is well and calm here. " * 20
    upstream.answer_with(stream(chat_events(long, "The hi", "ppo is", " here.")))
    async with guarded(tmp_path, upstream, f"output: [{WORD}]") as (proxy, client):
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": "search-answers", "messages": messages, "stream": True}
        async with client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
            raw = await response.read()
        [record] = await proxy.sink.wait()

    assert response.status == 200
    assert b"guardrail_blocked" in raw
    assert b"All is well" in raw
    assert b"hi" not in raw.partition(b"All is well")[2].replace(b"this", b"").lower() or (
        b"hippo" not in raw.lower() and b"ppo is" not in raw
    )
    assert b"[DONE]" not in raw
    assert record.outcome == "blocked"


async def test_a_guard_in_shadow_only_counts(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(chat("Fine.")))
    shadow = "{guard: keywords, words: [hippo], mode: shadow}"
    async with guarded(tmp_path, upstream, f"input: [{shadow}]") as (proxy, client):
        status, _, _ = await ask(client, "A hippo")
        [record] = await proxy.sink.wait()

    assert status == 200
    [(_, result)] = record.guard_results()
    assert (result.verdict, result.shadow) == ("blocked", True)


async def test_what_no_guard_can_read_is_refused_unless_the_policy_lets_it_pass(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    upstream.answer_with(answer(chat("A picture.")))
    statuses = []
    for number, extra in enumerate(("", "opaque: allow, ")):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with guarded(folder, upstream, f"{extra}input: [{WORD}]") as (_, client):
            statuses.append((await ask(client, picture))[0])

    assert statuses == [400, 200]


async def test_rules_add_guards_and_take_them_away(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    rules = (
        "rules: [{name: trusted, when: {header: {x-team: legal}}, without: {guards: [keywords]}}, "
        "{name: careful, when: {model: search-answers}, "
        "input: [{guard: length, name: short, characters: 20}]}]"
    )
    upstream.answer_with(answer(chat("Fine.")))
    async with guarded(tmp_path, upstream, f"input: [{WORD}], {rules}") as (_, client):
        blocked = await ask(client, "A hippo")
        long = await ask(client, "x" * 50)
        messages = [{"role": "user", "content": "A hippo"}]
        body = {"model": "search-answers", "messages": messages}
        headers = {**BEARER, "x-team": "legal"}
        async with client.post("/v1/chat/completions", headers=headers, json=body) as response:
            trusted = response.status

    assert (blocked[0], long[0], trusted) == (400, 400, 200)
    assert blocked[2]["error"]["guard"]["name"] == "keywords"
    assert long[2]["error"]["guard"]["name"] == "short"


async def test_an_answer_kept_under_other_guards_is_not_shown_again(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(legacy(f" {EMAIL}")))
    guards = f"output: [{PII}], cache: {{ttl: 1h}}"
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        outputs = []
        body = {"model": "support-chat", "prompt": "Hi"}
        for _ in range(2):
            async with client.post("/v1/completions", headers=BEARER, json=body) as response:
                outputs.append((await response.json())["choices"][0]["text"])
        file = proxy.policies / "policies.yaml"
        file.write_text(file.read_text().replace("action: mask", "action: flag"))
        headers = {**BEARER, "x-headrace-refresh-cache": "true"}
        async with client.post("/v1/completions", headers=headers, json=body) as response:
            outputs.append((await response.json())["choices"][0]["text"])

    assert outputs == [" [EMAIL]", " [EMAIL]", f" {EMAIL}"]
    assert len(upstream.requests) == 2
