"""A deployment name means all targets in decisions, explanations and policy tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.errors import InvalidField
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import compare_decisions, decide_call
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call
from proxy.policytest.cases import Given
from proxy.policytest.harness import run_case, run_with_simulated_clock
from proxy.types import Call, Json, Plan
from tests.conftest import KEY
from tests.passthrough.listed_policies import digest
from tests.policy.decisions import read_text

EU, US, SUPPORT = "eu/gpt-4o-eu", "us/gpt-4o", "local/gpt-4o"
PAIR = {EU, US}
NAME = "gpt-4o"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
MESSAGES: Json = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
CHAT = "/v1/chat/completions"


PRICE = "price: {input: 1, output: 2}"
NAMED_POLICIES = f"""
upstreams:
  eu: {{dialect: openai, base_url: 'http://127.0.0.1:9/eu', provider: azure}}
  us: {{dialect: openai, base_url: 'http://127.0.0.1:9/us'}}
  local: {{dialect: openai, base_url: 'http://127.0.0.1:9/local', provider: nobody}}
deployments:
  gpt-4o:
    also_known_as: [gpt-4o-latest, our/chat]
    targets:
      - {{upstream: eu, model: gpt-4o-eu, weight: 1, {PRICE}}}
      - {{upstream: us, model: gpt-4o, weight: 1, {PRICE}}}
    passthrough:
      - {{path: /v1/rerank, idempotent: true}}
      - {{path: /v1/images/generations, idempotent: true}}
  support:
    targets: [{{upstream: local, model: gpt-4o, {PRICE}}}]
keys:
  widget: {{sha256: {digest(KEY)}, deployments: [gpt-4o, support]}}
