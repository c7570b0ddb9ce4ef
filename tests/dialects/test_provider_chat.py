"""What becomes of a chat for a provider that takes less than OpenAI, or more."""

from __future__ import annotations

from typing import Any

from proxy.dialects.provider_chat import SHORT_ID, UNKNOWN_THOUGHT, provider_chat
from proxy.types.providers import PROVIDERS, Provider
from tests.for_each import for_each

Json = dict[str, Any]
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SHORT = Provider(name="short", has_short_ids=True, thoughts="refused")
REQUIRED, REFUSED = PROVIDERS["deepseek"], PROVIDERS["groq"]


def message(traits: Provider, said: Json) -> tuple[Json, tuple[str, ...]]:
    made, dropped = provider_chat({"messages": [said]}, traits)
    return made["messages"][0], dropped


def assistant(**more: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [CALL], **more}


@for_each(("given", "expected"), [
    ({"max_completion_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 5, "max_tokens": 3}, {"max_tokens": 3}),
    ({"max_completion_tokens": None, "max_tokens": 3}, {"max_tokens": 3}),
    ({"seed": 7}, {"random_seed": 7}),
])  # fmt: skip
def test_fields_get_the_names_of_the_provider(given: Json, expected: Json) -> None:
    assert provider_chat(given, PROVIDERS["mistral"]) == (expected, ())


@for_each(("said", "thought"), [
    (assistant(), UNKNOWN_THOUGHT),
    (assistant(reasoning_content=""), UNKNOWN_THOUGHT),
    (assistant(reasoning="Why?"), "Why?"),
    (assistant(reasoning_content="So."), "So."),
    ({"role": "assistant", "content": "Hi."}, None),
])  # fmt: skip
def test_message_with_calls_has_a_thought_where_one_is_required(
    said: Json, thought: str | None
) -> None:
    assert message(REQUIRED, said)[0].get("reasoning_content") == thought


def test_members_that_a_provider_refuses_are_left_out() -> None:
    beside = {"extra_content": {"google": {"thought_signature": "x"}}}
    said = assistant(
        reasoning_content="So.", refusal=None, audio=None, tool_calls=[{**CALL, **beside}]
    )

    assert message(REFUSED, said) == (assistant(), ("reasoning_content",))


def test_ids_become_short_and_still_belong_together() -> None:
    call, _ = message(SHORT, assistant())
    result, _ = message(SHORT, {"role": "tool", "tool_call_id": "call_1", "content": "x"})
    kept, _ = message(SHORT, assistant(tool_calls=[{**CALL, "id": "D681PevKs"}]))

    assert SHORT_ID.fullmatch(result["tool_call_id"])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert kept["tool_calls"][0]["id"] == "D681PevKs"


@for_each("odd", ["text", {"role": "assistant", "tool_calls": "x"}, {"role": "assistant"},
                  assistant(tool_calls=["x"]), {"role": "tool", "tool_call_id": 5}])  # fmt: skip
def test_odd_messages_are_left_to_the_provider(odd: Any) -> None:
    made, _ = provider_chat({"messages": [odd]}, SHORT)

    assert made["messages"] == [odd]
    assert provider_chat({"messages": "x"}, SHORT)[0] == {"messages": "x"}


def test_developer_becomes_system_where_that_is_unknown() -> None:
    said = {"role": "developer", "content": "Be brief."}

    assert message(REQUIRED, said)[0] == {**said, "role": "system"}
