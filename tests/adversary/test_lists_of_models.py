"""A list of models in one call: no model of it may shed what holds for another one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.explain import explain
from proxy.policy.store import read_folder
from proxy.types import Call, Json, Plan, RequestHead, Secret
from tests.conftest import DIGEST, KEY, running_proxy
from tests.doubles import ScriptedUpstream
from tests.policy.deciding import decide

HEAD = RequestHead(
    "multimodel", "completions", "/v1/completion", "req_1", digest=Secret(KEY).digest
)
MODELS = ("internal", "public", "partner")
GUARDS = ("secrets", "dear", "words", "code")
LIMITS = ("calls", "tokens", "money", "own")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
LET_OFF: Json = {
    "name": "let-off",
    "when": {"model": "internal"},
    "without": {"guards": ["secrets"], "limits": ["money"]},
}


def policies(*rules: Json, match: str = "all", base_url: str = "https://one.test") -> str:
    policy: Json = {
        "input": [
            {"guard": "secrets", "action": "block"},
            {"guard": "economics", "name": "dear", "max_cost_usd": 1, "action": "block"},
        ],
        "output": [{"guard": "keywords", "name": "words", "words": ["banned"], "action": "block"}],
        "limits": [
            {"name": "calls", "requests": "9 per minute", "per": "key"},
            {"name": "tokens", "tokens": "99k per minute"},
            {"name": "money", "usd": "0.002 per day"},
        ],
        "rules": rules,
    }
    if len(rules) > 1:
        policy["match"] = match
    price = {"input": 1, "output": 1}
    deployment = {
        "policy": "shared",
        "limits": [{"name": "own", "concurrency": 3}],
        "targets": [{"upstream": "one", "model": name, "price": price} for name in MODELS],
    }
    digest = DIGEST
    return json.dumps(
        {
            "upstreams": {"one": {"dialect": "openai", "base_url": base_url}},
            "keys": {"widget": {"sha256": digest, "deployments": ["compare"]}},
            "policies": {"shared": policy},
            "deployments": {"compare": deployment},
        }
    )


def snapshot_of(text: str) -> Snapshot:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p.yaml").write_text(text)
        return read_folder(Path(folder), {})


WHEN: st.SearchStrategy[Json] = st.one_of(
    st.just({}),
    st.lists(st.sampled_from(MODELS), min_size=1, max_size=2, unique=True).map(
        lambda models: {"when": {"model": models}}
    ),
)


def added(number: int) -> Json:
    return {
        "input": [{"guard": "code", "action": "flag"}],
        "output": [{"guard": "length", "name": f"long-{number}", "characters": 9 + number}],
        "limits": [{"name": f"limit-{number}", "requests": "1 per day"}],
    }


@st.composite
def folders(draw: Callable[[Any], Any]) -> str:
    rules: list[Json] = []
    guards, limits = list(GUARDS), list(LIMITS)
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["shed", "add", "both", "refuse"]))
        rule = {"name": f"r{number}", **draw(WHEN)}
        if kind in ("add", "both"):
            rule |= added(number)
            guards.append(f"long-{number}")
            limits.append(f"limit-{number}")
        if kind in ("shed", "both"):
            some = (st.lists(st.sampled_from(n), min_size=1, max_size=3) for n in (guards, limits))
            rule["without"] = dict(zip(("guards", "limits"), map(draw, some), strict=True))
        rules.append(rule | ({"refuse": f"No {number}."} if kind == "refuse" else {}))
    return policies(*rules, match=draw(st.sampled_from(["first", "all"])))


def planned(snapshot: Snapshot, *models: str) -> Plan:
    return decide(snapshot, Call(HEAD, {"prompt": "Hi"}, models, "compare"))


def holds(plan: Plan) -> tuple[list[Any], ...]:
    """Give what of a plan does not depend on which model is asked, in its order."""
    guards = plan.guards
    parts = (plan.limits, guards.input, guards.output, guards.cost_caps)
    return tuple(list(part) for part in parts)


@given(folders(), st.lists(st.sampled_from(MODELS), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_list_obeys_rules_of_every_model(said: str, models: list[str]) -> None:
    snapshot = snapshot_of(said)
    alone = [planned(snapshot, model) for model in models]
    together = planned(snapshot, *models)

    for index, parts in enumerate(holds(together)):
        expected = {part for plan in alone for part in holds(plan)[index]}
        assert set(parts) == expected
        assert len(parts) == len(expected)
    assert (together.refusal is None) == all(plan.refusal is None for plan in alone)


@given(folders(), st.lists(st.sampled_from(MODELS), min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_order_of_models_is_irrelevant(said: str, models: list[str]) -> None:
    snapshot = snapshot_of(said)
    first_plan = planned(snapshot, *models)
    for order in set(permutations(models)):
        plan = planned(snapshot, *order)
        assert holds(plan) == holds(first_plan)
        assert (plan.refusal, plan.cache) == (first_plan.refusal, first_plan.cache)


def test_the_explanation_says_that_another_model_keeps_a_guard() -> None:
    snapshot = snapshot_of(policies(LET_OFF))
    key = snapshot.key_named("widget")
    assert key is not None

    explanation = explain(snapshot, key, Call(HEAD, {"prompt": "Hi"}, MODELS, "compare"))

    [rule] = [
        p for reason in explanation.decisions for p in reason.parts if p.result.endswith(" applies")
    ]
    assert rule.reason == (
        "without limit money (no effect: other models of this call keep it); "
        "without guard secrets (no effect: other models of this call keep it)"
    )


@pytest.mark.parametrize("models", [["internal", "public"], ["public", "internal"]], ids=str)
async def test_list_is_held(models: list[str], upstream: ScriptedUpstream, tmp_path: Path) -> None:
    text = policies(LET_OFF, base_url=f"{upstream.url}/v1")
    async with running_proxy(tmp_path / "policies", text) as proxy:

        async def ask(model: list[str], prompt: str, bound: int) -> tuple[int, Json]:
            body = {"model": model, "prompt": prompt, "max_tokens": bound}
            headers = {"authorization": f"Bearer {proxy.key}"}
            async with proxy.client.post(
                f"{proxy.url}/v1/completion", json=body, headers=headers
            ) as response:
                return response.status, await response.json()

        blocked = await ask(models, f"My key is {SECRET}.", 10)
        assert upstream.requests == []
        upper = await ask(models, "Hi", 3000)
        assert upstream.requests == []
        alone = await ask(["internal"], f"My key is {SECRET}.", 3000)

    assert (blocked[0], blocked[1]["error"]["code"]) == (400, "guardrail_blocked")
    assert (upper[0], upper[1]["error"]["code"]) == (429, "budget_exceeded")
    assert alone[0] == 200
