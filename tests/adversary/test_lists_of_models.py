"""Rules of every model in a list apply, in decisions and explanations."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.explain import explain
from proxy.types import Call, Plan, RequestHead, Secret
from tests.conftest import DIGEST, KEY, Reply, running_proxy
from tests.dialects.test_stored_state import StatefulProxy, policy, stateful_proxy
from tests.doubles import Json, ScriptedUpstream, answer, chat, response
from tests.policy.decisions import decide, key_in, snapshot_of
from tests.test_pipeline import MESSAGES

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


WHEN: st.SearchStrategy[Json] = st.one_of(
    st.just({}),
    st.lists(st.sampled_from(MODELS), min_size=1, max_size=2, unique=True).map(
        lambda models: {"when": {"model": models}}
    ),
)


def rule_effects(number: int) -> Json:
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
            rule |= rule_effects(number)
            guards.append(f"long-{number}")
            limits.append(f"limit-{number}")
        if kind in ("shed", "both"):
            some = (st.lists(st.sampled_from(n), min_size=1, max_size=3) for n in (guards, limits))
            rule["without"] = dict(zip(("guards", "limits"), map(draw, some), strict=True))
        rules.append(rule | ({"refuse": f"No {number}."} if kind == "refuse" else {}))
    return policies(*rules, match=draw(st.sampled_from(["first", "all"])))


def decide_plan(snapshot: Snapshot, *models: str) -> Plan:
    return decide(snapshot, Call(HEAD, {"prompt": "Hi"}, models, "compare"))


def holds(plan: Plan) -> tuple[list[Any], ...]:
    """Return the parts of a plan that do not depend on the order of models."""
    guards = plan.guards
    parts = (plan.limits, guards.input, guards.output, guards.cost_caps)
    return tuple(list(part) for part in parts)


@given(folders(), st.lists(st.sampled_from(MODELS), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_list_obeys_rules_of_every_model(policy_text: str, models: list[str]) -> None:
    snapshot = snapshot_of(policy_text)
    alone = [decide_plan(snapshot, model) for model in models]
    together = decide_plan(snapshot, *models)

    for index, parts in enumerate(holds(together)):
        expected = {part for plan in alone for part in holds(plan)[index]}
        assert set(parts) == expected
        assert len(parts) == len(expected)
    assert (together.refusal is None) == all(plan.refusal is None for plan in alone)


@given(folders(), st.lists(st.sampled_from(MODELS), min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_order_of_models_is_irrelevant(policy_text: str, models: list[str]) -> None:
    snapshot = snapshot_of(policy_text)
    first_plan = decide_plan(snapshot, *models)
    for order in set(permutations(models)):
        plan = decide_plan(snapshot, *order)
        assert holds(plan) == holds(first_plan)
        assert (plan.refusal, plan.cache) == (first_plan.refusal, first_plan.cache)


def test_explanation_names_the_model_that_keeps_a_guard() -> None:
    snapshot = snapshot_of(policies(LET_OFF))
    key = key_in(snapshot, "widget")

    explanation = explain(snapshot, key, Call(HEAD, {"prompt": "Hi"}, MODELS, "compare"))

    [rule] = [
        p for reason in explanation.decisions for p in reason.parts if p.result.endswith(" applies")
    ]
    assert rule.reason == (
        "without limit money (no effect: other models of this call keep it); "
        "without guard secrets (no effect: other models of this call keep it)"
    )


@pytest.mark.parametrize("models", [["internal", "public"], ["public", "internal"]], ids=str)
async def test_list_passes_all_checks(
    models: list[str], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    text = policies(LET_OFF, base_url=f"{upstream.url}/v1")
    async with running_proxy(tmp_path / "policies", text) as proxy:

        async def ask(model: list[str], prompt: str, bound: int) -> Reply:
            body = {"model": model, "prompt": prompt, "max_tokens": bound}
            return await proxy.send("/v1/completion", body)

        blocked = await ask(models, f"My key is {SECRET}.", 10)
        upper = await ask(models, "Hi", 3000)
        assert upstream.requests == []
        alone = await ask(["internal"], f"My key is {SECRET}.", 3000)

    assert (blocked.status, blocked.error["code"]) == (400, "guardrail_blocked")
    assert (upper.status, upper.error["code"]) == (429, "budget_exceeded")
    assert alone.status == 200


PASSING = """  passing:
    targets: [{upstream: openai, model: rerank-1, price: {input: 1, output: 1}}]
    passthrough: [/v1/rerank]
    only_passthrough: true
  drawing:
    targets:
      - {upstream: openai, model: light, weight: 1, price: {input: 1, output: 2}}
      - {upstream: spare, model: heavy, weight: 99, price: {input: 1, output: 2}}
