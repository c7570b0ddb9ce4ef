"""Differences between the decisions of two revisions, by kind and by rule."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.review.compare import Difference, compare_decisions, decide_call
from proxy.policy.review.sample_call import build_sample_call, make_chat_body
from tests.conftest import DIGEST, KEY, Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, legacy_completion, respond
from tests.for_each import for_each
from tests.policy.decisions import read_text

POLICIES = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}
tags: {team: [support, search]}
keys: {widget: {sha256: AAAA, deployments: [chat], tags: {team: support}}}
policies:
  public:
    match: all
    rules:
      - {name: short, cap: {max_tokens: 9}}
      - {name: spare, when: {stream: true}, targets: [{upstream: one, model: spare}]}
deployments:
  chat:
    policy: public
    targets: [{upstream: one, model: m}]
  spare: {targets: [{upstream: one, model: s}]}
""".replace("AAAA", "0" * 64)


LOWER = Difference("parameters", "max_tokens 9", "max_tokens 8", "public/short")
REFUSED = Difference("refusal", "allowed", "403 by rule", "public/no")
LIMITED = Difference("limits", "none", "each: 5 requests per minute, across all keys")


def differences_of(
    folder: Path, old: str, new: str, *, policies: str = POLICIES, **body: Any
) -> list[Difference]:
    call = build_sample_call(
        {**make_chat_body("chat"), **body}, {}, datetime(2026, 1, 1, tzinfo=UTC)
    )
    texts = {"a": policies, "b": policies.replace(old, new)}
    snapshots = [read_text(folder / name, text) for name, text in texts.items()]
    plans = [decide_call(snapshot, snapshot.keys["widget"], call) for snapshot in snapshots]
    return compare_decisions(call, *plans)


def test_equal_policies_have_no_differences(tmp_path: Path) -> None:
    assert differences_of(tmp_path, "", "") == []


@for_each(
    ("old", "new", "body", "difference"),
    [
        ("  - {name: short", "  - {name: no, refuse: Not today.}\n      - {name: short", {},
            REFUSED),
        ("name: spare, when: {stream: true}, targets: [{upstream: one, model: spare}]",
            "name: no, when: {stream: true}, refuse: Not today.", {"stream": True}, REFUSED),
        ("deployments: [chat]", "deployments: [spare]", {},
            Difference("refusal", "allowed", "404 model_not_found")),
        ("team: support", "team: search", {}, Difference("tags", "team=support", "team=search")),
        ("model: m}", "model: n}", {}, Difference("targets", "one/m", "one/n")),
        ("stream: true", "stream: false", {},
            Difference("targets", "one/m", "one/spare", "public/spare")),
        ("max_tokens: 9", "max_tokens: 8", {}, LOWER),
        ("policy: public", "retry: {times: 2}", {},
            Difference("routing", "no retries, no hedge", "2 retries, no hedge")),
        ("max_tokens: 9", "max_tokens: 8", {"max_tokens": 20}, LOWER),
        ("  - {name: short, cap: {max_tokens: 9}}",
            "  - {name: calm, set: {temperature: 0}}\n      - {name: short, cap: {max_tokens: 9}}",
            {"temperature": 1},
            Difference("parameters", "temperature 1", "temperature 0.0", "public/calm")),
        ("    match: all\n", "    match: all\n    limits: [{name: each, requests: 5 per minute}]\n",
            {}, LIMITED),
        ("{name: short,", "{name: short, limits: [{name: each, requests: 5 per minute}],", {},
            replace(LIMITED, rule="public/short")),
    ],
)  # fmt: skip
def test_difference_has_kind_and_rule(
    old: str, new: str, body: dict[str, Any], difference: Difference, tmp_path: Path
) -> None:
    assert difference in differences_of(tmp_path, old, new, **body)


