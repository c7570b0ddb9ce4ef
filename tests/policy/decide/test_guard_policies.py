"""What guards may ask: any deployment, as callers of their own name, unguarded and unkept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.errors import NotFound, Unauthorized
from proxy.policy.decide import GuardPolicies
from proxy.policy.store import read_folder
from proxy.types import Call, RequestHead

POLICIES = """
upstreams: {local: {dialect: openai, base_url: 'http://local.test'}}
policies:
  judged:
    input: [{guard: secrets}]
    output: [{guard: code}]
    cache: {ttl: 1h}
    limits: [{name: month, usd: 5 per month, unpriced: allow}]
    rules:
      - {name: strict, when: {key: {glob: 'guard/*'}}, input: [{guard: sponge}], model: other}
deployments:
  judge-smol: {targets: [{upstream: local, model: smol}], policy: judged, tags: {team: search}}
tags: {team: [search]}
"""


def policies(folder: Path) -> GuardPolicies:
    (folder / "p.yaml").write_text(POLICIES)
    return GuardPolicies(lambda: read_folder(folder, None))


def call(key: str | None = "guard/house", deployment: str = "judge-smol") -> Call:
    head = RequestHead("openai", "chat", "guard", "req_2", deployment=deployment, internal_key=key)
    body = {"model": deployment, "messages": [{"role": "user", "content": "x"}]}
    return read_call(head, body)


async def test_a_guard_is_a_caller_under_the_policy_of_the_deployment(tmp_path: Path) -> None:
    policy = await policies(tmp_path).read(call().head)
    caller = policy.identify(call().head)
    plan = caller.decide(call())

    assert (caller.key, plan.key, plan.deployment) == ("guard/house", "guard/house", "judge-smol")
    assert (plan.tags, plan.revision) == ({"team": "search"}, policy.revision)
    assert [bound.limit.name for bound in plan.limits] == ["month"]
    assert plan.model_calls[0].targets[0].model == "smol"


async def test_no_guard_and_no_cache_is_left_whoever_brings_them(tmp_path: Path) -> None:
    policy = await policies(tmp_path).read(call().head)
    plan = policy.identify(call().head).decide(call())

    assert plan.rules == ("judged/strict",)
    assert not plan.guards
    assert plan.cache is None


@pytest.mark.parametrize(
    ("change", "error"),
    [({"key": None}, Unauthorized), ({"deployment": "judge-big"}, NotFound)],
    ids=["no key", "unknown deployment"],
)
async def test_refuses_call(change: Any, error: type[Exception], tmp_path: Path) -> None:
    policy = await policies(tmp_path).read(call().head)

    with pytest.raises(error):
        policy.identify(call(**change).head)
