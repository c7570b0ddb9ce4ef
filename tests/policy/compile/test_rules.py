"""Composition of policies, and their compiled rules and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.policy.decide.snapshot import Snapshot
from proxy.types import ScopedLimit
from proxy.types.limit import LEASE_S, RENEW_S
from proxy.types.windows import Calendar
from tests.for_each import for_each
from tests.policy.decisions import read_text

POLICIES = """
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  default: {rules: [{name: short, cap: {max_tokens: 100}}]}
  base: {rules: [{name: calm, set: {temperature: 0}}]}
  left: {extends: base, rules: [{name: one, set: {n: 1}}]}
  right:
    extends: [base]
    match: first
    rules:
      - {name: eu, when: {key: widget}, targets: [{upstream: up, model: eu}]}
      - {name: slow, mode: shadow, refuse: {message: not now, status: 429}}
  both: {extends: [left, right]}
  trial:
    mode: shadow
    rules: [{name: no, refuse: no more}]
    input: [{guard: code}]
    limits: [{name: few, requests: 1 per day}]
    cache: {ttl: 1h}
keys: {widget: {sha256: AAAA, deployments: [support-chat]}}
deployments:
  support-chat: {targets: [{upstream: up, model: m}], policy: NAMED}
""".replace("AAAA", "0" * 64)


def read(folder: Path, target: str) -> Snapshot:
    return read_text(folder, POLICIES.replace("NAMED", target), {})


@for_each(
    ("target", "rules"),
    [
        ("base", ["base/calm"]),
        ("left", ["left/one", "base/calm"]),
        ("both", ["left/one", "base/calm", "right/eu", "right/slow"]),
        ("~", ["default/short"]),
    ],
)
def test_own_rules_precede_inherited_rules(target: str, rules: list[str], tmp_path: Path) -> None:
    sections = read(tmp_path, target).deployments["support-chat"].sections

    assert [rule.name for section in sections for rule in section.rules] == rules


def test_match_mode_belongs_to_each_section(tmp_path: Path) -> None:
    sections = read(tmp_path, "both").deployments["support-chat"].sections

    assert {s.policy: s.first_only for s in sections} == {
        "left": False, "base": False, "right": True
    }  # fmt: skip


def test_rule_is_compiled_completely(tmp_path: Path) -> None:
    *_, right = read(tmp_path, "both").deployments["support-chat"].sections
    eu, slow = right.rules

    assert eu.routes is not None
    assert [target.model for target in eu.routes.targets] == ["eu"]
    assert (eu.shadow, slow.shadow) == (False, True)
    assert slow.refusal is not None
    assert (slow.refusal.message, slow.refusal.status) == ("not now", 429)


def test_shadow_policy_shadows_rules_guards_and_limits(tmp_path: Path) -> None:
    deployment = read(tmp_path, "trial").deployments["support-chat"]
    [section] = deployment.sections

    assert [rule.shadow for rule in section.rules] == [True]
    assert [rule.shadow for rule in deployment.guards.input] == [True]
    assert [bound.limit.shadow for bound in deployment.limits] == [True]
    assert deployment.cache is None


LIMITS_POLICIES = """\
upstreams:
  up: {dialect: openai, base_url: 'https://api.example.test', timeouts: {total: TOTAL}}
tags: {team: [support]}
policies:
  house: {limits: [{name: house, requests: 600 per minute, per: key, burst: 10}]}
  public:
    extends: house
    limits: [{name: public, tokens: 200k per 10 minutes, per: [tag.team, user]}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments:
  chat:
    targets: [{upstream: up, model: m}]
    policy: public
    limits:
      - name: month
        usd: 500 per month
        unpriced: allow
        zone: Europe/Berlin
        warn_at: 80%
        mode: shadow
      - {name: at-once, concurrency: 20, on_store_error: closed}
""".replace("AAAA", "0" * 64)


def bounds(folder: Path, total: str = "10m") -> dict[str, ScopedLimit]:
    snapshot = read_text(folder, LIMITS_POLICIES.replace("TOTAL", total)).deployments["chat"].limits
    return {bound.limit.name: bound for bound in snapshot}


def test_deployment_has_own_and_inherited_limits(tmp_path: Path) -> None:
    assert list(bounds(tmp_path)) == ["month", "at-once", "public", "house"]


def test_limit_is_compiled_from_its_config(tmp_path: Path) -> None:
    result = bounds(tmp_path)
    house, public, month = (result[name].limit for name in ("house", "public", "month"))

    assert (house.kind.name, house.amount, house.window, house.burst) == ("requests", 600, 60, 10)
    assert (public.kind.name, public.amount, public.window) == ("tokens", 200_000, 600)
    assert (month.kind.name, month.amount, month.warn_at) == ("usd", 500 * 10**9, 0.8)
    assert (month.window, month.shadow) == (Calendar("month", "Europe/Berlin"), True)
    assert result["at-once"].limit.on_store_error == "closed"
    assert (result["house"].per, result["public"].per) == (("key",), ("key", "tag.team", "user"))


@for_each(
    ("written", "per"),
    [
        ("per: [user, key]", ("key", "user")),
        ("per: [tag.team, key, user]", ("key", "tag.team", "user")),
        ("per: [deployment, user]", ("key", "deployment", "user")),
        ("per: [user, deployment], across: keys", ("user", "deployment")),
        ("per: [tag.team, key]", ("key", "tag.team")),
        ("per: [tag.team, deployment]", ("tag.team", "deployment")),
    ],
)
def test_key_comes_first_in_counter(written: str, per: tuple[str, ...], tmp_path: Path) -> None:
    text = LIMITS_POLICIES.replace("per: [tag.team, user]", written).replace("TOTAL", "10m")
    snapshot = read_text(tmp_path, text).deployments["chat"].limits

    assert next(bound.per for bound in snapshot if bound.limit.name == "public") == per


@pytest.mark.parametrize("total", ["10m", "1h"])
def test_lease_period_is_independent_of_timeouts(total: str, tmp_path: Path) -> None:
    lease = bounds(tmp_path, total)["at-once"].limit.lease_s

    assert lease == LEASE_S < 60
    assert lease > 2 * RENEW_S
