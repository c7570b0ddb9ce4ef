"""Deployments of passthrough calls and of calls that refer to stored state."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import BadRequest, InvalidField, NotFound, RequestTooLarge
from proxy.policy.compile import compile_policies
from proxy.policy.decide import ActivePolicy, decide
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.store import read_folder
from proxy.types import NO_OVERRIDES, Call, Plan, RequestHead, Secret, StateRef
from proxy.types.passthrough import PassthroughRequest
from tests.for_each import for_each

POLICIES = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.openai.com/v1'}
keys:
  support-widget: {sha256: '%s', deployments: [one, two, chat]}
deployments:
  one:
    policy: here
    hedge: {after: 1s}
    cache: {ttl: 1h}
    targets: [{upstream: openai, model: rerank-1}, {upstream: openai, model: spare}]
    passthrough: [{path: /v1/rerank, max_bytes: 1kB}, /v1/moderations]
  two:
    targets: [{upstream: openai, model: rerank-2}]
    passthrough: [/v1/rerank, {path: '/v1/files/{id}', methods: [GET]}]
  chat:
    targets: [{upstream: openai, model: gpt-4o-mini}]
policies:
  here:
    rules:
      - {name: only-here, when: {endpoint: passthrough}, set: {temperature: 0}}
""" % ("a" * 64)


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    return compile_policies(load_policies_with_problems(tmp_path), None)


def call(path: str = "/v1/rerank", method: str = "POST", **fields: Any) -> Call:
    query = fields.pop("query", "")
    head = RequestHead(
        dialect="openai",
        endpoint="passthrough",
        route=path,
        request_id="r",
        deployment=fields.pop("deployment", None),
        method=method,
        passthrough=PassthroughRequest(path, query),
    )
    return Call(head=head, body={}, **fields)


def decide_plan(snapshot: Snapshot, client_call: Call) -> Plan:
    return decide(snapshot, snapshot.keys["support-widget"], client_call)


def test_drawn_deployment_requires_access_to_all_alternatives(snapshot: Snapshot) -> None:
    request = call(deployment="one")
    for other_item, error in (("two", None), ("three", BadRequest)):
        drawn = replace(request, head=replace(request.head, alternatives=(other_item,)))
        with pytest.raises(error) if error else nullcontext():
            assert decide_plan(snapshot, drawn).deployment == "one"


def test_passthrough_plan_has_no_hedge_cache_or_overrides(snapshot: Snapshot) -> None:
    plan = decide_plan(snapshot, call(requested_models=("one",)))

    assert plan.deployment == "one"
    assert plan.passthrough is not None
    assert plan.passthrough.route == "/v1/rerank"
    assert (plan.hedge_after, plan.cache) == (None, None)
    assert plan.model_calls[0].overrides == NO_OVERRIDES
    assert plan.rules == ("here/only-here",)


@for_each(
    ("client_call", "deployment"),
    [
        (call("/v1/moderations"), "one"),
        (call("/v1/files/a", "GET"), "two"),
        (call(requested_models=("rerank-2",)), "two"),
        (call(requested_models=("openai/rerank-1",)), "one"),
        (call(deployment="two"), "two"),
        (call(deployment="two", requested_models=("rerank-1",)), "two"),
    ],
)
def test_passthrough_call_selects_its_deployment(
    client_call: Call, deployment: str, snapshot: Snapshot
) -> None:
    assert decide_plan(snapshot, client_call).deployment == deployment


@for_each(
    ("client_call", "error"),
    [
        (call(), InvalidField),
        (call("/v1/files/a"), NotFound),
        (call("/v1/other"), NotFound),
        (call(requested_models=("gpt-4o-mini",)), NotFound),
        (call(requested_models=("unknown",)), NotFound),
        (call(deployment="chat"), NotFound),
        (call(deployment="nobody"), NotFound),
        (call("/v1/moderations", query="a" * 2049), BadRequest),
    ],
)
def test_unresolvable_passthrough_calls_are_refused(
    client_call: Call, error: type[Exception], snapshot: Snapshot
) -> None:
    with pytest.raises(error):
        decide_plan(snapshot, client_call)


class Upload:
    def __init__(self, length: int | None) -> None:
        self.length, self.has_begun = length, False

    async def read_chunk(self) -> bytes:
        return b""


def test_refused_upload_is_not_read(snapshot: Snapshot) -> None:
    for length, good in ((1000, True), (None, True), (1001, False)):
        request = replace(call(deployment="one"), upload=Upload(length))
        if good:
            assert decide_plan(snapshot, request).passthrough is not None
        else:
            with pytest.raises(RequestTooLarge):
                decide_plan(snapshot, request)


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


def decide_with_ref(
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
def test_state_reference_selects_its_target(
    model: str, deployment: str, target: str, tmp_path: Path
) -> None:
    plan = decide_with_ref(tmp_path, model, StateRef("resp_s", deployment, target, "resp_1"))

    [model_call] = plan.model_calls
    assert plan.deployment == deployment
    assert [item.id for item in model_call.targets] == [target]
    assert (model_call.pool_size, plan.hedge_after) == (1, None)


@for_each(
    ("model", "deployment", "target", "header"),
    [
        ("first", "support-chat", "openai/gone", None),
        ("first", "gone", "openai/first", None),
        ("first", "support-chat", "openai/second", None),  # another model was requested
        ("light", "support-chat", "openai/first", None),
        ("unknown", "support-chat", "openai/first", None),
        ("first", "support-chat", "openai/first", "weighted"),
        ("near", "ruled", "openai/near", None),  # a rule selects other targets
    ],
)
def test_state_at_an_unreachable_target_is_not_found(
    model: str, deployment: str, target: str, header: str | None, tmp_path: Path
) -> None:
    with pytest.raises(NotFound) as refused:
        decide_with_ref(tmp_path, model, StateRef("resp_s", deployment, target, "resp_1"), header)

    assert str(refused.value) == "Previous response with id 'resp_s' not found."


@pytest.mark.parametrize("drawn", [("weighted", "support-chat"), ("support-chat", "weighted")])
def test_state_reference_selects_among_alternatives(drawn: tuple[str, str], tmp_path: Path) -> None:
    plan = decide_with_ref(
        tmp_path, "first", StateRef("s", "support-chat", "openai/first", "i"), *drawn
    )

    assert (plan.deployment, len(plan.model_calls[0].targets)) == ("support-chat", 1)
