"""Data of the pages, from a running proxy: they agree with its records, ledger and commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from proxy.settings import LedgerLocation
from tests.conftest import KEY, Proxy, running_proxy
from tests.console.shop import (
    CALLS,
    make_traffic,
    policies,
    post_chat,
    running_shop,
    wait_for_ledger,
)
from tests.doubles import ScriptedUpstream, chat, hang, respond


async def get_call(proxy: Proxy, number: int) -> Any:
    run = (await get(proxy, "calls"))["last"].partition("-")[0]
    return await get(proxy, f"calls/{run}-{number}")


async def get(proxy: Proxy, path: str) -> Any:
    async with proxy.client.get(f"{proxy.admin}/api/v1/{path}") as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def post_trial(proxy: Proxy, text: str, **form: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    form = {"key": "support-widget", "body": {"model": "support-chat", "messages": messages}} | form
    async with proxy.client.post(f"{proxy.admin}/api/v1/try", json=form) as response:
        return await response.json()


async def test_overview_counts_all_calls_and_names_what_needs_attention(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    await make_traffic(shop, upstream)
    page = await get(shop, "overview?range=1h")

    assert page["calls"] == CALLS
    assert sum(page["outcomes"].values()) == CALLS
    assert page["outcomes"]["success"] == 5
    assert page["spend_nano"] == sum(r.summary.cost or 0 for r in shop.records)
    upstreams = {f"{u['upstream']}/{u['model']}": u for u in page["upstreams"]}
    assert upstreams["dead/gpt-4o"]["circuit"] == "open"
    assert upstreams["dead/gpt-4o"]["failed"] == 1
    assert upstreams["openai/gpt-4o-mini"]["failed"] == 0
    assert [item["text"] for item in page["attention"]] == ["Circuit open: dead/gpt-4o"]
    assert page["fallbacks"] == 1


async def test_calls_in_flight_are_those_of_the_request(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.arrived.clear()
    upstream.answer_with(hang())
    running = asyncio.create_task(post_chat(shop))
    await upstream.arrived.wait()

    assert (await get(shop, "overview?range=5m"))["in_flight"] == 1
    running.cancel()
    await shop.sink.wait()
    assert (await get(shop, "overview?range=1h"))["in_flight"] == 0


async def test_decisions_of_calls_have_states(shop: Proxy, upstream: ScriptedUpstream) -> None:
    await make_traffic(shop, upstream)

    async def states(number: int, about: str) -> dict[str, str]:
        call = await get_call(shop, number)
        decisions = call["explanation"]["decisions"]
        parts = [part for decision in decisions for part in decision.get("parts", ())]
        found = [d for d in [*decisions, *parts] if d["about"] == about]
        return {d["decided"].partition(",")[0]: d["state"] for d in found}

    assert await states(1, "rule") == {
        "house/bounded applies": "applied",
        "house/eu does not apply": "not_applied",
    }
    assert await states(1, "outcome") == {"success": "applied"}
    assert (await states(3, "guard"))["input keywords blocked"] == "refused"
    assert (await states(5, "limit"))["once rejected the call"] == "refused"
    attempts = await states(6, "attempt")
    assert sorted(attempts.values()) == ["applied", "refused"]


async def test_call_has_its_response_headers_and_captured_texts_only(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    text = policies(upstream.url).replace(
        "  tight: {limits", "  tight: {match: all, capture: {share: 100%}, limits"
    )
    upstream.answer_with(respond(chat("Write to bob@example.com.")))
    async with running_proxy(tmp_path / "policies", text) as proxy:
        assert await post_chat(proxy, "I am jane@example.com", model="small") == 200
        assert await post_chat(proxy, "I am jane@example.com") == 200
        await proxy.sink.wait(2)
        captured, other = [await get_call(proxy, number) for number in (1, 2)]

    assert captured["captured"] == {
        "prompt": [{"role": "user", "text": "I am [EMAIL]"}],
        "response": [{"role": "assistant", "text": "Write to [EMAIL]."}],
    }
    assert other["captured"] is None
    headers = captured["response_headers"]
    assert headers["x-headrace-deployment"] == "small"
    assert headers["x-request-id"] == captured["request_id"]
    assert headers["x-ratelimit-limit-requests"] == "1"
    assert not {"authorization", "cookie", "set-cookie"} & headers.keys()


async def test_guards_of_an_explanation_have_their_file_and_line(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    call = await get_call(shop, 1)

    [guards] = [d for d in call["explanation"]["decisions"] if d["about"] == "guards"]
    lines = (shop.policies / "policies.yaml").read_text().splitlines()
    places = [part["at"].split(":") for part in guards["parts"] if part.get("at")]
    assert [file for file, _ in places] == ["policies.yaml"] * 2
    assert [lines[int(line) - 1].split()[2] for _, line in places] == ["keywords,", "pii,"]


async def test_policy_page_counts_uses_of_rules_and_guards(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    await make_traffic(shop, upstream)
    page = await get(shop, "policy")

    rules = {rule["name"]: rule for rule in page["rules"]}
    assert rules["house/bounded"] | {"source": ""} == {
        "name": "house/bounded", "when": "always", "effect": "cap max_tokens 1000",
        "mode": "enforce", "applied": 4, "source": "",
    }  # fmt: skip
    assert rules["house/eu"]["applied"] == 0
    assert "x-region" in rules["house/eu"]["when"]
    guards = {guard["name"]: guard for guard in page["guards"]}
    assert (guards["keywords"]["inspected"], guards["keywords"]["found"]) == (4, 1)
    assert guards["pii"]["found"] == 1
    [key] = page["keys"]
    assert key["last_used"] is not None
    deployments = {deployment["name"]: deployment for deployment in page["deployments"]}
    assert deployments["support-chat"]["description"] == "The help widget"
    assert deployments["support-chat"]["calls"] == 4
    assert all(part["source"].startswith("policies.yaml:") for part in page["rules"])


async def test_money_page_is_the_ledger(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await make_traffic(proxy, upstream)
        await wait_for_ledger(proxy)
        page = await get(proxy, "money?by=deployment&days=7")
        by_tag = await get(proxy, "money")

    cost = sum(record.summary.cost or 0 for record in proxy.records)
    assert page["total"]["cost"] == cost
    assert sum(group["cost"] for group in page["groups"]) == cost
    assert all(sum(group["values"]) == group["cost"] for group in page["groups"])
    assert page["total"]["calls"] == CALLS
    assert by_tag["by"] == "tag.team"
    assert {group["name"] for group in by_tag["groups"]} == {"support", None}


async def test_trial_marks_findings_and_claims_nothing(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "policies.yaml").write_text(policies(upstream.url, cap=7))
    async with running_shop(tmp_path / "policies", upstream, candidate=candidate) as proxy:
        before = await get(proxy, "policy")
        trial = await post_trial(proxy, "Write to jane@example.com")
        blocked = await post_trial(proxy, "Hydropolis")
        after = await get(proxy, "policy")
        used = [[limit["used"] for limit in state["limits"]] for state in (before, after)]
        assert used[0] == used[1]
        assert (await get(proxy, "calls"))["calls"] == []
        assert not upstream.requests

    [text] = trial["active"]["guards"]["texts"]
    assert text["parts"] == [
        {"text": "Write to "},
        {"text": "jane@example.com", "guard": "pii", "kind": "email"},
        {"text": ""},
    ]
    assert text["sent"] == "Write to [EMAIL]"
    assert blocked["active"]["guards"]["blocked"] == {
        "guard": "keywords", "message": "Not this word.",
    }  # fmt: skip
    [difference] = trial["differences"]
    assert (difference["kind"], difference["rule"]) == ("parameters", "house/bounded")
    [limit] = trial["active"]["limits"]
    assert limit["claim"] == round(trial["active"]["costs"][0]["max_usd"] * 1e9)
    assert trial["candidate"]["costs"][0]["max_usd"] < trial["active"]["costs"][0]["max_usd"]


async def test_trial_at_another_time_and_of_a_call_that_no_guard_can_read(shop: Proxy) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    body = {"model": "support-chat", "messages": [{"role": "user", "content": [image]}]}
    trial = await post_trial(shop, "", body=body, at="2020-01-31T22:00Z")

    assert trial["active"]["guards"]["opaque"] == ["image_url"]
    assert trial["active"]["guards"]["blocked"]["guard"] == "opaque"


async def test_calls_with_one_request_id_have_their_own_explanations(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    body = {"model": "support-chat", "messages": [{"role": "user", "content": "Hello"}]}
    headers = {"x-request-id": "same"}
    path = "/v1/chat/completions"
    for key, model in ((KEY, "support-chat"), (KEY, "nobody"), ("hr-unknown", "support-chat")):
        sent = {**headers, "authorization": f"Bearer {key}"}
        async with shop.client.post(path, headers=sent, json={**body, "model": model}) as response:
            await response.read()
    await shop.sink.wait(3)
    first, second, third = [await get_call(shop, number) for number in (1, 2, 3)]

    assert first["explanation"] is None  # the second call has replaced it
    for call, text in ((second, "client_error, status 404"), (third, "client_error, status 401")):
        [outcome] = [d for d in call["explanation"]["decisions"] if d["about"] == "outcome"]
        assert outcome["decided"] == text
