"""How rules and upstreams change fields of a request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.dialects.requests.field_filter import apply_field_rules
from proxy.dialects.requests.translation import apply_parameter_overrides
from proxy.dialects.requests.upstream_request import build_request, translate_request
from proxy.dialects.vendors.openai import OPENAI
from proxy.errors import InvalidField
from proxy.fields.field_table import FIELDS, RESTRICTED_FIELDS
from proxy.fields.rules import POLICY_FIELDS
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import (
    NO_OVERRIDES,
    Endpoint,
    Json,
    ParameterOverrides,
    RequestHead,
    Secret,
    Target,
    Upstream,
)
from tests.for_each import for_each
from tests.guards.growth import lines

KNOWN_VALUES = OPENAI.fields["completions"]
BODY = {"prompt": "Hi", "temperature": 1.5}


def test_overrides_do_not_change_the_original_body() -> None:
    for overrides in (ParameterOverrides({"temperature": 0.0}), NO_OVERRIDES):
        is_body = apply_parameter_overrides("completions", BODY, overrides, KNOWN_VALUES) is BODY
        assert (is_body, BODY["temperature"]) == (overrides is NO_OVERRIDES, 1.5)


@for_each(
    ("endpoint", "fields", "setting", "cap", "result"),
    [
        ("chat", {}, {"temperature": 0.0}, {}, {"temperature": 0.0}),
        ("chat", {"temperature": 2}, {"temperature": 0.5}, {}, {"temperature": 0.5}),
        ("chat", {"temperature": 2}, {}, {"temperature": 1.0}, {"temperature": 1.0}),
        ("chat", {"temperature": 0.3}, {}, {"temperature": 1.0}, {"temperature": 0.3}),
        ("chat", {}, {}, {"temperature": 1.0, "n": 2}, {}),
        ("chat", {"n": None}, {}, {"n": 2}, {"n": None}),
        ("chat", {}, {}, {"max_tokens": 9}, {"max_tokens": 9}),
        ("chat", {"max_tokens": 5}, {}, {"max_tokens": 9}, {"max_tokens": 5}),
        ("chat", {"max_tokens": None}, {}, {"max_tokens": 9}, {"max_tokens": 9}),
        ("chat", {"max_completion_tokens": 50}, {}, {"max_tokens": 9},
            {"max_completion_tokens": 9}),
        ("chat", {"max_tokens": 50, "max_completion_tokens": 60}, {}, {"max_tokens": 9},
            {"max_tokens": 9, "max_completion_tokens": 9}),
        ("chat", {}, {}, {"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        ("completions", {}, {}, {"max_completion_tokens": 9}, {"max_tokens": 9}),
        ("chat", {"max_completion_tokens": 50}, {"max_tokens": 9}, {}, {"max_tokens": 9}),
        ("completions", {"max_tokens": 5}, {"max_completion_tokens": 9}, {}, {"max_tokens": 9}),
        ("chat", {}, {"best_of": 2}, {}, {}),
        ("completions", {"best_of": 5}, {}, {"best_of": 2}, {"best_of": 2}),
        ("embeddings", {}, {"temperature": 0.0}, {"max_tokens": 5}, {}),
        ("chat", {}, {"max_tokens": 500}, {"max_tokens": 100}, {"max_tokens": 100}),
        ("chat", {"n_predict": 10, "max_new_tokens": 50}, {}, {"max_tokens": 100},
            {"n_predict": 10, "max_new_tokens": 50, "max_tokens": 10}),
        ("chat", {"n_predict": -1, "max_new_tokens": 50}, {}, {"max_tokens": 100},
            {"n_predict": 100, "max_new_tokens": 50, "max_tokens": 50}),
        ("completions", {"n_predict": 50, "options": {"num_predict": 7}}, {}, {"max_tokens": 100},
            {"n_predict": 50, "options": {"num_predict": 7}, "max_tokens": 7}),
    ],
)  # fmt: skip
def test_override_applies_under_the_name_in_the_request(
    endpoint: Endpoint, fields: Json, setting: Json, cap: Json, result: Json
) -> None:
    overrides = ParameterOverrides(setting, cap)

    assert apply_parameter_overrides(endpoint, fields, overrides, OPENAI.fields[endpoint]) == result


TOOL = {"type": "mcp", "server_url": "https://mcp.example/", "headers": {"x": "y"}}


def upstream(**fields: Any) -> Upstream:
    lists: dict[str, Any] = {name: frozenset(names) for name, names in fields.items()}
    return Upstream("openai", "openai", "https://example.com", **lists)


def dropping(*names: str) -> Upstream:
    return upstream(drops=names, refuses=POLICY_FIELDS - {*names})


def test_dropping_nested_fields_does_not_change_the_body() -> None:
    body = {"tools": [{"type": "a"}, dict(TOOL)]}
    names = ["tools[].headers", "tools[].server_url"]

    allowed, dropped = apply_field_rules(body, dropping(*names))

    assert (allowed, sorted(dropped)) == ({"tools": [{"type": "a"}, {"type": "mcp"}]}, names)
    assert body == {"tools": [{"type": "a"}, TOOL]}


def test_dropped_field_is_dropped_in_option_groups() -> None:
    body = {"seed": 1, "extra_body": {"seed": 2, "tools": [{"seed": 3}]}}

    allowed, dropped = apply_field_rules(body, dropping("seed"))

    assert (allowed, dropped) == ({"extra_body": {"tools": [{"seed": 3}]}}, ["seed"])


def test_id_in_place_of_an_object_is_dropped_unless_accepted() -> None:
    body = {"tools": [{"container": "cntr_1"}, {"container": {"type": "auto"}}], "container": "c"}
    names = {"tools[].container.id", "container.id"}

    allowed, dropped = apply_field_rules(body, dropping(*names))
    accepted, _ = apply_field_rules(body, upstream(accepts=names, refuses=POLICY_FIELDS - names))

    assert allowed == {"tools": [{}, {"container": {"type": "auto"}}]}
    assert sorted(dropped) == sorted(names)
    assert accepted == body


def test_accepted_field_includes_nested_fields() -> None:
    body = {"tools": [{"retrieval": {"anything": 1}}]}
    with pytest.raises(InvalidField):
        apply_field_rules(body, upstream())

    accepting = upstream(accepts={"tools[].retrieval"})
    assert apply_field_rules(body, accepting) == (body, [])


@pytest.mark.parametrize("body", [{"apiKey": "a"}, {"extra_body": {"apiKey": "a"}}], ids=str)
def test_error_names_spelling_and_field(body: Json) -> None:
    with pytest.raises(InvalidField, match=r"api_key: .*, also not as .apiKey., unless"):
        apply_field_rules(body, upstream())


@pytest.mark.parametrize("name", sorted(RESTRICTED_FIELDS))
def test_more_expensive_option_is_refused_unless_accepted(name: str) -> None:
    with pytest.raises(InvalidField, match="price"):
        apply_field_rules({name: "dearer"}, upstream())

    for body in ({name: "dearer"}, {"options": {name: "dearer"}}):
        assert apply_field_rules(body, upstream(accepts={name})) == (body, [])
    for usual in sorted(FIELDS[name].client_values):
        assert apply_field_rules({name: usual}, upstream()) == ({name: usual}, [])


@for_each("item", [{}, {"server_label": "a"}, {"mcp": {}}, "tool", [{"a": "b"}]])
def test_many_tools_are_filtered_in_linear_time(item: Any) -> None:
    body = {"tools": [item] * 10_000}

    assert lines(lambda: apply_field_rules(body, upstream())) < 20 * 10_000


UPSTREAM = Upstream("up", "openai", "https://api.example.test/v1", api_key=Secret("sk"))


def question(upstream: Upstream, *, path: str = "/v1/completions", **fields: Any) -> Any:
    endpoint: Any = "chat" if "messages" in fields else "completions"
    body = {"model": "asked", **({} if "messages" in fields else {"prompt": "p"}), **fields}
    call = read_call(RequestHead("openai", endpoint, path, "req_1"), body)
    return build_request(call, Target(upstream, "served"))


@pytest.mark.parametrize(("base", "prefix"), [("", "/v1"), ("/", "/v1"), ("/v2", "/v2")])
def test_base_url_without_path_gets_the_dialect_prefix(base: str, prefix: str) -> None:
    url = "https://api.example.test"

    assert question(replace(UPSTREAM, base_url=url + base)).url == f"{url}{prefix}/completions"


def test_stream_usage_is_requested_only_if_needed() -> None:
    fireworks = replace(UPSTREAM, dialect="fireworks")
    asking, unstreamed, others = (
        json.loads(question(row, stream=is_stream).body).get("stream_options")
        for row, is_stream in ((UPSTREAM, True), (UPSTREAM, False), (fireworks, True))
    )

    assert (asking, unstreamed, others) == ({"include_usage": True}, None, None)


def test_headers_come_from_dialect_and_policy() -> None:
    headers = question(replace(UPSTREAM, headers=(("X-Team", Secret("t")),))).headers

    names = "accept accept-encoding authorization content-type user-agent x-team"
    assert headers.keys() == set(names.split())
    assert headers["accept-encoding"] == "identity"


def test_translated_request_is_reused_for_equal_targets() -> None:
    request = {"model": "asked", "messages": [{"role": "user", "content": "p"}], "stream": True}
    call = read_call(RequestHead("openai", "chat", "/v1/chat/completions", "req_1"), request)
    target, other_target = Target(UPSTREAM, "served"), Target(UPSTREAM, "other")
    capped = ParameterOverrides(set={"temperature": 0})

    result = translate_request(call, target, capped)
    sent_value = build_request(call, target, capped)

    assert translate_request(call, target, capped) is result
    assert json.loads(sent_value.body) == {**result.body, "stream_options": {"include_usage": True}}
    assert "stream_options" not in result.body
    assert "temperature" not in translate_request(call, target).body
    assert translate_request(call, other_target, capped).body["model"] == "other"
    masked = replace(call, body={**call.body, "messages": [{"role": "user", "content": "***"}]})
    [message] = translate_request(masked, target, capped).body["messages"]
    assert message["content"] == "***"
    large = replace(call, size=LARGE_BYTES + 1)
    assert translate_request(large, target) is not translate_request(large, target)
