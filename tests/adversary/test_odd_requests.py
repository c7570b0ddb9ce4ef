"""No JSON in any place of a request makes the proxy fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.dialects import CHECKED_FIELDS
from proxy.dialects.messages import from_chat as chat_to_messages
from proxy.dialects.messages import to_chat as messages_to_chat
from proxy.dialects.responses import requests as responses_requests
from proxy.dialects.responses.schema import RULES
from proxy.dialects.vendors.anthropic import user_of
from proxy.errors import BadRequest
from proxy.fields.checks import check_body
from proxy.guards.engine import build_prompt_context
from proxy.guards.signed_thoughts import without_broken
from proxy.guards.text.documents import request_texts
from tests.adversary.odd_values import internal_errors, with_odd
from tests.doubles import Json

TEXT = {"type": "text", "text": "Hi"}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
MESSAGES = {
    "model": "gpt-5",  # one that is known to reason
    "max_tokens": 64,
    "system": [TEXT],
    "metadata": {"user_id": "u1"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {}}},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "service_tier": "auto",
    "messages": [
        {
            "role": "user",
            "content": [
                TEXT,
                {"type": "image", "source": PNG},
                {"type": "document", "title": "t", "context": "c", "source": PNG},
                {"type": "document", "source": {"type": "text", "data": "x"}},
                {"type": "document", "source": {"type": "content", "content": [TEXT]}},
                {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT], "is_error": True},
                {"type": "tool_result", "tool_use_id": "t2", "content": "x"},
            ],
        },
    ],
}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
CHAT = {
    "model": "gpt-5",
    "user": "u1",
    "stop": ["."],
    "metadata": {"a": "b"},
    "reasoning_effort": "high",
    "output_config": {},
    "service_tier": "default",
    "parallel_tool_calls": False,
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                TEXT,
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "file", "file": {"filename": "a", "file_data": "data:a/b;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
}


PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
RESPONSES: Json = {
    "model": "gpt-5",
    "instructions": "Be brief.",
    "include": ["message.output_text.logprobs"],
    "max_output_tokens": 64,
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low", "summary": "auto"},
    "store": False,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "custom", "name": "g"}],
    "top_logprobs": 2,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, PICTURE]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": [PICTURE]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ],
}


def messages_as_chat(body: Json) -> None:
    check_body(CHECKED_FIELDS["anthropic"]["chat"], body)
    user_of(body)
    for keeps_thoughts in (True, False):
        messages_to_chat.convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def messages_as_messages(body: Json) -> None:
    check_body(CHECKED_FIELDS["anthropic"]["chat"], body)
    chat_to_messages.tidy(body)


def chat_as_messages(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["chat"], body)
    chat_to_messages.convert_from_chat(body)


def chat_as_responses(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["chat"], body)
    responses_requests.convert_from_chat(body)


def check_responses(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["responses"], body)
    for rule in RULES:
        rule(body)


def responses_as_chat(body: Json) -> None:
    check_responses(body)
    for keeps_thoughts in (True, False):
        responses_requests.convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def responses_as_responses(body: Json) -> None:
    check_responses(body)
    responses_requests.tidy(body)
    build_prompt_context(body)
    request_texts(body)
    without_broken(RESPONSES, {**RESPONSES, "instructions": ""})


@pytest.mark.parametrize(
    ("document", "handle"),
    [
        (MESSAGES, messages_as_chat),
        (MESSAGES, messages_as_messages),
        (CHAT, chat_as_messages),
        (CHAT, chat_as_responses),
        (RESPONSES, responses_as_chat),
        (RESPONSES, responses_as_responses),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_odd_request_is_translated_or_refused(
    document: Json, handle: Callable[[Json], None]
) -> None:
    handle(document)

    assert internal_errors(with_odd(document), handle, BadRequest) == []
