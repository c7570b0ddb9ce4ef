"""The default deployment takes calls that name no deployment where several could take them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.errors import InvalidField
from proxy.policy.decide import decide
from proxy.policy.decide.provenance import DecidedPlan
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import sample_call
from proxy.policy.store import read_folder
from proxy.types import Json, Plan

HI: Json = {"messages": [{"role": "user", "content": "Hi"}]}
NOW = datetime(2026, 6, 1, tzinfo=UTC)
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


def snapshot(folder: Path, *defaults: str) -> Snapshot:
    text = POLICIES
    for name in ("first", "second"):
        text = text.replace(name.upper(), f"default: {str(name in defaults).lower()}")
    (folder / "p.yaml").write_text(text)
    return read_folder(folder, None)


def plan_of(policies: Snapshot, path: str, body: Json, header: str = "") -> Plan:
    headers = {"x-headrace-deployment": header} if header else {}
    call = sample_call(body, headers, NOW, path, passthrough=policies.passthrough)
    return decide(policies, policies.keys["widget"], call)


def test_default_takes_calls_that_several_could_take(tmp_path: Path) -> None:
    policies = snapshot(tmp_path, "first")
    for name, (path, body) in AMBIGUOUS.items():
        plan = plan_of(policies, path, body)
        assert isinstance(plan, DecidedPlan)
        assert plan.deployment == "first", name
        assert "the default of" in str(plan.origin_of_deployment().reason), name


def test_default_takes_no_call_that_means_another(tmp_path: Path) -> None:
    policies = snapshot(tmp_path, "first")
    for name, (path, body, header) in CERTAIN.items():
        assert plan_of(policies, path, body, header).deployment == "second", name


@pytest.mark.parametrize("defaults", [(), ("first", "second")])
def test_ambiguous_default_requires_a_name(defaults: tuple[str, ...], tmp_path: Path) -> None:
    policies = snapshot(tmp_path, *defaults)
    for path, body in AMBIGUOUS.values():
        with pytest.raises(InvalidField, match="first, second"):
            plan_of(policies, path, body)


@pytest.mark.parametrize("weight", [0, 1])
def test_drained_target_keeps_no_conversations(weight: int, tmp_path: Path) -> None:
    """The other target of the deployment serves chat alone."""
    drained = f"{{upstream: one, model: m, weight: {weight}}}"
    chat = "{upstream: one, model: n, weight: 1, endpoint: chat}"
    text = POLICIES.replace(
        "FIRST, " + TARGETS.replace("MODEL", "only-first"), f"targets: [{drained}, {chat}]"
    )
    (tmp_path / "p.yaml").write_text(text.replace("SECOND", "default: false"))
    policies = read_folder(tmp_path, None)

    if weight:
        with pytest.raises(InvalidField, match="first, second"):
            plan_of(policies, "/v1/conversations", {})
    else:
        assert plan_of(policies, "/v1/conversations", {}).deployment == "second"
