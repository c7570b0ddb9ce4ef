"""Searches for usage, prices and limits for which accounts disagree on the cost of a call."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.call.attempts import MAX_COST
from proxy.money.usage import MAX_TOKENS, Price, Tokens
from proxy.policy.schema.prices import MAX_PRICE_USD
from proxy.settings import LedgerLocation
from proxy.telemetry.log import build_call_line
from tests.adversary.request_calls import Start
from tests.conftest import metric_total, policies_for, running_proxy
from tests.doubles import (
    ScriptedUpstream,
    chat,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.ledger.records import proxy_with_ledger, stored_rows
from tests.limits.test_init import SEARCH

PROMPT_TOKENS, TEXT_TOKENS = 10, 10  # estimates
BODY: dict[str, Any] = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 20}
LIMITS = "limits: [{name: month, usd: 9000000 per month}]"
OUT_OF_RANGE: tuple[Any, ...] = (
    -1, True, False, 1.0, 1.5, MAX_TOKENS + 1, 10**15, 2**63, 10**30, -(10**30), "5", "", [1],
    {"tokens": 5}, {"completion_tokens": 5},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Reported usage, the tokens that count, and whether they are the upstream's."""

    usage: Any
    prompt: int = PROMPT_TOKENS
    completion: int = TEXT_TOKENS
    is_reported: bool = False

    def __str__(self) -> str:
        return str(self.usage).replace("_tokens", "")


def reported(prompt: int, completion: int, **options: Any) -> Case:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **options}
    return Case(usage, prompt, completion, is_reported=True)


CASES = (
    reported(0, 0),
    reported(5, 3),
    reported(MAX_TOKENS, 0),
    reported(0, MAX_TOKENS),
    reported(MAX_TOKENS, MAX_TOKENS, total_tokens=10**30),
    *[reported(5, 3, total_tokens=value) for value in OUT_OF_RANGE],
    *[
        reported(5, 3, prompt_tokens_details={"cached_tokens": value})
        for value in OUT_OF_RANGE[4:9]
    ],
    *[reported(5, 3, completion_tokens_details=value) for value in OUT_OF_RANGE],
    *[Case({"prompt_tokens": value, "completion_tokens": 3}) for value in (*OUT_OF_RANGE, None)],
    *[Case({"prompt_tokens": 5, "completion_tokens": value}) for value in OUT_OF_RANGE],
    *[Case(value) for value in (None, *OUT_OF_RANGE)],
    Case({"prompt_tokens": 5, "completion_tokens": None}, 5, 0, is_reported=True),
    Case({"prompt_tokens": 5, "total_tokens": MAX_TOKENS}, 5, MAX_TOKENS - 5, is_reported=True),
    Case({"prompt_tokens": 5, "total_tokens": MAX_TOKENS + 1}),
)


