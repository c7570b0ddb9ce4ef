"""All accounts agree on any usage that an upstream reports."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.call.attempts import MAX_COST
from proxy.money.usage import MAX_TOKENS, Price, Tokens
from proxy.policy.schema.prices import MAX_USD
from proxy.telemetry.log import canonical
from tests.adversary.test_money_of_every_way_out import read
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, legacy, legacy_events, stream
from tests.ledger.kept import kept, ledgered
from tests.test_pipeline import BEARER

PROMPT, WORDS = 10, 10  # what is estimated, in tokens
BODY = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 20}
LIMITS = "limits: [{name: month, usd: 9000000 per month}]"
OUT_OF_RANGE: tuple[Any, ...] = (
    -1, True, False, 1.0, 1.5, MAX_TOKENS + 1, 10**15, 2**63, 10**30, -(10**30), "5", "", [1],
    {"tokens": 5}, {"completion_tokens": 5},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is reported, the tokens that count, and whether they are the upstream's."""

    usage: Any
    prompt: int = PROMPT
    completion: int = WORDS
    reported: bool = False

    def __str__(self) -> str:
        return str(self.usage).replace("_tokens", "")


def good(prompt: int, completion: int, **options: Any) -> Case:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **options}
    return Case(usage, prompt, completion, reported=True)


CASES = (
    good(0, 0),
    good(5, 3),
    good(MAX_TOKENS, 0),
    good(0, MAX_TOKENS),
    good(MAX_TOKENS, MAX_TOKENS, total_tokens=10**30),
    *[good(5, 3, total_tokens=each) for each in OUT_OF_RANGE],
    *[good(5, 3, prompt_tokens_details={"cached_tokens": each}) for each in OUT_OF_RANGE[4:9]],
    *[good(5, 3, completion_tokens_details=each) for each in OUT_OF_RANGE],
    *[Case({"prompt_tokens": each, "completion_tokens": 3}) for each in (*OUT_OF_RANGE, None)],
    *[Case({"prompt_tokens": 5, "completion_tokens": each}) for each in OUT_OF_RANGE],
    *[Case(each) for each in (None, *OUT_OF_RANGE)],
    Case({"prompt_tokens": 5, "completion_tokens": None}, 5, 0, reported=True),
    Case({"prompt_tokens": 5, "total_tokens": MAX_TOKENS}, 5, MAX_TOKENS - 5, reported=True),
    Case({"prompt_tokens": 5, "total_tokens": MAX_TOKENS + 1}),
)


async def call(client: ClientSession, **options: Any) -> None:
    async with client.post("/v1/completions", headers=BEARER, json={**BODY, **options}) as response:
        assert response.status == 200
        await response.read()


def nano(value: float | str | None) -> Decimal:
    assert value is not None
    return round(Decimal(str(value)) * 10**9, 1)


async def metric(proxy: Proxy, client: ClientSession, name: str) -> Decimal:
    families = text_string_to_metric_families(await read(proxy, client, "metrics"))
    samples = [s.value for family in families for s in family.samples if s.name == name]
    return sum((Decimal(str(value)) for value in samples), Decimal(0))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_usage_agrees(streamed: bool, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    tokens = cost = Decimal(0)
    async with ledgered(tmp_path, upstream, LIMITS) as (proxy, client, path):
        for case in CASES:
            *events, last_document = legacy_events("y" * 40)
            good_events = stream([*events, {**last_document, "usage": case.usage}])
            full_value = answer(legacy("y" * 40, usage=case.usage))
            upstream.answer_with(good_events if streamed else full_value)

            await call(client, stream=streamed)

            [record] = await proxy.sink.wait()
            proxy.sink.forget()
            spend = (case.prompt * 2 + case.completion * 4) * 1000
            tokens, cost = tokens + case.prompt + case.completion, cost + spend
            source = "provider" if case.reported else "partial_estimate"
            assert (record.billing.tokens.total, record.billing.cost, record.billing.source) == (
                case.prompt + case.completion, spend, source,
            ), str(case)  # fmt: skip
            assert nano(canonical(record)["cost_usd"]) == spend, str(case)
        assert await metric(proxy, client, "headrace_tokens_total") == tokens
        assert nano(str(await metric(proxy, client, "headrace_cost_usd_total"))) == cost
        assert nano(str(await metric(proxy, client, "headrace_budget_spent_usd"))) == cost
    for table in ("calls", "attempts"):
        assert sum(row["cost_nano_usd"] for row in kept(path, table)) == cost


def test_the_most_tokens_at_the_highest_price_can_be_kept() -> None:
    dearest = Price(input=MAX_USD, output=MAX_USD)
    cost = dearest.cost(Tokens(input=MAX_TOKENS, output=MAX_TOKENS))

    assert cost is not None
    assert MAX_COST / 2 < cost <= MAX_COST