@for_each(
    ("now", "text"),
    [
        ("usd: 4 per month, per: key", "4 USD per month, per key"),
        ("usd: 5 per day, per: key", "5 USD per day, per key"),
        ("usd: 5 per month", "5 USD per month, across all keys"),
        ("usd: 5 per month, per: key, mode: shadow", "5 USD per month, per key, shadow mode"),
    ],
)
def test_limit_is_printed_with_unit_and_scope(now: str, text: str, tmp_path: Path) -> None:
    limit = "{name: money, unpriced: allow, usd: 5 per month, per: key}"
    was = POLICIES.replace("match: all\n", f"match: all\n    limits: [{limit}]\n")

    [result] = differences_of(tmp_path, "usd: 5 per month, per: key", now, policies=was)

    assert (result.kind, result.before) == ("limits", "money: 5 USD per month, per key")
    assert result.after == f"money: {text}"


@pytest.mark.parametrize("parameters", [{"max_tokens": 1}, {"max_tokens": 8}])
def test_unreached_cap_changes_nothing(parameters: dict[str, Any], tmp_path: Path) -> None:
    assert differences_of(tmp_path, "max_tokens: 9", "max_tokens: 8", **parameters) == []


def test_each_change_names_its_rule(tmp_path: Path) -> None:
    fields = """  - {name: first, set: {seed: 1}}
      - {name: second, targets: [{upstream: one, model: other}]}
      - {name: short,"""

    result = differences_of(tmp_path, "  - {name: short,", fields)

    assert {item.kind: item.rule for item in result} == {
        "parameters": "public/first",
        "targets": "public/second",
    }


def test_comparison_contains_no_text_of_clients(tmp_path: Path) -> None:
    rule = "{name: hard, set: {reasoning_effort: high}}\n      - {name: short,"

    [result] = differences_of(tmp_path, "{name: short,", rule, reasoning_effort="a secret")

    assert (result.before, result.after) == (
        "reasoning_effort as requested",
        "reasoning_effort high",
    )


RULES = """
policies:
  default:
    match: all
    rules:
      - {name: short, when: {model: support-chat}, cap: {max_tokens: 5}}
      - {name: wide, when: {model: [first, second]}, cap: {max_tokens: 7}}
      - {name: closed, when: {model: resilient}, refuse: Not any more.}
"""


SEARCH_DIGEST = hashlib.sha256(b"hr-search-key").hexdigest()


@asynccontextmanager
async def proxy_with_candidate(folder: Path, policies: str, candidate: str) -> AsyncIterator[Proxy]:
    (folder / "candidate").mkdir()
    (folder / "candidate" / "p.yaml").write_text(candidate)
    async with running_proxy(
        folder / "policies", policies, candidate=folder / "candidate"
    ) as proxy:
        yield proxy