def nano(value: float | Decimal | None) -> Decimal:
    assert value is not None
    return round(Decimal(str(value)) * 10**9, 1)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_all_accounts_have_the_same_usage(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    tokens = cost = Decimal(0)
    async with proxy_with_ledger(tmp_path, upstream, LIMITS) as (proxy, _, path):
        for case in CASES:
            *events, last_document = legacy_events("y" * 40)
            good_events = stream([*events, {**last_document, "usage": case.usage}])
            full_value = respond(legacy_completion("y" * 40, usage=case.usage))
            upstream.answer_with(good_events if streamed else full_value)

            assert (await proxy.complete(**BODY, stream=streamed)).status == 200

            [record] = await proxy.sink.wait()
            proxy.sink.forget()
            spend = (case.prompt * 2 + case.completion * 4) * 1000
            tokens, cost = tokens + case.prompt + case.completion, cost + spend
            source = "provider" if case.is_reported else "partial_estimate"
            billing = record.billing
            assert (billing.tokens.total, billing.cost, billing.usage_source) == (
                case.prompt + case.completion, spend, source,
            ), str(case)  # fmt: skip
            assert nano(build_call_line(record)["cost_usd"]) == spend, str(case)
        metrics = await proxy.metrics()
    assert metric_total(metrics, "headrace_tokens_total") == tokens
    for name in ("headrace_cost_usd_total", "headrace_budget_spent_usd"):
        assert nano(metric_total(metrics, name)) == cost
    for table in ("calls", "attempts"):
        assert sum(row["cost_nano_usd"] for row in stored_rows(path, table)) == cost


def test_highest_cost_can_be_stored() -> None:
    price = Price(input=MAX_PRICE_USD, output=MAX_PRICE_USD)
    cost = price.compute_cost(Tokens(input=MAX_TOKENS, output=MAX_TOKENS))

    assert cost is not None
    assert MAX_COST / 2 < cost <= MAX_COST


CALLS = 3
SMALL_COST = 5 * 20  # nano-USD: 5 tokens at 0.02 USD per million
SMALL_LIMIT = "\n    limits: [{name: month, usd: 0.000002 per month}]"


async def test_small_costs_add_up_exactly(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    position = LedgerLocation("sqlite", tmp_path / "ledger")
    policies = policies_for(upstream.url).replace(
        "input: 0.15, output: 0.6", "input: 0.02, output: 0"
    )
    policies = policies.replace("  resilient:\n", f"  resilient:{SMALL_LIMIT}\n")
    async with running_proxy(tmp_path / "policies", policies, ledger=position) as proxy:
        replies = [await proxy.complete(**BODY) for _ in range(CALLS)]
        records = list(await proxy.sink.wait(CALLS))
        metrics = await proxy.metrics()
        too_dear = await proxy.complete(**BODY | {"prompt": "x" * 400})

    assert [reply.status for reply in replies] == [200] * CALLS
    assert too_dear.status == 429  # 100 tokens cost 2000 nano-USD, and 300 are spent
    assert {reply.headers["x-headrace-cost-usd"] for reply in replies} == {"0.0000001"}
    assert (
        sum(Decimal(str(build_call_line(record)["cost_usd"])) for record in records) * 10**9
        == CALLS * SMALL_COST
    )
    assert [row["cost_nano_usd"] for row in stored_rows(position.path)][:CALLS] == [
        SMALL_COST
    ] * CALLS
    assert [row["cost_usd"] for row in stored_rows(position.path)][:CALLS] == [
        SMALL_COST / 1e9
    ] * CALLS
    spend = 'headrace_budget_spent_usd{budget="month",scope="all"} 3e-07'
    assert spend in metrics


MONTHLY_BUDGET = "{name: money, usd: 1 per month, unpriced: allow}"
MANY_TOKENS: dict[str, Any] = {"model": "support-chat", "max_tokens": 100_000}
"""Claims more than the budget that ``expensive`` leaves."""


def with_limits(*limits: str, extra: str = "") -> str:
    """Return a policy with a cache and these limits."""
    rule = f"limits: [{', '.join(limits)}], cache: {{ttl: 1h}}{extra}"
    return f"\npolicies:\n  default: {{match: all, {rule}}}\n"


def expensive(*, streamed: bool = False) -> Any:
    """Respond at a cost that leaves less budget than another call would claim."""
    used = usage(5, 1_600_000)
    events = [*legacy_events(" Par", "is.", with_usage=False), {"choices": [], "usage": used}]
    return stream(events) if streamed else respond(legacy_completion(usage=used))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("limit", [MONTHLY_BUDGET, "{name: words, tokens: 1600k per day}"])
async def test_cache_hit_needs_no_budget(
    limit: str, streamed: bool, start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(expensive(streamed=streamed))
    proxy = await start(with_limits(limit))
    replies = [
        await proxy.complete(**MANY_TOKENS, stream=streamed, prompt=prompt)
        for prompt in ("one", "one", "another")
    ]
    records = await proxy.sink.wait(3)

    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[1].headers["x-headrace-cache"] == "hit"
    assert replies[2].error["code"] in ("budget_exceeded", "rate_limit_exceeded")
    assert len(upstream.requests) == 1
    assert [record.outcome for record in records] == ["success", "success", "limited"]
    assert records[1].billing.cost == 0


@pytest.mark.parametrize(
    ("limit", "prompts", "accepted"),
    [
        ("{name: calls, requests: 3 per day}", ["Hi"] * 5, 3),
        ("{name: at-once, concurrency: 1}", ["Hi"] * 5 + ["another"] * 5, 5),
    ],
    ids=["counts as a request", "releases its lease"],
)
async def test_cache_hit_uses_other_limits(
    limit: str, prompts: list[str], accepted: int, start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(expensive())
    proxy = await start(with_limits(MONTHLY_BUDGET, limit))
    statuses = [(await proxy.complete(**MANY_TOKENS, prompt=text)).status for text in prompts]

    assert statuses == [200] * accepted + [429] * (len(prompts) - accepted)


async def test_budget_refusal_spends_no_limit(start: Start, upstream: ScriptedUpstream) -> None:
    """A key without budget must not use up the requests that all keys share."""
    upstream.answer_with(respond(chat(usage=usage(2_000_000, 0))))
    limits = (
        "{name: money, usd: 0.1 per month, unpriced: allow, per: key}",
        "{name: calls, requests: 5 per day}",
    )
    proxy = await start(with_limits(*limits))
    spender = [await proxy.chat(model="support-chat", max_tokens=1, seed=n) for n in range(10)]
    other_key = [await proxy.chat(SEARCH, max_tokens=1, seed=n) for n in range(2)]
    records = await proxy.sink.wait(12)

    assert [reply.status for reply in spender] == [200] + [429] * 9
    assert [reply.status for reply in other_key] == [200, 200]
    assert [record.outcome for record in records].count("limited") == 9


async def test_budget_precedes_remote_guards(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(expensive())
    text = f"url: '{upstream.url}/hook', secret: '${{UPSTREAM_KEY}}', action: flag"
    proxy = await start(with_limits(MONTHLY_BUDGET, extra=f", input: [{{guard: webhook, {text}}}]"))
    assert (await proxy.complete(**MANY_TOKENS)).status == 200
    requests_before = len(upstream.requests)

    assert (await proxy.complete(**MANY_TOKENS)).status == 429
    assert len(upstream.requests) == requests_before
