"""Translation of request fields for upstreams of other dialects."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.requests.translation import translate_body
from proxy.errors import InvalidField
from proxy.types import ParameterOverrides, Target, Upstream
from tests.dialects.refused import refused_param
from tests.for_each import for_each

LEGACY: Any = ("completions", "completions")
BODY = {"model": "m", "prompt": "p"}


def target(dialect: str, **options: Any) -> Target:
    return Target(Upstream("one", dialect, "http://127.0.0.1:9", **options), "m")


def translated_request(received: str, upstream_dialect: str, **fields: Any) -> Any:
    return translate_body(DIALECTS[received], LEGACY, {**BODY, **fields}, target(upstream_dialect))


def test_field_unknown_to_both_dialects_is_forwarded() -> None:
    value = [1, {"a": None}]

    assert translated_request("openai", "scale", new_thing=value).body["new_thing"] == value


@for_each(
    ("value", "dropped"),
    [(None, ()), (1, ()), (1.0, ()), (1.2, ("repetition_penalty",))],
)
def test_tuning_field_is_dropped_and_named_unless_default(value: Any, dropped: Any) -> None:
    fitted = translated_request("fireworks", "openai", repetition_penalty=value)

    assert fitted.dropped_fields == dropped
    assert "repetition_penalty" not in fitted.body


@for_each(
    ("endpoint", "dialect", "skips_range_checks", "is_sent"),
    [
        ("responses", "openai", False, True),
        ("responses", "openai", True, False),
        ("chat", "openai", False, False),
        ("chat", "anthropic", False, False),
    ],
)
def test_codex_metadata_is_dropped_silently(
    endpoint: Any, dialect: str, skips_range_checks: bool, is_sent: bool
) -> None:
    paths = {"x-codex-turn-metadata": '{"cwd": "C:/secret-project"}'}
    body = {"model": "m", "input": "Hi", "client_metadata": paths}
    target_item = target(dialect, skips_range_checks=skips_range_checks)
    endpoints: Any = ("responses", endpoint)

    fitted = translate_body(DIALECTS["openai"], endpoints, body, target_item)

    assert ("client_metadata" in fitted.body) == is_sent
    assert ("client_metadata" in fitted.dropped_fields) != is_sent


@pytest.mark.parametrize(
    ("received", "upstream_dialect", "value"),
    [
        ("anthropic", "openai", {"edits": [{"type": "clear_thinking_20251015"}]}),
        ("openai", "anthropic", [{"type": "compaction"}]),
    ],
)
def test_field_of_the_same_name_but_other_meaning_is_dropped(
    received: str, upstream_dialect: str, value: Any
) -> None:
    endpoints: dict[str, Any] = {"anthropic": "chat", "openai": "responses"}
    messages = [{"role": "user", "content": "Hi"}]
    body = {"messages": messages} if received == "anthropic" else {"input": "Hi"}
    body |= {"model": "m", "max_tokens": 9, "context_management": value}
    ways = endpoints[received], endpoints[upstream_dialect]

    fitted = translate_body(DIALECTS[received], ways, body, target(upstream_dialect))

    assert "context_management" in fitted.dropped_fields
    assert "context_management" not in fitted.body


def test_dropped_field_of_two_spellings_is_named_once() -> None:
    context = target("openai", drops=frozenset({"provider"}), refuses=frozenset())
    names = ["provider", "PROVIDER", "\uff50rovider", "Provider"]
    body = {**BODY, **dict.fromkeys(names, 1)}

    fitted = translate_body(DIALECTS["openai"], LEGACY, body, context)

    assert fitted.dropped_fields == ("provider",)
    assert not fitted.body.keys() & set(names)


@for_each(
    ("received", "to", "field"),
    [
        ("fireworks", "openai", {"images": ["data:"]}),
        ("scale", "openai", {"guided_regex": "a+"}),
        ("scale", "fireworks", {"tools": [{}]}),
        ("openai", "multimodel", {"suffix": "x"}),
        ("openai", "multimodel", {"n": 2}),
        ("openai", "multimodel", {"temperature": 1.5}),
        ("openai", "multimodel", {"prompt": ["a", "b"]}),
        ("fireworks", "openai", {"response_format": {"type": "json_object"}}),
    ],
)
def test_field_that_shapes_the_response_is_refused(received: str, to: str, field: Any) -> None:
    assert refused_param(translated_request, received, to, **field) in field


def test_upstream_may_accept_more_than_its_dialect() -> None:
    accepting = target("openai", accepts=frozenset({"top_k"}))

    fitted = translate_body(DIALECTS["fireworks"], LEGACY, {**BODY, "top_k": 40}, accepting)

    assert (fitted.body["top_k"], fitted.dropped_fields) == (40, ())


def test_upstream_without_the_endpoint_is_named() -> None:
    with pytest.raises(InvalidField, match="no embeddings endpoint"):
        translate_body(DIALECTS["openai"], ("embeddings", "embeddings"), BODY, target("scale"))


@for_each("upstream_dialect", ["openai", "portkey", "scale", "multimodel", "enkrypt"])
def test_default_behavior_of_the_upstream_is_not_reported(upstream_dialect: str) -> None:
    name = "context_length_exceeded_behavior"

    for fields, dropped in (({name: "error"}, ()), ({name: "truncate"}, (name,)), ({}, ())):
        fitted = translated_request("fireworks", upstream_dialect, **fields)
        assert fitted.dropped_fields == dropped


@for_each(
    ("upstream_dialect", "value", "dropped"),
    [
        *(("openai", value, value) for value in (True, False)),
        *(("fireworks", value, not value) for value in (True, False)),
        ("scale", True, False),
    ],
)
def test_differing_stop_text_is_reported(upstream_dialect: str, value: Any, dropped: bool) -> None:
    fitted = translated_request("scale", upstream_dialect, include_stop_str_in_output=value)

    assert fitted.dropped_fields == (("include_stop_str_in_output",) if dropped else ())


def test_client_timeout_is_applied_by_the_proxy() -> None:
    assert translated_request("scale", "openai", inference_timeout=3).dropped_fields == ()


@for_each(
    ("dialect", "options", "bound", "dropped"),
    [
        ("openai", {"max_tokens": 3, "max_completion_tokens": 4}, 4, ("max_tokens",)),
        ("multimodel", {"logprobs": True}, None, ("logprobs",)),
    ],
)
def test_dropped_fields_are_named(dialect: str, options: Any, bound: Any, dropped: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "p"}], **options}

    fitted = translate_body(DIALECTS["openai"], ("chat", "completions"), body, target(dialect))

    assert (fitted.body.get("max_tokens"), fitted.dropped_fields) == (bound, dropped)


@for_each(
    ("received", "endpoint", "fields"),
    [
        ("anthropic", "chat", {"max_tokens": 5, "messages": [{"role": "user", "content": "p"}]}),
        ("openai", "responses", {"input": "p"}),
    ],
)
def test_several_choices_are_refused(received: str, endpoint: Any, fields: Any) -> None:
    def translated(number: int | None) -> Any:
        body = {"model": "m", **fields, "n": number}
        return translate_body(DIALECTS[received], (endpoint, "chat"), body, target("openai"))

    assert translated(None).body["model"] == translated(1).body["model"] == "m"
    assert refused_param(translated, 2) == "n"


PARTS = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "x"}]
THOUGHTS: Any = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": PARTS, "reasoning_content": "Hm."},
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize(
    ("upstream_dialect", "endpoint"),
    [("anthropic", "chat"), ("openai", "responses"), ("openai", "completions")],
)
def test_thoughts_in_chat_requests_are_dropped(upstream_dialect: str, endpoint: Any) -> None:
    openai = DIALECTS["openai"]
    body = {"model": "m", "max_tokens": 9, "messages": THOUGHTS}

    fitted = translate_body(openai, ("chat", endpoint), body, target(upstream_dialect))

    assert fitted.dropped_fields == ("reasoning_content", "thinking")
    assert "Hm." not in str(fitted.body)
    assert "thinking" not in str(fitted.body)


def test_thoughts_return_unchanged_within_one_family() -> None:
    openai, body = DIALECTS["openai"], {"model": "m", "messages": THOUGHTS}

    fitted = translate_body(openai, ("chat", "chat"), body, target("openai"))

    assert (fitted.body["messages"], fitted.dropped_fields) == (THOUGHTS, ())


@for_each(
    ("fields", "maximum", "changes", "bound", "assumed"),
    [
        ({}, (), ParameterOverrides(), 8192, ("max_tokens 8192",)),
        ({}, (("max_tokens", 32000),), ParameterOverrides(), 32000, ("max_tokens 32000",)),
        ({"max_output_tokens": 9}, (), ParameterOverrides(), 9, ()),
        ({}, (), ParameterOverrides(cap={"max_tokens": 500}), 500, ()),
        ({}, (), ParameterOverrides(set={"max_tokens": 32000}), 32000, ()),
    ],
)
def test_assumed_messages_bound_is_reported(
    fields: Any, maximum: Any, changes: ParameterOverrides, bound: int, assumed: tuple[str, ...]
) -> None:
    openai = DIALECTS["openai"]
    body = {"model": "m", "input": "Where?", **fields}
    to = target("anthropic", max_values=maximum)

    fitted = translate_body(openai, ("responses", "chat"), body, to, changes)

    assert (fitted.body["max_tokens"], fitted.default_fields) == (bound, assumed)
    assert fitted.max_output_tokens == bound
