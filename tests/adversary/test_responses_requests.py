"""No JSON in any place of a Responses request makes the proxy fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.dialects import CHECKED_FIELDS
from proxy.dialects.responses.from_chat import convert_from_chat, tidy
from proxy.dialects.responses.state_refs import RULES
from proxy.dialects.responses.to_chat import convert_to_chat
from proxy.errors import BadRequest
from proxy.fields.checks import check_body
from proxy.guards.context import prompt_context
from proxy.guards.signed_thoughts import without_broken
from proxy.guards.text.documents import request_texts
from tests.adversary.test_messages_answers import with_odd
from tests.adversary.test_messages_requests import CHAT
from tests.doubles import Json

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
REQUEST: Json = {
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


def at_the_door(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["responses"], body)
    for rule in RULES:
        rule(body)


def crosses(body: Json) -> None:
    at_the_door(body)
    for keeps_thoughts in (True, False):
        convert_to_chat(body, keeps_thoughts=keeps_thoughts)


def passes(body: Json) -> None:
    at_the_door(body)
    tidy(body)
    prompt_context(body)
    request_texts(body)
    without_broken(REQUEST, {**REQUEST, "instructions": ""})


def comes_from_a_chat(body: Json) -> None:
    check_body(CHECKED_FIELDS["openai"]["chat"], body)
    convert_from_chat(body)


@pytest.mark.parametrize(
    ("document", "turn"),
    [(REQUEST, crosses), (REQUEST, passes), (CHAT, comes_from_a_chat)],
    ids=["to a chat", "to its own", "from a chat"],
)
def test_a_request_crosses_or_is_refused(document: Json, turn: Callable[[Json], None]) -> None:
    turn(document)
    faults = []
    for odd in with_odd(document):
        try:
            turn(odd)
        except BadRequest:
            continue
        except Exception as fault:  # noqa: BLE001  # what is ours, whatever it is
            faults.append((odd, fault))

    assert faults == []
