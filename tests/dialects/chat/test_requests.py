"""Tests chat requests for legacy completions and for providers."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from proxy.dialects import read_call
from proxy.dialects.chat import requests
from proxy.dialects.chat.requests import SHORT_ID, UNKNOWN_REASONING, adapt_chat_to_provider
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import InvalidField
from proxy.types import RequestHead, Target, Upstream
from proxy.types.providers import MAX_TOKENS, PROVIDERS, Provider, Thoughts
from tests.for_each import for_each


@for_each(
    ("fields", "count"),
    [
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": False}, {}),
        ({"logprobs": 2}, {"logprobs": 2}),
        ({}, {}),
    ],
)
def test_logprobs_flag_becomes_a_count(fields: dict[str, Any], count: dict[str, Any]) -> None:
    assert requests.convert_logprobs_to_count(fields) == count


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [[1]]])
def test_chat_takes_one_text_as_prompt(prompt: Any) -> None:
    with pytest.raises(InvalidField, match="prompt"):
        requests.convert_legacy_to_chat({"prompt": prompt})


def test_chat_is_a_prompt_with_its_texts_joined_and_its_bound_renamed() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    fields = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 7}

    request = requests.convert_chat_to_legacy(fields)

    assert request == {"prompt": "user: ab\n\nassistant:", "max_tokens": 7}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]},
        {"role": "user", "content": 5},
    ],
)
def test_other_content_than_text_cannot_become_a_prompt(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match="messages"):
        requests.convert_chat_to_legacy({"messages": [message]})


Json = dict[str, Any]
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SHORT = [
    Provider(name="short", has_short_ids=True, thoughts=thoughts, signs_calls=signs)
    for thoughts in get_args(Thoughts)
    for signs in (False, True)
]
ODD_CALLS: list[Any] = ["x", None, 5, [], {}, {"id": None}, {"id": ["x"]}]
REQUIRED, REFUSED = PROVIDERS["deepseek"], PROVIDERS["groq"]


def message(traits: Provider, fields: Json) -> tuple[Json, tuple[str, ...]]:
    document, dropped = adapt_chat_to_provider({"messages": [fields]}, traits)
    return document["messages"][0], dropped


def assistant(**options: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [CALL], **options}


@for_each(("values", "expected"), [
    ({"max_completion_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 5, "max_tokens": 3}, {"max_tokens": 3}),
    ({"max_completion_tokens": None, "max_tokens": 3}, {"max_tokens": 3}),
    ({"seed": 7}, {"random_seed": 7}),
    ({"seed": 3, "random_seed": 7}, {"random_seed": 7}),
    ({"seed": 7, "random_seed": 3}, {"random_seed": 3}),
    ({"seed": 7, "random_seed": None}, {"random_seed": 7}),
    ({"seed": None, "random_seed": 3}, {"random_seed": 3}),
])  # fmt: skip
def test_fields_are_renamed_for_the_provider(values: Json, expected: Json) -> None:
    assert adapt_chat_to_provider(values, PROVIDERS["mistral"]) == (expected, ())


@for_each("odd", ["x", [], {}, 1.5, True, [None]])
@for_each("provider", [name for name, row in PROVIDERS.items() if row.renamed])
def test_field_of_the_provider_must_be_an_integer(provider: str, odd: Any) -> None:
    for name, own_text in PROVIDERS[provider].renamed:
        for body in ({own_text: odd}, {own_text: odd, name: 5}):
            with pytest.raises(InvalidField, match="must be an integer") as refused:
                adapt_chat_to_provider(body, PROVIDERS[provider])
            assert refused.value.param == own_text


@for_each(("fields", "thought"), [
    (assistant(), UNKNOWN_REASONING),
    (assistant(reasoning_content=""), UNKNOWN_REASONING),
    (assistant(reasoning="Why?"), "Why?"),
    (assistant(reasoning_content="So."), "So."),
    ({"role": "assistant", "content": "Hi."}, None),
])  # fmt: skip
def test_calls_carry_a_required_thought(fields: Json, thought: str | None) -> None:
    assert message(REQUIRED, fields)[0].get("reasoning_content") == thought


def test_members_refused_by_a_provider_are_dropped() -> None:
    calls = [{**CALL, "extra_content": {"google": {"thought_signature": "x"}}}]
    fields = assistant(reasoning_content="So.", refusal=None, audio=None, tool_calls=calls)

    assert message(REFUSED, fields) == (assistant(), ("reasoning_content",))


@for_each("short", SHORT)
def test_shortened_call_ids_still_match(short: Provider) -> None:
    call, _ = message(short, assistant())
    result, _ = message(short, {"role": "tool", "tool_call_id": "call_1", "content": "x"})
    stored, _ = message(short, assistant(tool_calls=[{**CALL, "id": "D681PevKs"}]))

    assert SHORT_ID.fullmatch(result["tool_call_id"])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert stored["tool_calls"][0]["id"] == "D681PevKs"


@for_each("odd", ["text", {"role": "assistant", "tool_calls": "x"}, {"role": "assistant"},
                  {"role": "tool", "tool_call_id": 5}, {"role": "tool"},
                  *({"role": "assistant", "reasoning_content": "So.", "tool_calls": [call]}
                    for call in ODD_CALLS)])  # fmt: skip
def test_invalid_messages_are_forwarded(odd: Any) -> None:
    for traits in SHORT:
        document, _ = adapt_chat_to_provider({"messages": [odd]}, traits)
        sent_message = odd
        if traits.thoughts == "refused" and isinstance(odd, dict):
            sent_message = {
                name: value for name, value in odd.items() if name != "reasoning_content"
            }

        assert document["messages"] == [sent_message]
        assert adapt_chat_to_provider({"messages": "x"}, traits)[0] == {"messages": "x"}


def test_developer_role_becomes_system_if_unknown() -> None:
    fields = {"role": "developer", "content": "Be brief."}

    assert message(REQUIRED, fields)[0] == {**fields, "role": "system"}


@for_each("traits", [
    {"has_short_ids": True}, {"signs_calls": True}, {"renamed": (MAX_TOKENS,)},
    *({"thoughts": thoughts} for thoughts in get_args(Thoughts) if thoughts != "optional"),
])  # fmt: skip
def test_every_trait_alone_changes_a_chat(traits: Json) -> None:
    """The provider takes all fields of OpenAI's chat."""
    row = Provider(name="own", **traits)
    upstream = Upstream("own", "openai", "https://example.com/v1", traits=row)
    fields = assistant(reasoning_content="" if "required" in traits.values() else "So.")
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    body = {"model": "m", "max_completion_tokens": 9, "messages": [*messages, fields, result]}
    call = read_call(RequestHead("openai", "chat", "/v1/chat/completions", "r"), body, 1)

    sent_body = json.loads(build_request(call, Target(upstream, "m")).body)

    assert sent_body["messages"][:2] == messages
    assert sent_body != body
