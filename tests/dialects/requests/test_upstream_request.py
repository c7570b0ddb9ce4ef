"""Forwarding fields gives the same request as translating them, or nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.dialects import CHECKED_FIELDS, DIALECTS, read_call
from proxy.dialects.requests.translation import apply_parameter_overrides, translate_body
from proxy.dialects.requests.upstream_request import (
    MAX_CACHED,
    apply_overrides,
    build_untranslated_request,
    choose_target_endpoint,
    make_target_route,
    translate_request,
)
from proxy.dialects.vendors.openai import OPENAI
from proxy.errors import InvalidField, RequestError
from proxy.types import (
    NO_OVERRIDES,
    Call,
    Endpoint,
    ParameterOverrides,
    RequestHead,
    Target,
    Upstream,
)
from tests.for_each import for_each

ENDPOINTS: tuple[Endpoint, ...] = ("chat", "completions", "embeddings", "responses")
FIELDS: dict[Endpoint, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hello"}]},
    "completions": {"model": "m", "prompt": "Hello"},
    "embeddings": {"model": "m", "input": "Hello"},
    "responses": {"model": "m", "input": "Hello"},
}
VALUES: tuple[Any, ...] = (
    *(None, 0, 1, 2, 5, 200, -1, 0.5, 2.5, True, False, "x", "auto", "high", [], ["a"], ["a"] * 5),
    *({}, {"a": 1}, {"max_tokens": 7}, [{"type": "function"}], {"1": 150}),
)
OTHER_NAMES = ["apiKey", "models", "maxGenLen", "max_gen_len", "extra_body", "odd", "x-y"]
LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"drops": frozenset({"seed", "user"})},
    {"refuses": frozenset({"temperature", "tools[].server_url"})},
    {"accepts": frozenset({"odd", "max_gen_len", "tools"}), "skips_range_checks": True},
)
CHANGES = (
    NO_OVERRIDES,
    ParameterOverrides(cap={"max_tokens": 9, "n": 1}),
    ParameterOverrides(cap={"temperature": 0.7, "max_completion_tokens": 3}),
    ParameterOverrides(set={"max_tokens": 5, "seed": 1}),
    ParameterOverrides(set={"temperature": 3}, cap={"max_tokens": 0}),
    ParameterOverrides(set={"odd": 1, "model": "other"}),
    ParameterOverrides(set={"max_tokens": 1000}, cap={"max_tokens": 50}),
)


def upstream(dialect: str, lists: dict[str, Any]) -> Upstream:
    return Upstream("openai", dialect, "https://example.com", **lists)


UPSTREAMS = [upstream(dialect, lists) for dialect in DIALECTS for lists in LISTS]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    dialect = draw(st.sampled_from([name for name in DIALECTS if name != "multimodel"]))
    endpoints = [item for item in ENDPOINTS if item in CHECKED_FIELDS[dialect]]
    endpoint = draw(st.sampled_from(endpoints))
    fields = CHECKED_FIELDS[dialect][endpoint]
    body = dict(FIELDS[endpoint])
    for name in draw(st.lists(st.sampled_from([*fields, *OTHER_NAMES]), max_size=4)):
        fitting = [v for v in VALUES if name not in fields or not fields[name].check(v)]
        body.setdefault(name, draw(st.sampled_from([None, *fitting])))
    try:
        return read_call(RequestHead(dialect, endpoint, "/", "r"), body)
    except RequestError:
        assume(condition=False)
        raise


def types_of(body: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in body.items()}


@settings(max_examples=400)
@given(
    calls(),
    st.sampled_from(UPSTREAMS),
    st.sampled_from([None, "chat", "completions", "responses"]),
    st.sampled_from(["gpt-4o", "o3-mini"]),
    st.sampled_from(CHANGES),
)
def test_forwarded_fields_equal_translated_ones(
    call: Call, target_upstream: Upstream, only: Any, model: str, changes: ParameterOverrides
) -> None:
    dialect, target = DIALECTS[call.head.dialect], Target(target_upstream, model, endpoint=only)
    try:
        route = make_target_route(call.head.endpoint, dialect, target)
    except InvalidField:
        return
    document_before = dict(call.body)

    request = build_untranslated_request(route, call.head.endpoint, call.body, model, changes)

    assert call.body == document_before
    if request is not None:
        endpoints = call.head.endpoint, route.endpoint
        long = translate_body(dialect, endpoints, call.body, target, changes)
        # set fields may be in another position
        assert long.body == request.body
        assert types_of(long.body) == types_of(request.body)
        assert list(long.supported_fields) == list(request.supported_fields)
        names = "accepts_zero_bound", "dropped_fields", "max_output_tokens"
        assert all(getattr(long, name) == getattr(request, name) for name in names)


@settings(max_examples=300)
@given(
    calls(),
    st.sampled_from(UPSTREAMS),
    st.sampled_from(["gpt-4o", "o3-mini"]),
    st.sampled_from(CHANGES),
    st.booleans(),
)
def test_parameters_equal_applied_overrides(
    call: Call, target_upstream: Upstream, model: str, changes: ParameterOverrides, is_sent: bool
) -> None:
    target, spoken = Target(target_upstream, model), DIALECTS[target_upstream.dialect]
    endpoint = choose_target_endpoint(call.head.endpoint, target)
    known_names = spoken.fields.get(endpoint, {}).keys() | target_upstream.accepts
    with suppress(InvalidField):  # fill the cache
        make_target_route(call.head.endpoint, DIALECTS[call.head.dialect], target)
        if is_sent:
            translate_request(call, target, changes)

    document = apply_overrides(call, target, changes)

    long = apply_parameter_overrides(endpoint, {**call.body, "model": model}, changes, known_names)
    expected = {**long, "model": call.body["model"]}
    assert (document, types_of(document)) == (expected, types_of(expected))


@for_each("dialect", ["openai", "portkey", "enkrypt"])
@for_each("changes", CHANGES[:3], ids=str)
@for_each("bounded", [{}, {"max_tokens": 256}], ids=str)
def test_common_fields_are_forwarded(
    dialect: str, changes: ParameterOverrides, bounded: dict[str, int]
) -> None:
    usual = {**FIELDS["chat"], "stream": True, "top_p": 0.9, "user": "u", **bounded}
    target = Target(upstream(dialect, {}), "gpt-4o")
    route = make_target_route("chat", OPENAI, target)

    request = build_untranslated_request(route, "chat", usual, "gpt-4o", changes)

    assert request is not None
    assert request.body["model"] == "gpt-4o"
    assert make_target_route("chat", OPENAI, target) is route


def forward(changes: ParameterOverrides = NO_OVERRIDES, **fields: Any) -> Any:
    return build_untranslated_request(ROUTE, "chat", {**FIELDS["chat"], **fields}, "m", changes)


ROUTE = make_target_route("chat", OPENAI, Target(upstream("openai", {}), "m"))


def test_values_out_of_range_are_not_forwarded() -> None:
    assert forward(temperature=3) is None


def test_cache_of_numbers_is_bounded() -> None:
    changes = ParameterOverrides(cap={"max_tokens": 9})

    for number in range(1, 3 * MAX_CACHED):
        assert forward(changes, max_tokens=number).body["max_tokens"] == min(9, number)
        assert len(changes.changed[ROUTE]) <= MAX_CACHED


class EmptiedByOthers(dict[Any, Any]):
    """A cache that another thread clears after each look-up."""

    def __contains__(self, key: object) -> bool:
        is_found = super().__contains__(key)
        self.clear()
        return is_found


def test_cache_of_numbers_may_be_cleared_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large requests use a route in a thread, at the same time as others."""
    monkeypatch.setattr(ROUTE, "fields_without_rules", EmptiedByOthers())

    assert [forward(max_tokens=7).max_output_tokens for _ in range(3)] == [7, 7, 7]
