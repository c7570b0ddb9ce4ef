"""Searches for lists of models that escape a rule of one of them, and for false differences.

A candidate policy that equals the active one must decide every call alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.explain import explain
from proxy.types import Call, Plan, RequestHead, Secret
from tests.conftest import DIGEST, KEY, Reply, running_proxy
from tests.dialects.test_stored_state import policy, stateful_proxy
from tests.doubles import Json, ScriptedUpstream, chat, respond, response
from tests.policy.decisions import decide, key_in, snapshot_of
from tests.test_pipeline import MESSAGES

HEAD = RequestHead(
    "multimodel", "completions", "/v1/completion", "req_1", digest=Secret(KEY).digest
)
MODELS = ("internal", "public", "partner")
GUARDS = ("secrets", "dear", "words", "code")
LIMITS = ("calls", "tokens", "money", "own")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
REMOVAL: Json = {
    "name": "removal",
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


def list_effects(plan: Plan) -> tuple[list[Any], ...]:
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

    for index, parts in enumerate(list_effects(together)):
        expected = {part for plan in alone for part in list_effects(plan)[index]}
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
        assert list_effects(plan) == list_effects(first_plan)
        assert (plan.refusal, plan.cache) == (first_plan.refusal, first_plan.cache)


def test_explanation_names_the_model_that_keeps_a_guard() -> None:
    snapshot = snapshot_of(policies(REMOVAL))
    key = key_in(snapshot, "widget")

    explanation = explain(snapshot, key, Call(HEAD, {"prompt": "Hi"}, MODELS, "compare"))

    [rule] = [
        p for reason in explanation.decisions for p in reason.parts if p.result.endswith(" applies")
    ]
    assert rule.reason == (
        "without limit money (no effect: other models of this call keep it); "
        "without guard secrets (no effect: other models of this call keep it)"
    )


async def test_list_passes_the_checks_of_every_model(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    text = policies(REMOVAL, base_url=f"{upstream.url}/v1")
    async with running_proxy(tmp_path / "policies", text) as proxy:

        async def send(models: Sequence[str], prompt: str, max_tokens: int) -> Reply:
            body = {"model": [*models], "prompt": prompt, "max_tokens": max_tokens}
            return await proxy.send("/v1/completion", body)

        for models in permutations(("internal", "public")):
            blocked = await send(models, f"My key is {SECRET}.", 10)
            limited = await send(models, "Hi", 3000)

            assert (blocked.status, blocked.error["code"]) == (400, "guardrail_blocked")
            assert (limited.status, limited.error["code"]) == (429, "budget_exceeded")
        assert upstream.requests == []
        assert (await send(["internal"], f"My key is {SECRET}.", 3000)).status == 200


DEPLOYMENTS = """  passing:
    targets: [{upstream: openai, model: rerank-1, price: {input: 1, output: 1}}]
    passthrough: [/v1/rerank]
    only_passthrough: true
  drawing:
    targets:
      - {upstream: openai, model: light, weight: 1, price: {input: 1, output: 2}}
      - {upstream: spare, model: heavy, weight: 99, price: {input: 1, output: 2}}
policies:
"""
CONVERSATION: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
PAGE: Json = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
ITEM: Json = {"type": "message", "role": "user", "content": "Where?"}


def responses_request(**fields: Any) -> tuple[str, str, Json]:
    return "POST", "/v1/responses", {"model": "gpt-4o-mini", "input": "Go on.", **fields}


def list_calls(stored: str, conversation: str) -> list[tuple[tuple[str, str, Json | None], Json]]:
    """Return requests with the ids of stored objects, and what the upstream responds."""
    queued = response(status="queued", background=True)
    return [
        (("POST", "/v1/chat/completions", {"model": "gpt-4o-mini", **MESSAGES}), chat("Hi.")),
        (responses_request(model="drawing"), response()),
        (responses_request(background=True), queued),
        (responses_request(previous_response_id=stored), response()),
        (responses_request(conversation=conversation), response()),
        (responses_request(model="keeper", previous_response_id=stored), response()),
        (("GET", f"/v1/responses/{stored}", None), response()),
        (("GET", f"/v1/responses/{stored}/input_items", None), PAGE),
        (("GET", f"/v1/conversations/{conversation}", None), CONVERSATION),
        (("POST", f"/v1/conversations/{conversation}/items", {"items": [ITEM]}), PAGE),
        (("GET", "/v1/responses/resp_x", None), response()),
        (("POST", "/v1/rerank", {"query": "a"}), {"results": []}),
    ]


def check_explanation(record: Any, decisions: list[Json]) -> None:
    """Require that an explanation of a call agrees with its record and its candidate."""
    by_topic = {decision["about"]: decision for decision in decisions}
    assert by_topic["candidate"]["decided"] == "same decision"
    parts = by_topic["outcome"].get("parts", ())
    attempts = [part for part in parts if part["about"] == "attempt"]
    if not attempts:
        assert by_topic["result"]["decided"].startswith(f"rejected with {record.status} ")
        return
    [attempt] = attempts
    target = attempt["decided"].partition(" ")[0]
    assert by_topic["result"]["decided"] == f"route to {target}"
    if record.call.state_ref is not None:
        targets = [part["decided"] for part in by_topic["targets"]["parts"]]
        others = [decided for decided in targets if not decided.startswith(target)]
        assert all(decided.endswith("excluded") for decided in others)


async def test_equal_candidate_has_no_differences(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    text = policy(upstream.url).replace("policies:\n", DEPLOYMENTS)
    text = text.replace("chatting]", "chatting, passing, drawing]")
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "p.yaml").write_text(text)
    async with stateful_proxy(
        tmp_path / "policies", upstream, text, candidate=tmp_path / "candidate"
    ) as gateway:
        admin, json_type = gateway.proxy.admin, {"accept": "application/json"}
        upstream.answer_with(respond(response()))
        stored = await gateway.id_of()
        upstream.answer_with(respond(CONVERSATION))
        to = {"x-headrace-deployment": "support-chat"}
        _, conversation, _ = await gateway.send("/v1/conversations", "POST", {}, **to)
        calls = list_calls(stored, conversation["id"])
        for count, ((method, path, body), document) in enumerate(calls, start=3):
            upstream.answer_with(respond(document))
            _, _, headers = await gateway.send(path, method, body)
            [*_, record] = await gateway.proxy.sink.wait(count)
            if record.call is not None:  # not refused before a policy decision
                request_id = headers["x-request-id"]
                _, explanation, _ = await gateway.send(f"{admin}/explain/{request_id}", **json_type)
                check_explanation(record, explanation["decisions"])
        _, candidate, _ = await gateway.send(f"{admin}/candidate", **json_type)

    assert candidate["decisions"] == []
