"""No JSON in any place of a Messages request makes the proxy fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.dialects import CHECKED_FIELDS
from proxy.dialects.messages.from_chat import convert_from_chat, tidy
from proxy.dialects.messages.to_chat import convert_to_chat
from proxy.dialects.vendors.anthropic import user_of
from proxy.errors import BadRequest
from proxy.fields.checks import check_body
from tests.adversary.test_messages_answers import with_odd
from tests.doubles import Json

TEXT = {"type": "text", "text": "Hi"}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
ASKED = {
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


def to_chat(body: Json) -> None:
    user_of(body)
    for keeps_thoughts in (True, False):
        convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def to_messages(body: Json) -> None:
    convert_from_chat(body)


@pytest.mark.parametrize(
    ("dialect", "fields", "cross"),
    [("anthropic", ASKED, to_chat), ("anthropic", ASKED, tidy), ("openai", CHAT, to_messages)],
    ids=["to a chat", "to its own", "of a chat"],
)
def test_translates_or_refuses(dialect: str, fields: Json, cross: Callable[[Json], object]) -> None:
    faults, crossed = [], 0
    for document in with_odd(fields):
        try:
            check_body(CHECKED_FIELDS[dialect]["chat"], document)
            cross(document)
            crossed += 1
        except BadRequest:
            continue
        except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
            faults.append((document, fault))

    assert faults == []
    assert crossed > 0
