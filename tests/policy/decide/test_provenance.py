"""Each value of a plan says where it comes from: its reason, the file and line, and its rule."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.decide import decide
from proxy.policy.decide.provenance import DecidedPlan
from proxy.policy.review.sample_call import sample_call
from proxy.policy.store import read_folder

POLICIES = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.test'}}
tags: {team: [search], env: [prod], feature: {pattern: '[a-z]+', caller: true}}
keys:
  widget: {sha256: AAAA, deployments: [chat, strict], tags: {team: search}}
policies:
  public:
    match: all
    rules:
      - {name: small, cap: {max_tokens: 9}, limits: [{name: few, tokens: 9000 per minute}]}
      - {name: smaller, cap: {max_tokens: 5}, set: {seed: 1}}
      - {name: eu, when: {header: {x-region: eu}}, targets: [{upstream: one, model: e}]}
      - {name: seeded, set: {seed: 2}, fallback: [{upstream: one, model: f}]}
      - {name: quiet, mode: shadow, refuse: No.}
deployments:
  chat:
    policy: public
    tags: {env: prod}
    targets:
      - {upstream: one, model: m, weight: 1}
      - {upstream: one, model: n, weight: 9}
  strict:
    unpriced: refuse
    targets:
      - {upstream: one, model: free}
    fallback:
      - {upstream: one, model: paid, price: {input: 1, output: 2}}
""".replace("AAAA", "0" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(POLICIES)
    return tmp_path


def decided(folder: Path, model: str = "chat", **headers: Any) -> DecidedPlan:
    snapshot = read_folder(folder, {})
    target = {name.replace("_", "-"): value for name, value in headers.items()}
    call = sample_call({"model": model, "prompt": "Hi"}, target, datetime(2026, 6, 1, tzinfo=UTC))
    plan = decide(snapshot, snapshot.keys["widget"], call)
    assert isinstance(plan, DecidedPlan)
    return plan


def test_a_deployment_and_tags_say_who_says_so(folder: Path) -> None:
    plan = decided(folder, x_headrace_tags="feature=x,team=other")

    assert plan.origin_of_deployment() == ("requested by its name as the model", "p.yaml:15")
    assert {tag: plan.origin_of_tag(tag) for tag in plan.tags} == {
        "env": ("set by the deployment", "p.yaml:17"),
        "feature": ("set by the client", "p.yaml:2"),
        "team": ("set by the key", "p.yaml:4"),
    }
    assert plan.basis.dropped_tags == ("team",)
    snapshot = plan.basis.snapshot
    assert snapshot.source_of(*snapshot.limits["few"]) == "p.yaml:9"


@pytest.mark.parametrize(
    ("model", "headers", "why"),
    [
        ("m", {"x_headrace_deployment": "chat"}, "named in a request header"),
        ("m", {}, "the only deployment of this key that serves the request"),
    ],
)
def test_says_why_deployment(model: str, headers: dict[str, str], why: str, folder: Path) -> None:
    assert decided(folder, model, **headers).origin_of_deployment().reason == why


def test_every_rule_says_where_it_is_and_why_it_does_not_hold(folder: Path) -> None:
    outcomes = decided(folder).outcomes_of_rules(0)

    assert [(outcome.rule.name, outcome.source, outcome.mismatch) for outcome in outcomes] == [
        ("public/small", "p.yaml:9", None),
        ("public/smaller", "p.yaml:10", None),
        ("public/eu", "p.yaml:11", "header x-region is not set"),
        ("public/seeded", "p.yaml:12", None),
        ("public/quiet", "p.yaml:13", None),
    ]


def test_an_effect_says_whose_word_counts_instead(folder: Path) -> None:
    plan = decided(folder, x_region="eu")
    overruled = {
        (outcome.rule.name, effect): plan.overruled(0, outcome.rule, effect)
        for outcome in plan.outcomes_of_rules(0)
        for effect, _ in outcome.rule.effects()
        if not outcome.rule.shadow
    }

    assert overruled == {
        ("public/small", "cap max_tokens"): "a lower cap applies",
        ("public/small", "limit few"): None,
        ("public/smaller", "set seed"): None,
        ("public/smaller", "cap max_tokens"): None,
        ("public/eu", "targets"): None,
        ("public/seeded", "fallback"): "no effect: public/eu chooses the targets",
        ("public/seeded", "set seed"): "no effect: public/smaller takes precedence",
    }


def test_targets_say_why_they_are_where_they_are(folder: Path) -> None:
    drawn = [origin for _, origin in decided(folder).origins_of_targets(0)]
    picked = [origin for _, origin in decided(folder, x_region="eu").origins_of_targets(0)]

    assert drawn == [
        ("chosen by weight 9 of 10, drawn for each call", "p.yaml:20"),
        ("next: weight 1 of 10", "p.yaml:19"),
        ("fallback", "p.yaml:12"),
    ]
    assert picked == [("the first target for this model", "p.yaml:11")]


@pytest.mark.parametrize(
    ("sticky", "headers", "fixed_for"),
    [
        ("key", {}, "the same for all calls of this key"),
        ("{header: x-session}", {"x_session": "7"}, "the same for all calls of this value of x-s"),
        ("{header: x-session}", {}, "drawn for each call"),
        ("user", {}, "drawn for each call"),
    ],
)
def test_explains_draw(sticky: str, headers: dict[str, str], fixed_for: str, folder: Path) -> None:
    text = POLICIES.replace("tags: {env: prod}", f"sticky: {sticky}")
    (folder / "p.yaml").write_text(text)

    (_, (why, _)), *_ = decided(folder, **headers).origins_of_targets(0)

    assert fixed_for in str(why)


def test_one_target_that_serves_a_model_alone_is_not_said_to_be_drawn(folder: Path) -> None:
    ((_, origin), *_) = decided(folder, "m").origins_of_targets(0)

    assert origin == ("the only target to choose from", "p.yaml:19")


def test_what_is_left_out_says_why(folder: Path) -> None:
    plan = decided(folder, "strict")

    assert [(item.model, why) for item, why in plan.left_out(0)] == [
        ("free", "its price is unknown")
    ]
    assert [origin for _, origin in plan.origins_of_targets(0)] == [("fallback", "p.yaml:26")]


def test_two_plans_are_equal_by_what_they_say(folder: Path) -> None:
    assert decided(folder, "strict") == decided(folder, "strict")