policies:
"""
TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
PAGE: Json = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
RESULT = response()
CaseBuilder = Callable[[str, str], tuple[str, str, Json | None, Json]]
"""Of a response's and a conversation's id: the method, the path, the body, and what comes."""
ITEM: Json = {"type": "message", "role": "user", "content": "Where?"}


def respond(**fields: Any) -> tuple[str, str, Json, Json]:
    body = {"model": "gpt-4o-mini", "input": "Go on.", **fields}
    return "POST", "/v1/responses", body, RESULT


CHAT: Json = {"model": "gpt-4o-mini", **MESSAGES}
QUEUED = response(status="queued", background=True)
WAYS: dict[str, CaseBuilder] = {
    "a chat": lambda r, c: ("POST", "/v1/chat/completions", CHAT, chat("Hi.")),
    "of several by weight": lambda r, c: respond(model="drawing"),
    "in the background": lambda r, c: (*respond(background=True)[:3], QUEUED),
    "from a response": lambda r, c: respond(previous_response_id=r),
    "from a conversation": lambda r, c: respond(conversation=c),
    "by a model that has not its response": lambda r, c: respond(
        model="keeper", previous_response_id=r
    ),
    "a response": lambda r, c: ("GET", f"/v1/responses/{r}", None, RESULT),
    "what was asked": lambda r, c: ("GET", f"/v1/responses/{r}/input_items", None, PAGE),
    "a conversation": lambda r, c: ("GET", f"/v1/conversations/{c}", None, TALK),
    "an item more": lambda r, c: ("POST", f"/v1/conversations/{c}/items", {"items": [ITEM]}, PAGE),
    "one that nobody has": lambda r, c: ("GET", "/v1/responses/resp_x", None, RESULT),
    "a path": lambda r, c: ("POST", "/v1/rerank", {"query": "a"}, {"results": []}),
}


async def stored_ids(stateful_proxy: StatefulProxy) -> tuple[str, str]:
    stateful_proxy.upstream.answer_with(answer(RESULT))
    response_id = await stateful_proxy.id_of()
    stateful_proxy.upstream.answer_with(answer(TALK))
    headers = {"x-headrace-deployment": "support-chat"}
    _, conversation, _ = await stateful_proxy.send("/v1/conversations", "POST", {}, **headers)
    return response_id, conversation["id"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_equal_candidate_has_no_differences(
    way: CaseBuilder, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    policies = policy(upstream.url).replace("policies:\n", PASSING)
    policies = policies.replace("chatting]", "chatting, passing, drawing]")
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "p.yaml").write_text(policies)
    async with stateful_proxy(
        tmp_path / "policies", upstream, policies, candidate=tmp_path / "candidate"
    ) as context:
        method, path, body, document = way(*await stored_ids(context))
        upstream.answer_with(answer(document))
        _, _, headers = await context.send(path, method, body)
        [*_, record] = await context.proxy.sink.wait(3)
        explain = f"{context.proxy.admin}/explain/{headers['x-request-id']}"
        reasons = (await context.send(explain, accept="application/json"))[1]["decisions"]
        admin = f"{context.proxy.admin}/candidate"
        candidate = (await context.send(admin, accept="application/json"))[1]

    by = {reason["about"]: reason for reason in reasons}
    assert candidate["decisions"] == []
    if record.call is None:  # refused before a policy decision
        return
    assert by["candidate"]["decided"] == "same decision"
    happened = [reason for reason in by["outcome"].get("parts", ()) if reason["about"] == "attempt"]
    if not happened:
        assert by["result"]["decided"].startswith(f"rejected with {record.status} ")
        return
    [attempt] = happened
    request = attempt["decided"].partition(" ")[0]
    assert by["result"]["decided"] == f"route to {request}"
    if record.call.state_ref is not None:
        tried = [reason["decided"] for reason in by["targets"]["parts"]]
        assert all(
            reason.endswith("excluded") for reason in tried if not reason.startswith(request)
        )
