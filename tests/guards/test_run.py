"""Guards over real calls: block, mask, flag and shadow, on requests and responses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles import (
    ScriptedUpstream,
    chat,
    chat_events,
    legacy_completion,
    message_events,
    respond,
    stream,
    text_events,
)
from tests.guards.calls import EMAIL, PII, WORD, ask, chat_answer, cut, decision_metric, verdicts
from tests.guards.conftest import Guard
from tests.test_pipeline import BEARER, ROUTES, reply_text


async def test_finding_blocks_the_request(guard: Guard, upstream: ScriptedUpstream) -> None:
    proxy = await guard(f"input: [{WORD}]")

    reply = await ask(proxy, "Where is the h\u200bIPP\u043e?")

    [record] = await proxy.sink.wait()
    assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked")
    assert reply.error["guard"] == {"name": "keywords", "kind": "word"}
    assert upstream.requests == []
    assert (record.outcome, record.billing.cost) == ("blocked", 0)
    assert decision_metric("keywords", "input", "blocked") in await proxy.metrics()


@pytest.mark.parametrize("name", ROUTES)
async def test_every_route_is_guarded(name: str, guard: Guard, upstream: ScriptedUpstream) -> None:
    route = ROUTES[name]
    words = {"messages": [{"role": "user", "content": "a hippo"}]}
    fields = words if route.chat else {"prompt": "a hippo"}
    proxy = await guard(f"input: [{WORD}]")

    reply = await proxy.send(route.path, route.body(streamed=False, **fields), route.credential)

    assert reply.status in (400, 446)
    assert upstream.requests == []


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 100])
async def test_finding_in_response_is_masked(size: int, guard: Guard) -> None:
    pieces = cut(f"Please write to {EMAIL} tomorrow.", size or 100)
    proxy = await guard(f"output: [{PII}]", chat_answer(*pieces, streamed=bool(size)))

    reply = await ask(proxy, "Hi", stream=bool(size))

    [record] = await proxy.sink.wait()
    [(stage, result)] = record.list_guard_results()
    output = reply_text(ROUTES["openai-chat"], reply.raw, streamed=bool(size))
    assert (reply.status, output) == (200, "Please write to [EMAIL] tomorrow.")
    assert reply.raw.rstrip().endswith(b"data: [DONE]") is bool(size)
    assert (stage, result.verdict, result.findings) == ("output", "masked", {"email": 1})
    assert record.billing.tokens.total == 8


async def test_blocked_stream_hides_the_match(guard: Guard) -> None:
    long = "All is well and calm here. " * 20
    script = stream(chat_events(long, "The Grö", "ße is", " here."))
    proxy = await guard(f"output: [{WORD}]", script)

    reply = await ask(proxy, "Hi", stream=True)

    [record] = await proxy.sink.wait()
    assert reply.status == 200
    assert b"guardrail_blocked" in reply.raw
    assert b"All is well" in reply.raw
    assert "Grö" not in reply.raw.decode()
    assert b"[DONE]" not in reply.raw
    assert record.outcome == "blocked"


HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", HI), ("/v1/messages", HI), ("/v1/responses", {"input": "Hi"})],
)
async def test_early_block_of_a_stream_is_an_error_response(
    path: str, body: dict[str, Any], guard: Guard, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {
        "anthropic-model": stream(message_events(text_events(0, "A hip", "po."))),
        "smol": stream(chat_events("A hip", "po.")),
    }
    proxy = await guard(f"output: [{WORD}]")

    for model in ("anthropic-model", "search-answers"):
        reply = await proxy.send(path, {**body, "model": model, "stream": True})

        assert (reply.status, "error" in reply.json) == (400, True)


@pytest.mark.parametrize(
    ("keys", "verdict"), [("mode: shadow", "blocked"), ("action: flag", "flagged")]
)
async def test_guard_without_effect_is_counted(keys: str, verdict: str, guard: Guard) -> None:
    rule = f"{{guard: keywords, words: [hippo], {keys}}}"
    proxy = await guard(f"input: [{rule}], output: [{rule}]", stream(chat_events("A hip", "po.")))

    reply = await ask(proxy, "A hippo", stream=True)

    [record] = await proxy.sink.wait()
    assert (reply.status, reply.raw.count(b"data: ")) == (200, 5)
    assert verdicts(record, "input") == verdicts(record, "output") == [verdict]
    assert {result.shadow for _, result in record.list_guard_results()} == {verdict == "blocked"}


@pytest.mark.parametrize(("opaque", "status"), [("", 400), ("opaque: allow, ", 200)])
async def test_unreadable_content_is_refused_unless_allowed(
    opaque: str, status: int, guard: Guard
) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    proxy = await guard(f"{opaque}input: [{WORD}]", respond(chat("A picture.")))

    assert (await ask(proxy, picture)).status == status


async def test_rules_add_and_remove_guards(guard: Guard) -> None:
    rules = (
        "rules: [{name: trusted, when: {header: {x-team: legal}}, without: {guards: [keywords]}}, "
        "{name: careful, when: {model: search-answers}, "
        "input: [{guard: length, name: short, characters: 20}]}]"
    )
    proxy = await guard(f"input: [{WORD}], {rules}", respond(chat("Fine.")))

    blocked, long = await ask(proxy, "A hippo"), await ask(proxy, "x" * 50)
    trusted = await ask(proxy, "A hippo", {"x-team": "legal"})

    assert [reply.status for reply in (blocked, long, trusted)] == [400, 400, 200]
    assert blocked.error["guard"]["name"] == "keywords"
    assert long.error["guard"]["name"] == "short"


async def test_cache_depends_on_guards(guard: Guard, upstream: ScriptedUpstream) -> None:
    script = respond(legacy_completion(f" {EMAIL}"))
    proxy = await guard(f"output: [{PII}], cache: {{ttl: 1h}}", script)
    body = {"model": "support-chat", "prompt": "Hi"}

    replies = [await proxy.send("/v1/completions", body) for _ in range(2)]
    file = proxy.policies / "policies.yaml"
    file.write_text(file.read_text().replace("action: mask", "action: flag"))
    headers = {**BEARER, "x-headrace-refresh-cache": "true"}
    replies.append(await proxy.send("/v1/completions", body, headers))

    outputs = [reply.json["choices"][0]["text"] for reply in replies]
    assert outputs == [" [EMAIL]", " [EMAIL]", f" {EMAIL}"]
    assert len(upstream.requests) == 2
