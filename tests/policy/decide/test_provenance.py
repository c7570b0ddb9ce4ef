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


@pytest.mark.parametrize(
    ("model", "headers", "why"),
    [
        ("m", {"x_headrace_deployment": "chat"}, "named in a request header"),
        ("m", {}, "the only deployment of this key that serves the request"),
    ],
)
def test_says_why_deployment(model: str, headers: dict[str, str], why: str, folder: Path) -> None:
    assert decided(folder, model, **headers).origin_of_deployment().reason == why


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
