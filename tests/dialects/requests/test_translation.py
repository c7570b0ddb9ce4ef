"""What becomes of a field on its way to an upstream of another dialect."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.requests.translation import translate
from proxy.errors import InvalidField
from proxy.types import ParameterOverrides, Target, Upstream
from tests.for_each import for_each

LEGACY: Any = ("completions", "completions")
BODY = {"model": "m", "prompt": "p"}


def target(dialect: str, **options: Any) -> Target:
    return Target(Upstream("one", dialect, "http://127.0.0.1:9", **options), "m")


def crossed(received: str, upstream_dialect: str, **fields: Any) -> Any:
    return translate(DIALECTS[received], LEGACY, {**BODY, **fields}, target(upstream_dialect))


def test_a_field_that_neither_knows_passes_with_its_value() -> None:
    assert crossed("openai", "scale", new_thing=[1, {"a": None}]).body["new_thing"] == [
        1,
        {"a": None},
    ]


@pytest.mark.parametrize("value", [None, 1, 1.0])
def test_a_default_is_left_out_without_a_word(value: Any) -> None:
    fitted = crossed("fireworks", "openai", repetition_penalty=value)

    assert fitted.dropped_fields == ()
    assert "repetition_penalty" not in fitted.body


def test_a_field_that_tunes_is_dropped_and_named() -> None:
    assert crossed("fireworks", "openai", repetition_penalty=1.2).dropped_fields == (
        "repetition_penalty",
    )


@for_each(
    ("endpoint", "dialect", "open_ranges", "is_sent"),
    [
        ("responses", "openai", False, True),
        ("responses", "openai", True, False),
        ("chat", "openai", False, False),
        ("chat", "anthropic", False, False),
    ],
)
def test_codex_metadata(endpoint: Any, dialect: str, open_ranges: bool, is_sent: bool) -> None:
    paths = {"x-codex-turn-metadata": '{"cwd": "C:/secret-project"}'}
    body = {"model": "m", "input": "Hi", "client_metadata": paths}
    target_item = target(dialect, open_ranges=open_ranges)
    endpoints: Any = ("responses", endpoint)

    fitted = translate(DIALECTS["openai"], endpoints, body, target_item)

    assert ("client_metadata" in fitted.body) == is_sent
    assert ("client_metadata" in fitted.dropped_fields) != is_sent


@pytest.mark.parametrize(
    ("received", "upstream_dialect", "value"),
    [
        ("anthropic", "openai", {"edits": [{"type": "clear_thinking_20251015"}]}),
        ("openai", "anthropic", [{"type": "compaction"}]),
    ],
)
def test_drops_field_of_same_name(received: str, upstream_dialect: str, value: Any) -> None:
    endpoints: dict[str, Any] = {"anthropic": "chat", "openai": "responses"}
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "context_management": value}
    if received == "anthropic":
        body["messages"] = [{"role": "user", "content": "Hi"}]
    else:
        body["input"] = "Hi"
    ways = endpoints[received], endpoints[upstream_dialect]

    fitted = translate(DIALECTS[received], ways, body, target(upstream_dialect))

    assert "context_management" in fitted.dropped_fields
    assert "context_management" not in fitted.body


def test_what_the_policy_drops_is_named_once_whatever_its_spellings() -> None:
    context = target("openai", drops=frozenset({"provider"}), refuses=frozenset())
    names = ["provider", "PROVIDER", "\uff50rovider", "Provider"]
    body = {**BODY, **dict.fromkeys(names, 1)}

    fitted = translate(DIALECTS["openai"], LEGACY, body, context)

    assert fitted.dropped_fields == ("provider",)
    assert not fitted.body.keys() & set(names)


@for_each(
    ("received", "upstream_dialect", "field"),
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
def test_refuses_shaping_field_by_name(
    received: str, upstream_dialect: str, field: dict[str, Any]
) -> None:
    with pytest.raises(InvalidField) as refused:
        crossed(received, upstream_dialect, **field)

    assert refused.value.param in field


def test_an_upstream_may_take_more_than_its_dialect() -> None:
    fitted = translate(
        DIALECTS["fireworks"],
        LEGACY,
        {**BODY, "top_k": 40},
        target("openai", accepts=frozenset({"top_k"})),
    )

    assert (fitted.body["top_k"], fitted.dropped_fields) == (40, ())


def test_an_upstream_without_the_endpoint_is_named() -> None:
    with pytest.raises(InvalidField, match="no embeddings endpoint"):
        translate(DIALECTS["openai"], ("embeddings", "embeddings"), BODY, target("scale"))


@for_each("upstream_dialect", ["openai", "portkey", "scale", "multimodel", "enkrypt"])
def test_what_an_upstream_does_untold_is_no_loss_and_the_contrary_is(upstream_dialect: str) -> None:
    name = "context_length_exceeded_behavior"

    assert crossed("fireworks", upstream_dialect, **{name: "error"}).dropped_fields == ()
    assert crossed("fireworks", upstream_dialect, **{name: "truncate"}).dropped_fields == (name,)
    assert crossed("fireworks", upstream_dialect).dropped_fields == ()


@for_each(
    ("upstream_dialect", "value", "dropped"),
    [
        ("openai", True, True),
        ("openai", False, False),
        ("fireworks", True, False),
        ("fireworks", False, True),
        ("scale", True, False),
    ],
)
def test_warns_where_stop_text_differs(upstream_dialect: str, value: bool, dropped: bool) -> None:
    fitted = crossed("scale", upstream_dialect, include_stop_str_in_output=value)

    assert fitted.dropped_fields == (("include_stop_str_in_output",) if dropped else ())


def test_the_time_a_client_allows_is_kept_by_the_proxy_and_so_not_lost() -> None:
    assert crossed("scale", "openai", inference_timeout=3).dropped_fields == ()


@for_each(
    ("dialect", "options", "bound", "dropped"),
    [
        ("openai", {"max_tokens": 3, "max_completion_tokens": 4}, 4, ("max_tokens",)),
        ("multimodel", {"logprobs": True}, None, ("logprobs",)),
    ],
)
def test_names_dropped_fields(
    dialect: str, options: dict[str, Any], bound: int | None, dropped: tuple[str, ...]
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "p"}], **options}

    fitted = translate(DIALECTS["openai"], ("chat", "completions"), body, target(dialect))

    assert (fitted.body.get("max_tokens"), fitted.dropped_fields) == (bound, dropped)


ONE_ANSWER: list[tuple[str, Any, dict[str, Any]]] = [
    (
        "anthropic",
        "chat",
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "p"}]},
    ),
    ("openai", "responses", {"model": "m", "input": "p"}),
]


@pytest.mark.parametrize(("received", "endpoint", "body"), ONE_ANSWER)
def test_responses_has_one_answer(received: str, endpoint: Any, body: dict[str, Any]) -> None:
    def translated(number: int | None) -> Any:
        ends: Any = endpoint, "chat"
        fields = {**body, "n": number}
        return translate(DIALECTS[received], ends, fields, target("openai"))

    for number in (None, 1):
        assert translated(number).body["model"] == "m"
    with pytest.raises(InvalidField) as refused:
        translated(2)
    assert refused.value.param == "n"


THOUGHTS: Any = [
    {"role": "user", "content": "Where?"},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "x"}],
        "reasoning_content": "Hm.",
    },
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize(
    ("upstream_dialect", "endpoint"),
    [("anthropic", "chat"), ("openai", "responses"), ("openai", "completions")],
)
def test_thoughts_in_chat_requests_are_dropped(upstream_dialect: str, endpoint: Any) -> None:
    openai = DIALECTS["openai"]
    body = {"model": "m", "max_tokens": 9, "messages": THOUGHTS}

    fitted = translate(openai, ("chat", endpoint), body, target(upstream_dialect))

    assert fitted.dropped_fields == ("reasoning_content", "thinking")
    assert "Hm." not in str(fitted.body)
    assert "thinking" not in str(fitted.body)


def test_thoughts_go_back_to_an_upstream_of_the_same_form_as_they_came() -> None:
    openai, body = DIALECTS["openai"], {"model": "m", "messages": THOUGHTS}

    fitted = translate(openai, ("chat", "chat"), body, target("openai"))

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
def test_an_upstream_of_messages_has_a_bound_and_one_that_nobody_said_is_told(
    fields: dict[str, Any],
    maximum: Any,
    changes: ParameterOverrides,
    bound: int,
    assumed: tuple[str, ...],
) -> None:
    openai = DIALECTS["openai"]
    body = {"model": "m", "input": "Where?", **fields}
    to = target("anthropic", most=maximum)

    fitted = translate(openai, ("responses", "chat"), body, to, changes)

    assert (fitted.body["max_tokens"], fitted.default_fields) == (bound, assumed)
    assert fitted.max_output_tokens == bound