@pytest.fixture
async def with_candidate(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    """A proxy with a candidate that has more rules and lacks the key of the search box."""
    policies = policies_for(upstream.url)
    candidate = policies.replace(SEARCH_DIGEST, "f" * 64) + RULES
    async with proxy_with_candidate(tmp_path, policies, candidate) as proxy:
        yield proxy


async def ask(proxy: Proxy, model: str, request: str, key: str = KEY) -> int:
    headers = {"authorization": f"Bearer {key}", "x-request-id": request}
    return (await proxy.complete(headers, model=model)).status


async def test_changes_are_counted_by_rule(
    with_candidate: Proxy, upstream: ScriptedUpstream
) -> None:
    statuses = [
        await ask(with_candidate, "support-chat", "call-1"),
        await ask(with_candidate, "resilient", "call-2"),
        await ask(with_candidate, "search-answers", "call-3"),
        await ask(with_candidate, "search-answers", "call-4", key="hr-search-key"),
    ]
    body = {"model": ["first", "second"], "prompt": "Hi"}
    statuses.append((await with_candidate.send("/v1/completion", body)).status)
    await with_candidate.sink.wait(5)

    assert statuses == [200] * 5
    assert all("max_tokens" not in request.json for request in upstream.requests)
    metrics = await with_candidate.read("/metrics")
    counted = 'headrace_candidate_decisions_total{{kind="{}",rule="{}"}} 1.0'
    for kind, rule in [
        ("parameters", "default/short"),
        ("parameters", "default/wide"),  # once for both models
        ("refusal", "default/closed"),
        ("same", ""),
        ("key", ""),
    ]:
        assert counted.format(kind, rule) in metrics
    text = await with_candidate.read("/candidate")
    assert "parameters: differs for 1 call (because of rule default/wide)" in text


async def test_example_calls_show_both_values(with_candidate: Proxy) -> None:
    await ask(with_candidate, "support-chat", "call-1")
    await ask(with_candidate, "support-chat", "call-2")
    await with_candidate.sink.wait(2)

    text = await with_candidate.read("/candidate")
    of_one = await with_candidate.read("/explain/call-1")

    assert "parameters: differs for 2 calls (because of rule default/short)" in text
    assert "call: call-2 (no max_tokens -> max_tokens 5)" in text
    assert "candidate: different decision" in of_one
    assert "parameters: no max_tokens -> max_tokens 5 (by default/short)" in of_one


async def test_keys_only_in_the_candidate_are_counted(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = policies_for(upstream.url)
    in_force = policies.replace(SEARCH_DIGEST, "f" * 64)
    async with proxy_with_candidate(tmp_path, in_force, policies) as proxy:
        assert await ask(proxy, "search-answers", "call-1", key="hr-search-key") == 401
        assert await ask(proxy, "search-answers", "call-2", key="nobody") == 401
        await proxy.sink.wait(2)

        text = await proxy.read("/candidate")

    assert "key: differs for 1 call" in text
    assert "unknown -> key search-box" in text


async def test_invalid_candidate_affects_no_call(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = policies_for(upstream.url)
    upstream.answer_with(respond({}, 400))
    async with proxy_with_candidate(tmp_path, policies, policies + RULES) as proxy:
        (tmp_path / "candidate" / "p.yaml").write_text("tags: 5\n")
        await ask(proxy, "support-chat", "call-1")
        await proxy.sink.wait()

        assert "max_tokens 5" in await proxy.read("/candidate")


async def test_without_candidate_there_is_no_report(proxy: Proxy) -> None:
    await proxy.send("/v1/models", method="GET")

    assert (await proxy.send(f"{proxy.admin}/candidate", method="GET")).status == 404


@pytest.mark.parametrize("fields", ["revoked: [support-widget]\n", "expires"])
async def test_removed_key_is_reported(
    fields: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = policies_for(upstream.url)
    candidate = policies + fields
    if fields == "expires":
        candidate = policies.replace(DIGEST, f"[{{digest: {DIGEST}, until: 2026-01-01}}]")
        assert candidate != policies
    async with proxy_with_candidate(tmp_path, policies, candidate) as proxy:
        assert await ask(proxy, "support-chat", "call-1") == 200
        await proxy.sink.wait()

        of_all, of_one = await proxy.read("/candidate"), await proxy.read("/explain/call-1")

    why = "expired at 2026-01-02 00:00 UTC" if fields == "expires" else "revoked"
    assert "key: differs for 1 call" in of_all
    assert f"key support-widget -> {why}" in of_all
    assert "candidate: different decision" in of_one
    assert f"key: key support-widget -> {why}" in of_one
    assert "refusal: allowed" not in of_one


async def test_guard_route_is_not_divergence(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    detour = "{guard: keywords, words: [secret], action: route, to: [{upstream: openai, model: x}]}"
    text = policies_for(upstream.url) + f"policies: {{default: {{match: all, input: [{detour}]}}}}"
    upstream.answer_with(respond(legacy_completion()))
    async with proxy_with_candidate(tmp_path, text, text) as proxy:
        assert (await proxy.complete(model="support-chat", prompt="the secret")).status == 200
        await proxy.sink.wait(1)
        output = await proxy.read("/candidate")

    assert [request.json["model"] for request in upstream.requests] == ["x"]
    assert "differs for" not in output
