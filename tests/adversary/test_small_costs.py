"""A call that costs less than half a millionth of a USD is in no account nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from proxy.settings import LedgerAt
from proxy.telemetry.log import canonical
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.ledger.kept import kept
from tests.test_pipeline import BEARER

CALLS = 3
COST = 5 * 20  # nano-USD: 5 tokens at 0.02 USD per million
LIMITS = "\n    limits: [{name: month, usd: 0.000002 per month}]"


async def test_small_costs_add_up_exactly(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    position = LedgerAt("sqlite", tmp_path / "ledger")
    policies = world(upstream.url).replace("input: 0.15, output: 0.6", "input: 0.02, output: 0")
    policies = policies.replace("  resilient:\n", f"  resilient:{LIMITS}\n")
    body = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 20}
    statuses, costs = [], []
    async with running_proxy(tmp_path / "policies", policies, ledger=position) as proxy:
        for _ in range(CALLS):
            async with proxy.client.post("/v1/completions", headers=BEARER, json=body) as response:
                statuses.append(response.status)
                costs.append(response.headers["x-headrace-cost-usd"])
        records = list(await proxy.sink.wait(CALLS))
        metrics = await proxy.metrics()
        async with proxy.client.post(
            "/v1/completions", headers=BEARER, json={**body, "prompt": "x" * 400}
        ) as response:
            too_dear = response.status  # 100 tokens are 2000 nano-USD, and 300 are spent

    assert (statuses, too_dear) == ([200] * CALLS, 429)
    assert set(costs) == {"0.0000001"}
    assert (
        sum(Decimal(str(canonical(record)["cost_usd"])) for record in records) * 10**9
        == CALLS * COST
    )
    assert [row["cost_nano_usd"] for row in kept(position.path)][:CALLS] == [COST] * CALLS
    assert [row["cost_usd"] for row in kept(position.path)][:CALLS] == [COST / 1e9] * CALLS
    spend = 'headrace_budget_spent_usd{budget="month",scope="all"} 3e-07'
    assert spend in metrics
