"""Deployments that refuse targets without a known price."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.check import check_folder
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call
from proxy.policy.store import read_folder
from proxy.types import Call, Plan
from tests.for_each import for_each
from tests.policy.decisions import read_text

POSITION = datetime(2026, 6, 1, tzinfo=UTC)
POLICIES = """\
upstreams: {openai: {dialect: openai, base_url: 'https://api.example.test'}}
keys: {widget: {sha256: AAAA, deployments: [strict, lenient, level, spared, never]}}
deployments:
  strict:
    unpriced: refuse
    targets:
      - {upstream: openai, model: smol, weight: 1}
      - {upstream: openai, model: gpt-4o-mini, weight: 1, price: {input: 1, output: 2}}
    fallback:
      - {upstream: openai, model: later, price: {from: 2026-06-02, input: 1, output: 2}}
      - {upstream: openai, model: half, price: {input: 1}}
      - {upstream: openai, model: spare, price: {input: 1, output: 2}}
  lenient: {targets: [{upstream: openai, model: smol}]}
  level:
    unpriced: refuse
    balance: least_loaded
    targets:
      - {upstream: openai, model: smol}
      - {upstream: openai, model: gpt-4o-mini, price: {input: 1, output: 2}}
    fallback: [{upstream: openai, model: spare, price: {input: 1, output: 2}}]
  spared:
    unpriced: refuse
    targets: [{upstream: openai, model: smol}]
    fallback: [{upstream: openai, model: spare, price: {input: 1, output: 2}}]
  never:
    unpriced: refuse
    targets: [{upstream: openai, model: smol}]
    fallback: [{upstream: openai, model: smaller}]
tests: {}
""".replace("AAAA", "0" * 64).replace("tests: {}\n", "")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return read_text(tmp_path, POLICIES, {})


def completion_call(deployment: str, *, day: int = 1, **fields: Any) -> Call:
    return build_sample_call(
        {"model": deployment, "prompt": "Hi", **fields}, {}, POSITION.replace(day=day)
    )


def decide_for_widget(snapshot: Snapshot, call: Call) -> Plan:
    return decide(snapshot, snapshot.keys["widget"], call)


def models(plan: Plan) -> list[str]:
    return [target.model for target in plan.model_calls[0].targets]


def test_targets_without_a_current_price_are_omitted(snapshot: Snapshot) -> None:
    served = [("strict", 1), ("strict", 2), ("spared", 1), ("lenient", 1)]
    plans = [decide_for_widget(snapshot, completion_call(n, day=day)) for n, day in served]

    assert [models(plan) for plan in plans] == [
        ["gpt-4o-mini", "spare"], ["gpt-4o-mini", "later", "spare"], ["spare"], ["smol"]
    ]  # fmt: skip


def test_embeddings_need_no_output_price(snapshot: Snapshot) -> None:
    call = build_sample_call({"model": "strict", "input": "Hi"}, {}, POSITION, "/v1/embeddings")

    assert models(decide_for_widget(snapshot, call)) == ["gpt-4o-mini", "half", "spare"]


def test_pool_excludes_unpriced_targets(snapshot: Snapshot) -> None:
    leg = decide_for_widget(snapshot, completion_call("level")).model_calls[0]

    assert ([t.model for t in leg.targets], leg.pool_size) == (["gpt-4o-mini", "spare"], 1)


def test_call_without_priced_targets_is_refused(snapshot: Snapshot) -> None:
    refusal = decide_for_widget(snapshot, completion_call("never")).refusal

    assert refusal is not None
    assert (refusal.rule, refusal.status) == ("unpriced", 403)
    assert decide_for_widget(snapshot, completion_call("lenient")).refusal is None


BUDGET = """\
upstreams: {openai: {dialect: openai, base_url: 'https://api.example.test'}}
keys: {widget: {sha256: AAAA, deployments: [vectors]}}
deployments:
  vectors:
    limits: [{name: month, usd: 5 per month, LIMIT}]
    targets: [{upstream: openai, model: text-embedding-3-small}]
    fallback: [{upstream: openai, model: later, price: {from: 2026-06-02, input: 1, output: 2}}]
""".replace("AAAA", "0" * 64)


@for_each(
    ("limit", "endpoint", "day", "targets"),
    [
        ("mode: enforce", "/v1/embeddings", 1, ["text-embedding-3-small"]),
        ("mode: enforce", "/v1/completions", 1, None),
        ("mode: enforce", "/v1/completions", 2, ["later"]),
        ("mode: shadow", "/v1/completions", 1, ["text-embedding-3-small", "later"]),
        ("unpriced: allow", "/v1/completions", 1, ["text-embedding-3-small", "later"]),
    ],
)
def test_usd_limit_omits_unpriced_targets_of_rules(
    limit: str, endpoint: str, day: int, targets: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(BUDGET.replace("LIMIT", limit))
    body = {"model": "vectors", "input" if "embed" in endpoint else "prompt": "Hi"}

    plan = decide_for_widget(
        read_folder(tmp_path, {}), build_sample_call(body, {}, POSITION.replace(day=day), endpoint)
    )

    if targets is None:
        assert plan.refusal is not None
        assert plan.refusal.message.endswith(
            'but limit "month" is in USD. The operator can add it.'
        )
    else:
        assert plan.refusal is None
        assert models(plan) == targets


def test_explain_shows_omitted_targets_and_refusal(snapshot: Snapshot) -> None:
    spared, never = (
        explain(snapshot, snapshot.keys["widget"], completion_call(name)).format_tree()
        for name in ("spared", "never")
    )

    assert "openai/spare (fallback; USD per million tokens: input 1, output 2)" in spared
    assert "openai/smol excluded (its price is unknown)" in spared
    assert "─ targets: 1\n" in spared
    assert "openai/smol (not tried; price unknown)" in never
    assert "rejected with 403 by rule unpriced" in never


def test_check_warns_of_deployment_that_refuses_all_calls(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)

    report = [(p.path, p.message) for p in check_folder(tmp_path, {}).warnings]

    refused = [path for path, text in report if text.startswith("rejects every call")]
    assert refused == ["deployments.never.unpriced"]
    unused = 'model "smol" has no known price, so it is never used. Add "price:" here.'
    assert ("deployments.spared.targets[0]", unused) in report
