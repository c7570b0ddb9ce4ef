"""Cache keys of requests, and cache headers of clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from proxy.cache.cache_control import DEFAULT_CONTROL, CacheControl, read_cache_control
from proxy.cache.key import (
    KEY_BYTES,
    TRANSPORT_FIELDS,
    UNKEYED_FIELDS,
    compute_cache_key,
    derive_secret,
)
from proxy.dialects import DIALECTS
from proxy.limits.kinds import KINDS
from proxy.money.usage import Price
from proxy.types import (
    CacheRule,
    Call,
    ModelCall,
    ParameterOverrides,
    Plan,
    RequestHead,
    Retry,
    ScopedLimit,
    Secret,
    Target,
    Upstream,
)
from proxy.types.limit import Limit
from tests.for_each import for_each

SECRET = b"s" * 32
RULE = CacheRule(ttl=60)
UP = Upstream("openai", "openai", "http://127.0.0.1:9/v1")
PRICE = Price(Decimal(1), Decimal(2))
TARGET = Target(UP, "gpt-4o-mini")
LEG = ModelCall("gpt-4o-mini", (TARGET,))
PLAN = Plan("r1", "support-widget", "support-chat", {}, (LEG,))
BODY: dict[str, Any] = {"model": "gpt-4o-mini", "prompt": "The capital of France is"}
HEAD = RequestHead("openai", "completions", "/v1/completions", "req_1")
CALL = Call(HEAD, BODY, ("gpt-4o-mini",))


def key(
    call: Call = CALL,
    plan: Plan = PLAN,
    rule: CacheRule = RULE,
    namespace: str = "",
    secret: bytes = SECRET,
) -> bytes:
    return compute_cache_key(secret, call, plan, rule, namespace)


def call_with(**fields: Any) -> Call:
    return replace(CALL, body={**BODY, **fields})


def plan_with(**changes: Any) -> Plan:
    return replace(PLAN, model_calls=(replace(LEG, **changes),))


def plan_with_target(**changes: Any) -> Plan:
    return plan_with(targets=(replace(TARGET, upstream=replace(UP, **changes)),))


FIELDS = {name for d in DIALECTS.values() for fields in d.fields.values() for name in fields}


DIFFERENT_KEYS: dict[str, Callable[[], bytes]] = {
    "tenant": lambda: key(plan=replace(PLAN, key="search-box")),
    "deployment": lambda: key(plan=replace(PLAN, deployment="search-answers")),
    "endpoint": lambda: key(replace(CALL, head=replace(HEAD, endpoint="chat"))),
    "dialect": lambda: key(replace(CALL, head=replace(HEAD, dialect="scale"))),
    "client's namespace": lambda: key(namespace="trial"),
    "rule's namespace": lambda: key(rule=replace(RULE, namespace="trial")),
    "unknown field": lambda: key(call_with(novelty=1)),
    "null": lambda: key(call_with(seed=None)),
    "order within a field": lambda: key(call_with(response_format={"b": 1, "a": 2})),
    "the model that policy names": lambda: key(plan=plan_with(model="gpt-4o")),
    "the rules that apply": lambda: key(plan=plan_with(rules=("house/cheap",))),
    "what rules set": lambda: key(
        plan=plan_with(overrides=ParameterOverrides(set={"temperature": 0}))
    ),
    "what rules cap": lambda: key(
        plan=plan_with(overrides=ParameterOverrides(cap={"max_tokens": 9}))
    ),
    "the target's model": lambda: key(plan=plan_with(targets=(replace(TARGET, model="x"),))),
    "the target's endpoint": lambda: key(
        plan=plan_with(targets=(replace(TARGET, endpoint="chat"),))
    ),
    "another target": lambda: key(plan=plan_with(targets=(TARGET, replace(TARGET, model="x")))),
    "the upstream": lambda: key(plan=plan_with_target(name="local")),
    "the upstream's address": lambda: key(plan=plan_with_target(base_url="http://127.0.0.1:8/v1")),
    "the upstream's dialect": lambda: key(plan=plan_with_target(dialect="scale")),
    "the upstream's headers": lambda: key(
        plan=plan_with_target(headers=(("x-beta", Secret("1")),))
    ),
    "the upstream's fields": lambda: key(plan=plan_with_target(accepts=frozenset({"top_k"}))),
    "the secret": lambda: key(secret=b"t" * 32),
}


@for_each("other_value", DIFFERENT_KEYS.values(), ids=DIFFERENT_KEYS.keys())
def test_relevant_fields_change_the_key(other_value: Callable[[], bytes]) -> None:
    is_order = other_value is DIFFERENT_KEYS[_ORDER]
    first_data = key(call_with(response_format={"a": 2, "b": 1})) if is_order else key()

    assert other_value() != first_data
    assert len(other_value()) == KEY_BYTES


ANTHROPIC = replace(CALL, head=replace(HEAD, dialect="anthropic", endpoint="chat"))
RESPONSES = replace(CALL, head=replace(HEAD, endpoint="responses"))


@pytest.mark.parametrize("call", [ANTHROPIC, RESPONSES], ids=["messages", "responses"])
def test_stream_and_body_have_separate_keys(call: Call) -> None:
    assert key(replace(call, stream=True)) != key(call)


@pytest.mark.parametrize("name", ["anthropic-beta", "anthropic-version"])
def test_forwarded_headers_change_the_key(name: str) -> None:
    def call_with_header(value: str) -> Call:
        return replace(ANTHROPIC, head=replace(ANTHROPIC.head, headers={name: value}))

    assert len({key(call_with_header("one")), key(call_with_header("two")), key(ANTHROPIC)}) == 3
    assert key(call_with_header("one")) == key(call_with_header("one"))
    openai = replace(CALL, head=replace(HEAD, headers={name: "one"}))
    assert key(openai) == key()


_ORDER = "order within a field"
EQUAL_KEYS: dict[str, Callable[[], bytes]] = {
    "order of the fields": lambda: key(replace(CALL, body=dict(reversed(BODY.items())))),
    "request id": lambda: key(replace(CALL, head=replace(HEAD, request_id="req_2", call_id="n"))),
    "streaming": lambda: key(replace(call_with(stream=True, stream_options={}), stream=True)),
    "the user's header": lambda: key(replace(CALL, head=replace(HEAD, user="anna"))),
    "the caller's tags": lambda: key(replace(CALL, head=replace(HEAD, tags=(("team", "x"),)))),
    "the time allowed": lambda: key(replace(call_with(inference_timeout=9), timeout_s=9.0)),
    "the upstream's credential": lambda: key(plan=plan_with_target(api_key=Secret("sk-2"))),
    "the revision": lambda: key(plan=replace(PLAN, revision="r2")),
    "how long it is kept": lambda: key(rule=replace(RULE, ttl=9, max_bytes=9)),
    "limits": lambda: key(
        plan=replace(PLAN, limits=(ScopedLimit(Limit("c", KINDS["concurrency"], 2)),))
    ),
    "retries and hedges": lambda: key(
        plan=replace(PLAN, retry=Retry(1, frozenset(), 0.1, 1.0), hedge_after=1.0)
    ),
    "prices": lambda: key(plan=plan_with(targets=(replace(TARGET, prices=(PRICE,)),))),
}


@for_each("same_value", EQUAL_KEYS.values(), ids=EQUAL_KEYS.keys())
def test_irrelevant_fields_do_not_change_the_key(same_value: Callable[[], bytes]) -> None:
    assert same_value() == key()


@for_each("name", sorted(FIELDS | UNKEYED_FIELDS))
def test_every_unlisted_field_changes_the_key(name: str) -> None:
    first_call, second_call = call_with(**{name: "one"}), call_with(**{name: "two"})
    by_user = replace(RULE, by_user=True)

    assert name in FIELDS
    assert (key(first_call) == key(second_call)) == (name in UNKEYED_FIELDS)
    keys = {key(call, rule=by_user) for call in (first_call, second_call)}
    assert (len(keys) == 1) == (name in TRANSPORT_FIELDS)


def test_parts_of_the_key_are_separated() -> None:
    rules = [replace(RULE, namespace=namespace) for namespace in ("a", "ab")]
    assert key(namespace="b", rule=rules[0]) != key(namespace="", rule=rules[1])
    assert key(namespace="\udcff") != key(namespace="\\udcff")


def test_configured_secret_may_have_any_length() -> None:
    assert len(derive_secret("x" * 1000)) == len(derive_secret("x")) == KEY_BYTES
    assert derive_secret("x") != derive_secret("y")


def test_shared_plan_does_not_change_keys() -> None:
    shared = replace(PLAN, cache=RULE)
    calls = [
        CALL,
        call_with(seed=1),
        replace(CALL, head=replace(HEAD, endpoint="chat")),
        replace(CALL, head=replace(HEAD, dialect="scale")),
    ]

    for call in (*calls, *calls):
        for namespace in ("", "trial"):
            assert key(call, shared, RULE, namespace) == key(call, PLAN, RULE, namespace)
    assert len({key(call, shared, RULE) for call in calls}) == len(calls)


def test_rule_by_user_separates_users_of_a_plan() -> None:
    by_user = replace(RULE, by_user=True)
    shared = replace(PLAN, cache=by_user)
    users = [replace(CALL, head=replace(HEAD, user=name)) for name in ("a", "b", "a")]

    for call in users:
        assert key(call, shared, by_user) == key(call, PLAN, by_user)


@for_each(
    ("headers", "control"),
    [
        ({}, DEFAULT_CONTROL),
        ({"cache-control": "no-cache"}, CacheControl(no_cache=True)),
        ({"cache-control": "No-Store"}, CacheControl(allows_storing=False)),
        ({"cache-control": "no-store, no-cache"}, CacheControl(True, allows_storing=False)),
        ({"cache-control": "max-age=60"}, CacheControl(max_age=60)),
        ({"cache-control": 'max-age = "5", max-age=60'}, CacheControl(max_age=5)),
        ({"cache-control": "max-age=99999999999999999999"}, CacheControl(max_age=10**9)),
        ({"cache-control": "max-age=soon, only-if-cached, ="}, DEFAULT_CONTROL),
        ({"cache-control": "max-age=-1, max-age=²"}, DEFAULT_CONTROL),
        ({"x-portkey-cache-force-refresh": "true"}, CacheControl(no_cache=True)),
        ({"x-portkey-cache-force-refresh": "false"}, DEFAULT_CONTROL),
        ({"cf-aig-skip-cache": "true"}, CacheControl(no_cache=True, allows_storing=False)),
        ({"cf-aig-skip-cache": "false"}, DEFAULT_CONTROL),
        ({"helicone-cache-enabled": "false"}, CacheControl(no_cache=True, allows_storing=False)),
        ({"helicone-cache-enabled": "true"}, DEFAULT_CONTROL),
        ({"helicone-cache-enabled": ""}, DEFAULT_CONTROL),
        ({"x-portkey-cache-namespace": " trial "}, CacheControl(namespace="trial")),
    ],
)
def test_cache_headers_are_read(headers: dict[str, str], control: CacheControl) -> None:
    assert read_cache_control(headers) == control
