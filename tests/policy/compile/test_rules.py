"""Policies that compose, and what their rules become."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from tests.for_each import for_each

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
    (folder / "p.yaml").write_text(POLICIES.replace("NAMED", target))
    return read_folder(folder, {})


@for_each(
    ("target", "rules"),
    [
        ("base", ["base/calm"]),
        ("left", ["left/one", "base/calm"]),
        ("both", ["left/one", "base/calm", "right/eu", "right/slow"]),
        ("~", ["default/short"]),
    ],
)
def test_own_rules_precede_inherited(target: str, rules: list[str], tmp_path: Path) -> None:
    sections = read(tmp_path, target).deployments["support-chat"].sections

    assert [rule.name for section in sections for rule in section.rules] == rules


def test_a_section_says_whether_its_first_rule_that_holds_ends_it(tmp_path: Path) -> None:
    sections = read(tmp_path, "both").deployments["support-chat"].sections

    assert [(s.policy, s.first_only) for s in sections] == [
        ("left", False),
        ("base", False),
        ("right", True),
    ]


def test_a_rule_is_compiled_whole(tmp_path: Path) -> None:
    *_, right = read(tmp_path, "both").deployments["support-chat"].sections
    eu, slow = right.rules

    assert eu.routes is not None
    assert [target.model for target in eu.routes.targets] == ["eu"]
    assert (eu.shadow, slow.shadow) == (False, True)
    assert slow.refusal is not None
    assert (slow.refusal.message, slow.refusal.status) == ("not now", 429)


def test_a_policy_in_shadow_has_all_that_it_says_there(tmp_path: Path) -> None:
    deployment = read(tmp_path, "trial").deployments["support-chat"]
    [section] = deployment.sections

    assert [rule.shadow for rule in section.rules] == [True]
    assert [rule.shadow for rule in deployment.guards.input] == [True]
    assert [bound.limit.shadow for bound in deployment.limits] == [True]
    assert deployment.cache is None
