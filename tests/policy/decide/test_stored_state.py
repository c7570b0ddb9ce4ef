"""A call that leans on what a provider keeps goes to the target that has it, or nowhere."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import NotFound
from proxy.policy.decide import ActivePolicy
from proxy.policy.store import read_folder
from proxy.types import Call, Plan, RequestHead, Secret, StateRef
from tests.for_each import for_each

KEY = "hr-a"
POLICY = f"""
upstreams: {{openai: {{dialect: openai, base_url: 'http://127.0.0.1:9/v1'}}}}
keys:
  support-widget:
    sha256: {hashlib.sha256(KEY.encode()).hexdigest()}
    deployments: [support-chat, weighted, ruled]
deployments:
  support-chat:
    targets: [{{upstream: openai, model: first}}, {{upstream: openai, model: second}}]
    fallback: [{{upstream: openai, model: spare}}]
    hedge: {{after: 1s}}
  weighted:
    targets:
      - {{upstream: openai, model: light, weight: 1}}
      - {{upstream: openai, model: heavy, weight: 99}}
  ruled:
    policy: elsewhere
    targets: [{{upstream: openai, model: near}}]
policies:
  elsewhere:
    rules:
      - name: away
        when: {{endpoint: responses}}
        targets: [{{upstream: openai, model: far}}]
"""


def decided(
    folder: Path, model: str, pin: StateRef, header: str | None = None, *other_items: str
) -> Plan:
    folder.mkdir(exist_ok=True)
    (folder / "policies.yaml").write_text(POLICY)
    head = RequestHead(
        "openai", "responses", "/", "r", digest=Secret(KEY).digest, deployment=header
    )
    head = replace(head, alternatives=other_items)
    own_text = pin.deployment if header is None else None
    call = Call(head, {}, requested_models=(model,), deployment=own_text, state_ref=pin)
    return ActivePolicy(read_folder(folder, {})).identify(head).decide(call)


@for_each(
    ("model", "deployment", "target"),
    [
        ("first", "support-chat", "openai/first"),
        ("support-chat", "support-chat", "openai/first"),
        ("support-chat", "support-chat", "openai/spare"),
        ("second", "support-chat", "openai/second"),
        ("weighted", "weighted", "openai/light"),
        ("weighted", "weighted", "openai/heavy"),
        ("near", "ruled", "openai/far"),
    ],
)
def test_pin_selects_target(model: str, deployment: str, target: str, tmp_path: Path) -> None:
    plan = decided(tmp_path, model, StateRef("resp_s", deployment, target, "resp_1"))

    [model_call] = plan.model_calls
    assert plan.deployment == deployment
    assert [item.id for item in model_call.targets] == [target]
    assert (model_call.pool_size, plan.hedge_after) == (1, None)


@for_each(
    ("model", "deployment", "target", "header"),
    [
        ("first", "support-chat", "openai/gone", None),
        ("first", "gone", "openai/first", None),
        ("first", "support-chat", "openai/second", None),  # another model was asked for
        ("light", "support-chat", "openai/first", None),
        ("unknown", "support-chat", "openai/first", None),
        ("first", "support-chat", "openai/first", "weighted"),
        ("near", "ruled", "openai/near", None),  # a rule leads such calls elsewhere now
    ],
)
def test_it_is_not_found_where_policy_does_not_send_it_there(
    model: str, deployment: str, target: str, header: str | None, tmp_path: Path
) -> None:
    with pytest.raises(NotFound) as refused:
        decided(tmp_path, model, StateRef("resp_s", deployment, target, "resp_1"), header)

    assert str(refused.value) == "Previous response with id 'resp_s' not found."


@pytest.mark.parametrize("drawn", [("weighted", "support-chat"), ("support-chat", "weighted")])
def test_pin_selects_drawn_target(drawn: tuple[str, str], tmp_path: Path) -> None:
    plan = decided(tmp_path, "first", StateRef("s", "support-chat", "openai/first", "i"), *drawn)

    assert (plan.deployment, len(plan.model_calls[0].targets)) == ("support-chat", 1)