"""


@dataclass(frozen=True)
class NamedRequest:
    path: str
    model: object
    body: Json
    targets: list[set[str]]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> Json:
        return self.body if self.model is None else {"model": self.model, **self.body}


def by_chat(model: str, *targets: str, **headers: str) -> NamedRequest:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return NamedRequest(CHAT, model, MESSAGES, [set(targets) or PAIR], names)


TO_DEPLOYMENT = {"x_headrace_deployment": NAME}
ASKS = {
    # Names by which a body selects the deployment: its name, aliases and models.
    "name": by_chat(NAME),
    "alias": by_chat("gpt-4o-latest"),
    "alias with a slash": by_chat("our/chat"),
    "model": by_chat("gpt-4o-eu", EU),
    "provider and model": by_chat("openai/gpt-4o", US),
    "upstream and model": by_chat("us/gpt-4o", US),
    # The deployment's header with each of these names.
    "header and name": by_chat(NAME, **TO_DEPLOYMENT),
    "header and alias": by_chat("gpt-4o-latest", **TO_DEPLOYMENT),
    "header and model": by_chat("gpt-4o-eu", EU, **TO_DEPLOYMENT),
    "header and prefixed model": by_chat("openai/gpt-4o", US, **TO_DEPLOYMENT),
    "header and unknown model": by_chat("whatever", **TO_DEPLOYMENT),
    "alias in the header": by_chat("x", x_headrace_deployment="our/chat"),
    "header of another deployment": by_chat(NAME, SUPPORT, x_headrace_deployment="support"),
    # Dialects and endpoints, each with its own field or path for a deployment.
    "legacy": NamedRequest("/v1/completions", NAME, {"prompt": "Hi"}, [PAIR]),
    "embeddings": NamedRequest("/v1/embeddings", NAME, {"input": "Hi"}, [PAIR]),
    "responses": NamedRequest("/v1/responses", NAME, {"input": "Hi"}, [PAIR]),
    "responses by model": NamedRequest("/v1/responses", "gpt-4o-eu", {"input": "Hi"}, [{EU}]),
    "messages": NamedRequest("/v1/messages", NAME, MESSAGES, [PAIR]),
    "messages by model": NamedRequest("/v1/messages", "openai/gpt-4o", MESSAGES, [{US}]),
    "azure path": NamedRequest("/openai/deployments/gpt-4o/chat/completions", None, MESSAGES,
        [PAIR]),
    "azure path, model": NamedRequest("/openai/deployments/gpt-4o-eu/embeddings", NAME,
        {"input": "Hi"}, [{EU}]),
    "fireworks": NamedRequest("/inference/v1/chat/completions", NAME, MESSAGES, [PAIR]),
    "scale": NamedRequest("/v5/chat/completions", NAME, MESSAGES, [PAIR]),
    "scale, three parts": NamedRequest("/v5/chat/completions", "openai/gpt-4o/gpt-4o", MESSAGES,
        [{US}]),
    "scale, other deployment": NamedRequest("/v5/chat/completions", "x/gpt-4o/support", MESSAGES,
        [{SUPPORT}]),
    "enkrypt": NamedRequest("/ai-proxy/chat/completions", NAME, MESSAGES, [PAIR],
        {"x-enkrypt-deployment": NAME}),
    "portkey": NamedRequest(CHAT, NAME, MESSAGES, [PAIR], {"x-portkey-virtual-key": NAME}),
    "portkey, model": NamedRequest(CHAT, "gpt-4o-eu", MESSAGES, [{EU}], {"x-portkey-config": NAME}),
    "multimodel": NamedRequest("/v1/completion", NAME, {"prompt": "Hi"}, [PAIR]),
    "multimodel, list": NamedRequest("/v1/completion", [NAME, "gpt-4o-eu"], {"prompt": "Hi"},
        [PAIR, {EU}]),
    # Passthrough paths.
    "passthrough": NamedRequest("/v1/rerank", NAME, {"query": "Hi"}, [PAIR]),
    "passthrough by model": NamedRequest("/v1/rerank", "gpt-4o-eu", {"query": "Hi"}, [{EU}]),
    "passthrough without model": NamedRequest("/v1/rerank", None, {"query": "Hi"}, [PAIR]),
    "azure picture": NamedRequest("/openai/deployments/gpt-4o/images/generations", None,
        {"prompt": "Hi"}, [PAIR]),
    "azure picture by model": NamedRequest("/openai/deployments/gpt-4o-eu/images/generations", NAME,
        {"prompt": "Hi"}, [{EU}]),
}  # fmt: skip


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return read_world(tmp_path_factory.mktemp("policies"))


def read_world(folder: Path, policies: str = "") -> Snapshot:
    return read_text(folder, NAMED_POLICIES + policies)


def call_of(snapshot: Snapshot, ask: NamedRequest, nonce: str = "1") -> Call:
    call = build_sample_call(
        ask.content, ask.headers, NOW, ask.path, passthrough=snapshot.passthrough
    )
    return replace(call, head=replace(call.head, call_id=nonce))


def first_targets(snapshot: Snapshot, ask: NamedRequest, calls: int = 60) -> list[Counter[str]]:
    """Return, by requested model, how often each target is tried first."""
    result: list[Counter[str]] = [Counter() for _ in ask.targets]
    for number in range(calls):
        plan = decide(snapshot, snapshot.keys["widget"], call_of(snapshot, ask, str(number)))
        for index, model_call in enumerate(plan.model_calls):
            result[index][model_call.targets[0].id] += 1
    return result


def test_name_reaches_all_targets_by_weight(snapshot: Snapshot) -> None:
    for name, ask in ASKS.items():
        result = first_targets(snapshot, ask)
        assert [set(counter) for counter in result] == ask.targets, name
        assert all(n >= 15 for counter in result for n in counter.values()), name


def test_candidate_explanation_and_policy_test_agree(snapshot: Snapshot) -> None:
    for name, ask in ASKS.items():
        key, call = snapshot.keys["widget"], call_of(snapshot, ask)
        was = decide(snapshot, key, call)
        # Evaluated as a candidate.
        assert compare_decisions(call, was, decide_call(snapshot, key, call)) == [], name

        explanation = explain(snapshot, key, call)
        targets = [reason.parts for reason in explanation.decisions if reason.subject == "targets"]
        assert [{part.result for part in parts} for parts in targets] == ask.targets, name

        setup = Given(key="widget", path=ask.path, headers=ask.headers, body=ask.content)
        plan = run_with_simulated_clock(run_case(snapshot, setup)).record.plan
        assert plan is not None, name
        played = [{target.id for target in model_call.targets} for model_call in plan.model_calls]
        assert played == ask.targets, name


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        ("targets: [{upstream: us, model: gpt-4o, weight: 1, PRICE}, EU1]", {NAME: PAIR}),
        ("when: {model: gpt-4o-eu}, model: gpt-4o", {"gpt-4o-eu": PAIR, "us/gpt-4o": {US}}),
        ("when: {model: gpt-4o-eu}, model: our/chat", {"gpt-4o-eu": PAIR}),
        ("model: gpt-4o, fallback: [EU]", {"us/gpt-4o": PAIR}),
        ("when: {not: {model: gpt-4o}}, refuse: No.", {NAME: PAIR, "our/chat": PAIR}),
    ],
)
def test_rules_use_deployment_name(rule: str, asks: dict[str, set[str]], tmp_path: Path) -> None:
    rule = rule.replace("EU1", f"{{upstream: eu, model: gpt-4o-eu, weight: 1, {PRICE}}}")
    rule = rule.replace("EU", f"{{upstream: eu, model: gpt-4o-eu, {PRICE}}}")
    rule = rule.replace("PRICE", PRICE)
    snapshot = read_world(tmp_path, f"policies: {{default: {{rules: [{{name: r, {rule}}}]}}}}\n")

    for model, targets in asks.items():
        [result] = first_targets(snapshot, by_chat(model))
        assert set(result) == targets, model


HI: Json = {"messages": [{"role": "user", "content": "Hi"}]}
TARGETS = "targets: [{upstream: one, model: m}, {upstream: one, model: MODEL}]"
POLICIES = f"""
upstreams: {{one: {{dialect: openai, base_url: 'https://one.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [first, second]}}}}
deployments:
  first: {{FIRST, {TARGETS.replace("MODEL", "only-first")}, passthrough: [/v1/rerank]}}
  second: {{SECOND, {TARGETS.replace("MODEL", "only-second")}, passthrough: [/v1/rerank]}}
"""
AMBIGUOUS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"model": "m", **HI}),
    "prefixed model": ("/v1/chat/completions", {"model": "one/m", **HI}),
    "responses": ("/v1/responses", {"model": "m", "input": "Hi"}),
    "list of models": ("/v1/completion", {"model": ["m", "one/m"], "prompt": "Hi"}),
    "conversation": ("/v1/conversations", {}),
    "passthrough": ("/v1/rerank", {}),
    "passthrough with a model": ("/v1/rerank", {"model": "m"}),
    "azure path": ("/openai/deployments/m/embeddings", {"input": "Hi"}),
}
CERTAIN: dict[str, tuple[str, Json, str]] = {
    "model of one": ("/v1/chat/completions", {"model": "only-second", **HI}, ""),
    "name": ("/v1/chat/completions", {"model": "second", **HI}, ""),
    "list": ("/v1/completion", {"model": ["m", "only-second"], "prompt": "Hi"}, ""),
    "header": ("/v1/chat/completions", {"model": "m", **HI}, "second"),
    "conversation": ("/v1/conversations", {}, "second"),
    "passthrough": ("/v1/rerank", {}, "second"),
}


def defaults_snapshot(folder: Path, *defaults: str) -> Snapshot:
    text = POLICIES
    for name in ("first", "second"):
        text = text.replace(name.upper(), f"default: {str(name in defaults).lower()}")
    return read_text(folder, text)


def plan_of(policies: Snapshot, path: str, body: Json, header: str = "") -> Plan:
    headers = {"x-headrace-deployment": header} if header else {}
    call = build_sample_call(body, headers, NOW, path, passthrough=policies.passthrough)
    return decide(policies, policies.keys["widget"], call)


def test_default_deployment_takes_ambiguous_calls(tmp_path: Path) -> None:
    policies = defaults_snapshot(tmp_path, "first")
    for name, (path, body) in AMBIGUOUS.items():
        assert plan_of(policies, path, body).deployment == "first", name
        call = build_sample_call(body, {}, NOW, path, passthrough=policies.passthrough)
        _, decision, *_ = explain(policies, policies.keys["widget"], call).decisions
        assert "the default of" in str(decision.reason), name


def test_default_deployment_takes_no_call_of_another(tmp_path: Path) -> None:
    policies = defaults_snapshot(tmp_path, "first")
    for name, (path, body, header) in CERTAIN.items():
        assert plan_of(policies, path, body, header).deployment == "second", name


@pytest.mark.parametrize("defaults", [(), ("first", "second")])
def test_ambiguous_default_requires_a_name(defaults: tuple[str, ...], tmp_path: Path) -> None:
    policies = defaults_snapshot(tmp_path, *defaults)
    for path, body in AMBIGUOUS.values():
        with pytest.raises(InvalidField, match="first, second"):
            plan_of(policies, path, body)


@pytest.mark.parametrize("weight", [0, 1])
def test_drained_target_keeps_no_conversations(weight: int, tmp_path: Path) -> None:
    """The other target of the deployment serves only chat."""
    drained = f"{{upstream: one, model: m, weight: {weight}}}"
    chat = "{upstream: one, model: n, weight: 1, endpoint: chat}"
    text = POLICIES.replace(
        "FIRST, " + TARGETS.replace("MODEL", "only-first"), f"targets: [{drained}, {chat}]"
    )
    policies = read_text(tmp_path, text.replace("SECOND", "default: false"))

    if weight:
        with pytest.raises(InvalidField, match="first, second"):
            plan_of(policies, "/v1/conversations", {})
    else:
        assert plan_of(policies, "/v1/conversations", {}).deployment == "second"
