"""Which targets a call tries, in which order: by weight, evenly, the same for the sticky."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import NotFound
from proxy.policy.decide.routes import Candidates
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from proxy.types import Call, RequestHead, Secret, Target, Upstream
from tests.for_each import for_each
from tests.policy.deciding import decide

UP = Upstream("openai", "openai", "http://127.0.0.1:9")
A, B, C = (Target(UP, name) for name in "abc")
POLICIES = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test'}
  spare: {dialect: openai, base_url: 'https://spare.example.test'}
keys:
  widget:
    sha256: '8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a'
    deployments: [split]
deployments:
  split:
    sticky: STICKY
    targets:
      - {upstream: spare, model: m, weight: 1}
      - {upstream: openai, model: m, weight: 9}
    fallback: [{upstream: openai, model: last}]
"""
HEAD = RequestHead("openai", "completions", "/v1/completions", "r", digest=Secret("k").digest)


def test_without_weights_the_first_is_tried_alone() -> None:
    assert Candidates((A, B)).order == (A,)


@for_each(("drawn", "order"), [(0, (A, B)), (8, (A, B)), (9, (B, A)), (10, (A, B))])
def test_weights_decide_order(drawn: int, order: tuple[Target, ...]) -> None:
    assert Candidates((A, B), (9, 1)).draw_order(drawn) == order


def test_a_target_without_weight_is_never_tried() -> None:
    assert Candidates((A, B, C), (1, 1, 0)).draw_order(1) == (B, A)


def test_a_target_without_weight_takes_no_call_that_names_its_model_either(tmp_path: Path) -> None:
    text = POLICIES.replace("sticky: STICKY", "tags: {}")
    text = text.replace(
        "upstream: spare, model: m, weight: 1", "upstream: spare, model: old, weight: 0"
    )
    (tmp_path / "p.yaml").write_text(text)
    snapshot = read_folder(tmp_path, {})
    target = Call(replace(HEAD, deployment="split"), {}, requested_models=("old",))

    with pytest.raises(NotFound):
        decide(snapshot, Call(HEAD, {}, requested_models=("old",)))
    assert [t.model for t in decide(snapshot, target).model_calls[0].targets] == ["m", "last"]


@pytest.fixture
def snapshot(tmp_path: Path, request: pytest.FixtureRequest) -> Snapshot:
    (tmp_path / "p.yaml").write_text(POLICIES.replace("STICKY", request.param))
    return read_folder(tmp_path, {})


def chosen(snapshot: Snapshot, **config: Any) -> list[str]:
    call = Call(replace(HEAD, call_id=config.pop("nonce", "")), config, requested_models=("m",))
    return [t.upstream.name for t in decide(snapshot, call).model_calls[0].targets]


@pytest.mark.parametrize("snapshot", ["null"], indirect=True)
def test_calls_are_shared_out_by_weight(snapshot: Snapshot) -> None:
    firsts = Counter(chosen(snapshot, nonce=str(number))[0] for number in range(5000))

    assert firsts["openai"] / 5000 == pytest.approx(0.9, abs=0.02)
    assert chosen(snapshot, nonce="1")[-1] == "openai"
    assert len(chosen(snapshot, nonce="1")) == 3


@pytest.mark.parametrize("snapshot", ["key"], indirect=True)
def test_a_key_stays_with_its_target(snapshot: Snapshot) -> None:
    assert len({chosen(snapshot, nonce=str(number))[0] for number in range(100)}) == 1


@pytest.mark.parametrize("snapshot", ["user"], indirect=True)
def test_a_user_stays_with_one_target_and_users_are_shared_out(snapshot: Snapshot) -> None:
    by_user = {
        user: {chosen(snapshot, user=f"user-{user}", nonce=str(n))[0] for n in range(5)}
        for user in range(300)
    }

    assert all(len(targets) == 1 for targets in by_user.values())
    assert {target for targets in by_user.values() for target in targets} == {"openai", "spare"}


@pytest.mark.parametrize("recipe", [False, True], ids=["without", "with"])
def test_canary_gets_calls_by_deployment_rule(recipe: bool, tmp_path: Path) -> None:
    text = POLICIES.replace("sticky: STICKY", "tags: {}")
    text = text.replace("spare, model: m, weight: 1", "spare, model: larger, weight: 1")
    if recipe:
        text += "policies: {default: {rules: [{name: c, when: {model: m}, model: split}]}}\n"
    (tmp_path / "p.yaml").write_text(text)
    snapshot = read_folder(tmp_path, {})

    request = (
        Call(replace(HEAD, call_id=f"n{n}"), {}, requested_models=("m",)) for n in range(200)
    )
    plan = Counter(decide(snapshot, call).model_calls[0].targets[0].model for call in request)

    assert plan["m"] > 150
    assert (plan["larger"] > 5) is recipe
